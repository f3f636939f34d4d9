"""Pruning: rows that stand in verified files, with a checkpoint after them, leave the database.

Nothing is removed on trust. The files are read back in full and must hold, hash for hash, every transaction
that goes; a checkpoint must stand at the end of them, because the state is needed to read what stays, and be
the one that the files, the transactions and the checkpoint after it know. The chain then goes on from its
hash, and across files and database together it has no gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument, JournalError, NotExported, UnknownJournal
from kvledger.journal.arguments import check_path
from kvledger.journal.chain import ChainHead
from kvledger.journal.database import backend_of, database_errors
from kvledger.journal.export.cells import TransactionCells
from kvledger.journal.export.folder import ExportedJournal
from kvledger.journal.export.hold import WAIT_SECONDS, folder_held
from kvledger.journal.models import CheckpointRow, EventRow, TransactionRow
from kvledger.journal.reader import JournalReader
from kvledger.journal.records import StoredCheckpoint


@dataclass(frozen=True, slots=True)
class Pruned:
    """What left the database: `checkpoint_seq` is where it begins now."""

    transactions: int
    events: int
    checkpoint_seq: int


def prune_rows(
    writing: sa.Engine,
    reader: JournalReader,
    *,
    before_seq: int,
    exported: Path,
    wait_s: float = WAIT_SECONDS,
) -> Pruned:
    """Remove the transactions up to the newest checkpoint whose seq is below `before_seq`.

    `exported` is the folder (or the file) that holds them. Raises NotExported unless its pieces verify and
    hold all that would go, InvalidArgument where no checkpoint stands before `before_seq`, FolderBusy when an
    export or another prune is at work there for longer than `wait_s` seconds. A crash in the middle leaves a
    journal that was pruned less far, with a checkpoint still at its beginning. Cost: O(bytes exported).
    """
    given = check_path(exported, "the exported journal")
    folder = given if given.is_dir() else given.parent
    if not folder.is_dir():
        raise UnknownJournal(f"there is no exported journal {exported}")
    with folder_held(folder, wait_s=wait_s, may_be_read_only=True):
        return _prune_verified(writing, reader, before_seq=before_seq, exported=given)


def _prune_verified(writing: sa.Engine, reader: JournalReader, *, before_seq: int, exported: Path) -> Pruned:
    cut = reader.checkpoint_before(before_seq - 1)
    if cut is None:
        raise InvalidArgument(
            f"no full state stands before seq {before_seq}: what follows could not be read without the rows"
        )
    first = next(reader.transactions(), None)
    if first is None or first.number > cut.number:
        return Pruned(0, 0, cut.seq)
    _check_exported(reader, first.number, cut, exported)
    return remove_rows(writing, reader, cut=cut)


def remove_rows(writing: sa.Engine, reader: JournalReader, *, cut: StoredCheckpoint) -> Pruned:
    """Remove what `prune_rows` would, without looking for it in files: for who has just written and read
    them.

    Each database transaction takes what lies before one checkpoint, so that a journal always begins at one.
    Raises JournalError, and removes nothing more, at a checkpoint whose number is not that of the transaction
    which ends at its seq. Cost: O(rows that go), however many stay.
    """
    transactions = events = 0
    with (
        database_errors("the journal cannot be pruned"),
        writing.connect() as connection,
        backend_of(writing.url).deleting_in_order(connection),
    ):
        for seq in reader.checkpoint_seqs():
            if seq > cut.seq:
                break
            with connection.begin():
                gone = _remove_before(connection, reader.info.id, seq, last=cut.number)
            transactions += gone[0]
            events += gone[1]
    return Pruned(transactions, events, cut.seq)


def _remove_before(connection: sa.Connection, journal_id: int, seq: int, *, last: int) -> tuple[int, int]:
    """Remove all up to the checkpoint at `seq`, the checkpoints before it included; children first.

    `last` is the last transaction that may go. Nothing where the checkpoint is gone: another prune, with
    files elsewhere, has been further.
    """
    number = connection.execute(
        sa.select(CheckpointRow.number).where(
            CheckpointRow.journal_id == journal_id, CheckpointRow.seq == seq
        )
    ).scalar_one_or_none()
    if number is None:
        return 0, 0
    left = connection.execute(
        sa.select(EventRow.txn)
        .where(EventRow.journal_id == journal_id, EventRow.seq > seq)
        .order_by(EventRow.seq)
        .limit(1)
    ).scalar_one_or_none()
    # On SQLite no foreign key keeps the transactions whose events stay.
    if number > last or (left is not None and left <= number):
        raise JournalError(
            f"the journal cannot be pruned: a checkpoint after transaction {number} stands at seq {seq}, "
            f"where that one does not end; verify the journal"
        )
    events = connection.execute(
        sa.delete(EventRow).where(EventRow.journal_id == journal_id, EventRow.seq <= seq)
    )
    transactions = connection.execute(
        sa.delete(TransactionRow).where(
            TransactionRow.journal_id == journal_id, TransactionRow.number <= number
        )
    )
    connection.execute(
        sa.delete(CheckpointRow).where(CheckpointRow.journal_id == journal_id, CheckpointRow.seq < seq)
    )
    return transactions.rowcount, events.rowcount


def _check_exported(reader: JournalReader, first: int, cut: StoredCheckpoint, exported: Path) -> None:
    files = ExportedJournal.open(exported, rest=reader, first=first)
    for broken in files.verify():
        raise NotExported(f"the exported files do not verify: {broken.sentence}")
    head: ChainHead = files.exported_head
    if files.facts.first_number > first or head.number < cut.number:
        raise NotExported(
            f"transactions {first} to {cut.number} would go; the files hold {files.facts.first_number} to "
            f"{head.number}"
        )
    link = _cells_at(files, cut.number)
    if link is None or link.hash != cut.chain_hash:
        raise NotExported(f"transaction {cut.number} has another hash in the files than the checkpoint names")
    for known, by in _names(reader, link, cut):
        if known != cut.hash:
            raise NotExported(
                f"the checkpoint at seq {cut.seq} is another one than {by}: the rest could not be read"
            )


def _cells_at(files: ExportedJournal, number: int) -> TransactionCells | None:
    """The transaction with this number, from the piece that holds it."""
    for piece in files.pieces:
        if piece.facts.first_number <= number <= piece.end.last_number:
            return next(piece.cells(number), None)
    return None


def _names(
    reader: JournalReader, link: TransactionCells, cut: StoredCheckpoint
) -> Iterator[tuple[bytes, str]]:
    """The hashes by which others know the checkpoint to cut at: all that know it directly."""
    if link.checkpoint is not None:
        yield link.checkpoint.hash, "the files hold"
    named = (
        sa.select(TransactionRow.number, TransactionRow.checkpoint_seq, TransactionRow.checkpoint_hash)
        .where(
            TransactionRow.journal_id == reader.info.id,
            TransactionRow.number > cut.number,
            TransactionRow.checkpoint_seq >= cut.seq,
        )
        .order_by(TransactionRow.number)
        .limit(1)
    )
    after = (
        sa.select(CheckpointRow.seq, CheckpointRow.previous_seq, CheckpointRow.previous_hash)
        .where(CheckpointRow.journal_id == reader.info.id, CheckpointRow.seq > cut.seq)
        .order_by(CheckpointRow.seq)
        .limit(1)
    )
    with database_errors("the journal cannot be pruned"), reader.engine.connect() as connection:
        by_transaction = connection.execute(named).first()
        by_checkpoint = connection.execute(after).first()
    if by_transaction is not None and by_transaction.checkpoint_seq == cut.seq:
        yield by_transaction.checkpoint_hash, f"transaction {by_transaction.number} names"
    if by_checkpoint is not None and by_checkpoint.previous_seq == cut.seq:
        yield by_checkpoint.previous_hash, f"the checkpoint at seq {by_checkpoint.seq} names"
