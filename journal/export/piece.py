"""What every form of exported file can do: be written batch by batch, and be read and checked by itself."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from kvledger.journal.chain import ChainHead
from kvledger.journal.export.cells import TransactionCells
from kvledger.journal.export.check import FileWalk
from kvledger.journal.export.facts import PieceEnd, PieceFacts
from kvledger.journal.export.sums import kept_sum, sum_of
from kvledger.journal.naming import Namings
from kvledger.journal.verify import ChainTally
from kvledger.journal.walk import ChainBreak, Link

log = logging.getLogger("kvledger.journal")


class PieceWriter(Protocol):
    """Writes one piece; nothing of it counts before `close` has returned."""

    def write(self, batch: Sequence[TransactionCells]) -> None:
        """Add the next transactions. Memory is bounded by the batch."""

    def close(self, end: PieceEnd) -> None:
        """Write the end and close the file."""

    def abandon(self) -> None:
        """Close the file as it is; it will not be read."""


class PieceReader(Protocol):
    """Reads one form of file. Errors are JournalFormatError and name the file."""

    def facts(self, path: Path) -> tuple[PieceFacts, PieceEnd]:
        """What the file says of itself. Cost: its beginning and its end."""

    def cells(self, path: Path, *, first: int) -> Iterator[TransactionCells]:
        """Its transactions from number `first` on. Memory is bounded by a batch."""


class Piece:
    """One exported file: transactions `facts.first_number` to `end.last_number` of a journal."""

    def __init__(self, path: Path, reader: PieceReader) -> None:
        self.path = path
        self._reader = reader
        self.facts, self.end = reader.facts(path)

    def cells(self, first: int = 1) -> Iterator[TransactionCells]:
        """Its transactions from number `first` on, as they stand in the file."""
        return self._reader.cells(self.path, first=max(first, self.facts.first_number))

    def verify(
        self,
        *,
        names: Namings | None = None,
        anchor: ChainHead | None = None,
        tally: ChainTally | None = None,
    ) -> Iterator[ChainBreak]:
        """Re-read the whole piece and yield each place where it is not what was exported, first one first.

        `names` is what other parts of the journal name and hold; `anchor` is one whose transaction is here or
        just before. What was walked is added to `tally`.

        Where its cells are sound its SHA-256 must be the one that is kept beside it; a log line says if none
        is. Raises JournalFormatError where the file cannot be read. Cost: O(bytes), memory bounded by a
        batch.
        """
        sound = True
        for broken in self._breaks(names, anchor, ChainTally() if tally is None else tally):
            sound = False
            yield broken
        kept = kept_sum(self.path)
        if kept is None:
            log.warning("no SHA-256 stands beside %s: outside its cells it is unverified", self.path.name)
        elif sound and kept != sum_of(self.path):
            sentence = f"{self.path.name} is not as it was written: its SHA-256 is not the one kept beside it"
            yield ChainBreak("chain", "transactions", None, None, sentence)

    def _breaks(
        self, names: Namings | None, anchor: ChainHead | None, tally: ChainTally
    ) -> Iterator[ChainBreak]:
        """Where its facts, cells and end are not what was exported."""
        facts, end = self.facts, self.end
        if facts.first_number == 1 and facts.previous_hash != facts.journal.info().genesis:
            sentence = f"{self.path.name}: the journal's facts were changed"
            yield ChainBreak("chain", "journals", None, None, sentence)
        checkpoints: list[tuple[int, int, str]] = []
        walk = FileWalk(facts.journal, start_of(facts), names=names, anchor=anchor)
        yield from walk.begin()
        for cells in self.cells():
            if cells.checkpoint is not None:
                checkpoints.append((cells.last_seq, cells.number, cells.checkpoint.digest))
            yield from walk.step(cells)
        yield from walk.end()
        tally.transactions += walk.transactions
        tally.events += walk.events
        tally.gaps += walk.gaps
        tally.anchored = tally.anchored or walk.anchored
        reached = walk.reached
        counted = (walk.transactions, walk.events, *reached, checkpoints)
        named = (end.transactions, end.events, end.last_number, end.last_seq, end.hash, end.checkpoints)
        if counted != named:
            sentence = (
                f"{self.path.name} says that it ends with transaction {end.last_number}, seq {end.last_seq}, "
                f"after {end.transactions} transactions; it ends with {reached.number}, seq {reached.seq}, "
                f"after {walk.transactions}"
            )
            yield ChainBreak("chain", "transactions", reached.number, reached.seq, sentence)


def start_of(facts: PieceFacts) -> Link:
    """The link before the first transaction of a piece."""
    return Link(facts.first_number - 1, facts.first_seq - 1, facts.previous_hash)
