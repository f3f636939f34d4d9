"""`kvledger prune`: the beginning of a journal leaves the database, once it stands in files that verify."""

from pathlib import Path
from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, JsonOption
from kvledger.tools.cli.stored import JournalOption, StoreArgument
from kvledger.tools.cli.tables import show_document


def prune_command(
    database: StoreArgument,
    before: Annotated[
        int, typer.Option("--before", min=1, help="Seq: all up to the newest full state below it goes.")
    ],
    exported: Annotated[Path, typer.Option("--exported", help="Folder that holds what goes.")],
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Remove all up to the newest full state below a seq, once it is exported; anything else is refused.

    An SQLite file keeps its size and reuses the room; `VACUUM` gives it back.
    """
    from kvledger.journal import Journal
    from kvledger.journal.database import writing_engine
    from kvledger.journal.export import prune_rows
    from kvledger.tools.documents.pictures import PrunePicture

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        engine = writing_engine(store.url)
        try:
            pruned = prune_rows(engine, reader, before_seq=before, exported=exported)
        finally:
            engine.dispose()
    picture = PrunePicture(
        seq=pruned.checkpoint_seq,
        journal=reader.info.id,
        transactions=pruned.transactions,
        events=pruned.events,
    )
    show_document(picture, as_json=as_json)
    return OK
