"""What is exported next: the part of a journal that its folder does not hold yet."""

from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument, JournalError, JournalFormatError
from kvledger.journal.arguments import check_path
from kvledger.journal.export.folder import ExportedJournal, pieces_in
from kvledger.journal.export.hold import WAIT_SECONDS, WRITER_WAIT_SECONDS, folder_held
from kvledger.journal.export.prune import prune_rows
from kvledger.journal.export.write import EXPORT_FORMATS, Exported, ExportFormat, export_rows
from kvledger.journal.reader import JournalReader


def export_journal(
    reader: JournalReader,
    folder: str | Path,
    *,
    form: ExportFormat = "parquet",
    upto_seq: int | None = None,
    wait_s: float = WAIT_SECONDS,
) -> Exported:
    """Write what `folder` does not hold yet of a journal into one new piece there.

    `upto_seq`: as far as the last transaction that ends at or before it; None: to the end. Raises
    InvalidArgument for another form, JournalFormatError where the folder's pieces do not join the database,
    JournalError where rows do not verify or the folder cannot be written, FolderBusy when another export or
    prune is at work there for longer than `wait_s` seconds. Cost: O(bytes), memory bounded by a batch.
    """
    if form not in EXPORT_FORMATS:
        raise InvalidArgument(f"an export is one of {', '.join(EXPORT_FORMATS)}, not {form!r}")
    if upto_seq is not None and upto_seq < 1:
        raise InvalidArgument("seqs count from 1 on")
    given = check_path(folder, "the folder of an export")
    if given.exists() and not given.is_dir():
        raise InvalidArgument(f"{given} is no folder")
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JournalError(f"the export cannot be written: {error}") from error
    with folder_held(given, wait_s=wait_s):
        return _export_rest(reader, given, form=form, upto_seq=upto_seq)


def _export_rest(reader: JournalReader, given: Path, *, form: ExportFormat, upto_seq: int | None) -> Exported:
    stored = next(reader.transactions(), None)
    # Pieces that end before what is stored are of no concern here, however many there are by now.
    first = 1 if stored is None else int(stored.number)
    pieces = pieces_in(given, epoch=reader.info.epoch, first=first)
    start = ExportedJournal(pieces, rest=reader).exported_head if pieces else None
    head = reader.head()
    if start is not None and start.number > head.number:
        raise JournalFormatError(
            f"the folder holds transactions up to {start.number}, the database ends with {head.number}"
        )
    upto = head.seq if upto_seq is None else min(upto_seq, head.seq)
    return export_rows(reader, given, start=start, form=form, upto_seq=upto)


@dataclass(frozen=True, slots=True)
class Outlet:
    """Moves the beginning of a journal from its store to Parquet files in `folder`, read back before it
    goes."""

    writing: sa.Engine
    reader: JournalReader
    folder: Path

    def __call__(self, seq: int) -> None:
        """Export and prune everything up to the checkpoint at `seq`. JournalError where that cannot be."""
        try:
            export_journal(self.reader, self.folder, upto_seq=seq, wait_s=WRITER_WAIT_SECONDS)
            prune_rows(
                self.writing,
                self.reader,
                before_seq=seq + 1,
                exported=self.folder,
                wait_s=WRITER_WAIT_SECONDS,
            )
        except InvalidArgument as error:
            # The settings were sound when recording began; what is wrong now is the folder or the store.
            raise JournalError(f"older events cannot leave the store: {error}") from error
