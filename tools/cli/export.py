"""`kvledger export`: a journal as files that can be kept, read and audited without the database."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, JsonOption
from kvledger.tools.cli.stored import JournalOption, StoreArgument
from kvledger.tools.cli.tables import show_document


class FormatChoice(StrEnum):
    """What kind of file is written."""

    PARQUET = "parquet"
    JSONL = "jsonl"


def export_command(
    database: StoreArgument,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the file; what stands there is not repeated.")
    ],
    form: Annotated[FormatChoice, typer.Option("--format", help="Kind of file.")] = FormatChoice.PARQUET,
    upto: Annotated[
        int | None,
        typer.Option("--upto", min=1, help="Seq: the last transaction that ends at or before it."),
    ] = None,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Write what a folder does not hold yet of a journal, with every stored cell and the hash chain."""
    from kvledger.journal import Journal
    from kvledger.journal.export import export_journal
    from kvledger.tools.documents.pictures import ExportPicture

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        exported = export_journal(reader, out, form=form.value, upto_seq=upto)
    picture = ExportPicture(
        seq=exported.head.seq,
        journal=reader.info.id,
        file=None if exported.path is None else str(exported.path),
        transactions=exported.transactions,
        events=exported.events,
        hash=exported.head.hash.hex(),
    )
    show_document(picture, as_json=as_json)
    return OK
