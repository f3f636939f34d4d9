"""The chain over rows as they stand in files: the same walk as over a database, and the checkpoints on it."""

from collections.abc import Iterator
from typing import Any

from kvledger.journal.export.cells import EventCells, TransactionCells
from kvledger.journal.export.facts import JournalFacts
from kvledger.journal.reader import hash_of
from kvledger.journal.walk import ChainBreak, ChainWalk, Link


class FileWalk:
    """Checks transactions in order, from the link `start` on, which is genesis or the end of what came
    before."""

    def __init__(self, journal: JournalFacts, start: Link) -> None:
        self._journal = journal
        self._walk = ChainWalk(start)

    @property
    def reached(self) -> Link:
        """Where the chain stands after the last transaction checked."""
        return self._walk.reached

    @property
    def transactions(self) -> int:
        """How many were checked."""
        return self._walk.transactions

    @property
    def events(self) -> int:
        """How many events they held."""
        return self._walk.events

    def step(self, cells: TransactionCells) -> Iterator[ChainBreak]:
        """Check the next transaction, its events and the checkpoint after it, and move on."""
        yield from self._walk.step(_hashed_head(cells), [_hashed(event) for event in cells.events])
        kept = cells.checkpoint
        if kept is not None and (
            Link(kept.number, kept.seq, kept.chain_hash) != self._walk.reached
            or kept.hash != hash_of(kept, epoch=self._journal.epoch)
        ):
            sentence = f"the checkpoint after transaction {cells.number} was changed, or stands elsewhere"
            yield ChainBreak("chain", "checkpoints", cells.number, cells.last_seq, sentence)

    def end(self) -> Iterator[ChainBreak]:
        """What only the end can tell: facts that name another configuration than the events."""
        yield from self._walk.end(self._journal.config)


def _hashed_head(cells: TransactionCells) -> tuple[Any, ...]:
    return (
        cells.number,
        _text(cells.op),
        _text(cells.request_id),
        _text(cells.status),
        _text(cells.reason),
        cells.time_us,
        cells.first_seq,
        cells.event_count,
        cells.previous_hash,
        cells.hash,
    )


def _hashed(event: EventCells) -> tuple[Any, ...]:
    return (
        event.seq,
        event.txn,
        _text(event.kind),
        event.version,
        event.node,
        _text(event.request_id),
        event.undone,
        _text(event.payload),
        event.blob,
    )


def _text(cell: str | None) -> bytes | None:
    # Half a surrogate pair comes out of a JSON file that was changed; no journal ever held it.
    return None if cell is None else cell.encode(errors="surrogatepass")
