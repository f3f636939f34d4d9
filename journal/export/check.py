"""The chain over rows as they stand in files: the same walk as over a database, and the checkpoints on it."""

from collections.abc import Iterator
from typing import Any

from kvledger.journal.chain import ChainHead, CheckpointName
from kvledger.journal.export.cells import EventCells, TransactionCells
from kvledger.journal.export.facts import JournalFacts
from kvledger.journal.naming import Namings, StoredOrder
from kvledger.journal.walk import ChainBreak, ChainWalk, Link


class FileWalk:
    """Checks transactions in order, from the link `start` on, which is genesis or the end of what came
    before.

    `names` is what the parts of the journal walked before name and hold. A file need not hold a checkpoint
    that a transaction names: it may have been stored after the file was written.
    """

    def __init__(
        self,
        journal: JournalFacts,
        start: Link,
        *,
        names: Namings | None = None,
        anchor: ChainHead | None = None,
    ) -> None:
        self._info = journal.info()
        self._config = journal.config
        self._walk = ChainWalk(start, format_version=journal.format_version, anchor=anchor)
        self._names = Namings() if names is None else names
        self._order = StoredOrder()

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

    @property
    def anchored(self) -> bool:
        """Whether the anchor was found where it says."""
        return self._walk.anchored

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The ranges of seqs that the recorder had to give up between them: first and last."""
        return self._walk.gaps

    def begin(self) -> Iterator[ChainBreak]:
        """What the anchor says of the place where the walk begins."""
        yield from self._walk.begin()

    def step(self, cells: TransactionCells) -> Iterator[ChainBreak]:
        """Check the next transaction, its events and the checkpoint after it, and move on."""
        yield from self._walk.step(_hashed_head(cells), [_hashed(event) for event in cells.events])
        if self._walk.named is not None:
            by = f"transaction {cells.number}"
            yield from self._names.named(self._walk.named, by=by, transaction=cells.number)
        kept = cells.checkpoint
        if kept is None:
            return
        here = Link(kept.number, kept.seq, kept.chain_hash)
        if here != self._walk.reached or kept.hash != self._info.hash_of(kept):
            self._names.damaged(kept.seq)
            sentence = f"the checkpoint after transaction {cells.number} was changed, or stands elsewhere"
            yield ChainBreak("chain", "checkpoints", cells.number, cells.last_seq, sentence)
            return
        name = CheckpointName(kept.seq, kept.hash)
        yield from self._names.stands(name, number=kept.number, previous=kept.previous)
        if self._info.format_version > 1:
            yield from self._order.next(kept.seq, number=kept.number, previous=kept.previous)

    def end(self) -> Iterator[ChainBreak]:
        """What only the end can tell: facts that name another configuration than the events."""
        yield from self._walk.end(self._config)


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
        cells.duration_us,
        cells.checkpoint_seq,
        cells.checkpoint_hash,
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
