"""Exporting a journal: its rows, as far as they are wanted, into one new piece in a folder.

What stands in the folder already is not written again: the new piece goes on where the last one ends. Every
row is checked against the chain on its way out, so that a damaged journal is refused here and not discovered
when its rows are gone. The file appears under its name when it is complete and on the disk, and never takes
the place of another.
"""

import errno
import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa

from kvledger.core.errors import JournalError
from kvledger.journal.chain import ChainHead
from kvledger.journal.database import reading
from kvledger.journal.export.cells import stored_cells
from kvledger.journal.export.check import FileWalk
from kvledger.journal.export.facts import CheckpointFacts, JournalFacts, PieceEnd, PieceFacts
from kvledger.journal.export.jsonl import SUFFIX as JSONL_SUFFIX
from kvledger.journal.export.jsonl import JsonLinesWriter
from kvledger.journal.export.parquet import SUFFIX as PARQUET_SUFFIX
from kvledger.journal.export.parquet import ParquetWriter
from kvledger.journal.export.piece import PieceWriter, start_of
from kvledger.journal.export.sums import SUM_SUFFIX, write_sum
from kvledger.journal.models import JournalRow, TransactionRow
from kvledger.journal.reader import JournalReader

log = logging.getLogger("kvledger.journal")

ExportFormat = Literal["parquet", "jsonl"]
EXPORT_FORMATS: dict[ExportFormat, str] = {"parquet": PARQUET_SUFFIX, "jsonl": JSONL_SUFFIX}

PART_SUFFIX = ".part"
"""Ends the name of a file that is being written; such files are never read."""

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What file systems without hard links answer."""

EPOCH_LETTERS = 12
"""Letters of the epoch in a piece's name: enough to tell journals apart in one folder."""


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote. `path` is None where everything wanted stood in the folder already."""

    path: Path | None
    transactions: int
    events: int
    head: ChainHead


def export_rows(
    reader: JournalReader, folder: Path, *, start: ChainHead | None, form: ExportFormat, upto_seq: int
) -> Exported:
    """Write the transactions after `start` (None: from the first stored) that end at or before `upto_seq`.

    Raises JournalError where the rows do not verify, or the folder cannot be written. The store stays as it
    is. The caller holds the folder (hold.py). Cost: O(bytes), memory bounded by a batch.
    """
    facts = _facts(reader, start)
    walk = FileWalk(facts.journal, start_of(facts))
    name = f"{facts.journal.epoch[:EPOCH_LETTERS]}-{facts.first_number:012d}"
    part = folder / f"{name}.{os.getpid()}-{secrets.token_hex(4)}{PART_SUFFIX}"
    writer: PieceWriter | None = None
    count = 0
    checkpoints: list[tuple[int, int, str]] = []
    try:
        for batch in stored_cells(reader.engine, reader.info.id, first=facts.first_number, upto_seq=upto_seq):
            for cells in batch:
                for broken in walk.step(cells):
                    raise JournalError(
                        f"the journal is damaged and is not exported; keep its database as evidence: "
                        f"{broken.sentence}"
                    )
                if cells.checkpoint is not None:
                    checkpoints.append((cells.last_seq, cells.number, cells.checkpoint.digest))
            if writer is None:
                _clear_parts(folder, facts.journal.epoch)
                writer = ParquetWriter(part, facts) if form == "parquet" else JsonLinesWriter(part, facts)
            writer.write(batch)
            count += len(batch)
        head = ChainHead(facts.journal.epoch, *walk.reached)
        if writer is None:
            return Exported(None, 0, 0, head)
        writer.close(
            PieceEnd(
                transactions=count,
                events=walk.events,
                last_number=head.number,
                last_seq=head.seq,
                hash=head.hash,
                checkpoints=checkpoints,
            )
        )
        writer = None
        path = part.with_name(f"{name}-{head.number:012d}{EXPORT_FORMATS[form]}")
        _publish(part, path)
    except OSError as error:
        raise JournalError(f"the export cannot be written: {error}") from error
    finally:
        _discard(writer, part)
    return Exported(path, count, walk.events, head)


def _discard(writer: PieceWriter | None, part: Path) -> None:
    """Leave nothing of a piece that was not finished; what went wrong before is what is told."""
    try:
        if writer is not None:
            writer.abandon()
    except OSError as error:
        log.debug("an unfinished export was not closed: %s", error)
    try:
        part.unlink(missing_ok=True)
    except OSError as error:
        log.debug("an unfinished export was left behind: %s", error)


def _clear_parts(folder: Path, epoch: str) -> None:
    """Remove what killed exports of this journal left behind: nobody writes here while the folder is held."""
    for ending in (PART_SUFFIX, PART_SUFFIX + SUM_SUFFIX):
        for left in folder.glob(f"{epoch[:EPOCH_LETTERS]}-*{ending}"):
            left.unlink(missing_ok=True)


def _publish(part: Path, path: Path) -> None:
    """Put a finished file on the disk under its name, and the name too."""
    if os.path.lexists(path):
        raise JournalError(f"{path} stands there already and is not replaced: move it away")
    with part.open("rb") as file:
        os.fsync(file.fileno())
    write_sum(part, path)
    try:
        os.link(part, path)
    except FileExistsError as error:
        raise JournalError(f"{path} stands there already and is not replaced: move it away") from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        part.rename(path)  # nobody else writes here while the folder is held
    part.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _export_version(journal: JournalFacts) -> Any:
    """That of the journal: pieces of one journal are of one form, whichever version wrote them."""
    return journal.format_version


def _facts(reader: JournalReader, start: ChainHead | None) -> PieceFacts:
    with reading(reader.engine) as connection:
        row: Any = connection.execute(
            sa.select(JournalRow.__table__).where(JournalRow.id == reader.info.id)
        ).one()
        head = connection.execute(
            sa.select(TransactionRow.number, TransactionRow.first_seq, TransactionRow.previous_hash)
            .where(
                TransactionRow.journal_id == reader.info.id,
                TransactionRow.number > (0 if start is None else start.number),
            )
            .order_by(TransactionRow.number)
            .limit(1)
        ).first()
    journal = JournalFacts(
        id=row.id,
        epoch=row.epoch,
        name=row.name,
        config=row.config,
        token_policy=row.token_policy,
        format_version=row.format_version,
        created_us=row.created_us,
    )
    if start is None:
        first = 1 if head is None else head.number
        before = reader.info.genesis if head is None else head.previous_hash
        base = None if head is None or first == 1 else reader.checkpoint_before(head.first_seq - 1)
        if base is not None and base.number != first - 1:
            base = None
        first_seq = 1 if head is None else head.first_seq
    else:
        first, before, first_seq, base = start.number + 1, start.hash, start.seq + 1, None
        kept = reader.checkpoint_before(start.seq)
        base = kept if kept is not None and kept.number == start.number else None
    return PieceFacts(
        kvledger_export=_export_version(journal),
        journal=journal,
        first_number=first,
        first_seq=first_seq,
        previous_hash=before,
        base=None if base is None else CheckpointFacts.of(base),
    )
