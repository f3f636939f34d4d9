"""Verification of a journal in files, and of one that goes on in a database: one chain across both.

Each piece is read back in full, and each names where the one before it ends; the database is verified as it
would be alone. Checkpoints are held against what names them on either side. A file need not hold a checkpoint
that a transaction in it names: it may have been stored after the file was written.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kvledger.journal.chain import Anchor, ChainHead, CheckpointName
from kvledger.journal.export.piece import Piece
from kvledger.journal.naming import Namings, reaches_start
from kvledger.journal.verify import ChainTally, verify_chain
from kvledger.journal.walk import ChainBreak

if TYPE_CHECKING:
    from kvledger.journal.export.folder import ExportedJournal


def verify_exported(
    journal: "ExportedJournal", *, anchor: ChainHead | None = None, tally: ChainTally | None = None
) -> Iterator[ChainBreak]:
    """Check a journal in its files, and in the database after them, and yield the breaks, files first.

    `anchor` and `tally` are as in `verify_chain`; `tally` counts what is in both once. Raises
    JournalFormatError for a file and JournalError for a database that cannot be read. Cost: O(bytes).
    """
    verification = _Verification(journal, anchor)
    sound = True
    for found in verification.breaks():
        sound = False
        yield found
    if tally is not None:
        verification.fill(tally, sound=sound)


class _Verification:
    def __init__(self, journal: "ExportedJournal", anchor: ChainHead | None) -> None:
        self._journal = journal
        self._anchor = anchor
        self._names = Namings()
        self._files = ChainTally()
        self._rest = ChainTally()

    def breaks(self) -> Iterator[ChainBreak]:
        """All breaks: those of the anchor's own, of the files, of the database, and of the place between."""
        journal, anchor = self._journal, self._anchor
        if anchor is not None and anchor.epoch != journal.info.epoch:
            yield ChainBreak("chain", "journals", None, None, _replaced(anchor, journal.info.epoch))
            anchor = self._anchor = None
        if isinstance(anchor, Anchor) and anchor.checkpoint is not None:
            yield from self._names.named(anchor.checkpoint, by="the anchor")
        yield from self._base_breaks()
        for piece in journal.pieces:
            yield from piece.verify(names=self._names, anchor=self._anchor_in(piece), tally=self._files)
        later = anchor if anchor is not None and anchor.number > journal.exported_head.number else None
        if journal.rest is not None:
            head = None if later is None else ChainHead(later.epoch, later.number, later.seq, later.hash)
            yield from verify_chain(
                journal.rest.engine, journal.rest.info.id, anchor=head, tally=self._rest, names=self._names
            )
        elif later is not None:
            end = journal.exported_head
            sentence = (
                f"the journal ends with transaction {end.number}; the anchor names transaction "
                f"{later.number}, seq {later.seq}: the tail was cut"
            )
            yield ChainBreak("chain", "transactions", end.number + 1, end.seq + 1, sentence)
        if journal.torn is not None:
            yield journal.torn

    def _base_breaks(self) -> Iterator[ChainBreak]:
        """What is wrong with the checkpoint that files from the middle of a journal go on from."""
        facts = self._journal.facts
        if facts.base is None:
            return
        base = facts.base.stored()
        if base.hash != self._journal.info.hash_of(base) or (base.number, base.chain_hash) != (
            facts.first_number - 1,
            facts.previous_hash,
        ):
            sentence = "the checkpoint before the first transaction in the files was changed"
            yield ChainBreak("chain", "checkpoints", base.number, base.seq, sentence)
            return
        name = CheckpointName(base.seq, base.hash)
        yield from self._names.stands(name, number=base.number, previous=base.previous)

    def _anchor_in(self, piece: Piece) -> ChainHead | None:
        anchor, facts = self._anchor, piece.facts
        if anchor is None:
            return None
        first = facts.first_number - (1 if piece is self._journal.pieces[0] else 0)
        return anchor if first <= anchor.number <= piece.end.last_number else None

    def fill(self, tally: ChainTally, *, sound: bool) -> None:
        """Put together what was found in the files and in the database."""
        journal, files, rest = self._journal, self._files, self._rest
        facts = journal.facts
        tally.first_number, tally.start_seq = facts.first_number, facts.first_seq - 1
        end = rest.head if rest.head is not None and rest.head.number > journal.exported_head.number else None
        tally.head = journal.exported_head if end is None else end
        tally.gaps = sorted({*files.gaps, *rest.gaps})
        if sound:
            # The database may hold the end of what the files hold: numbers and seqs are dense.
            tally.transactions = tally.head.number - tally.first_number + 1
            tally.events = tally.head.seq - tally.start_seq - tally.events_dropped
        else:
            tally.transactions = files.transactions + rest.transactions
            tally.events = files.events + rest.events
        tally.checkpoints = self._names.checkpoints
        tally.anchored = files.anchored or rest.anchored
        tally.named_by = self._names.first_to_name(tally.start_seq)
        tally.proved = sound and (
            tally.first_number == 1
            or (
                tally.anchored
                and reaches_start(self._anchor, self._names, tally.start_seq, journal.info.format_version)
            )
        )


def _replaced(anchor: ChainHead, epoch: str) -> str:
    return f"the anchor is of epoch {anchor.epoch}, the journal of {epoch}: it was replaced"
