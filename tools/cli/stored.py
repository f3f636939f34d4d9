"""Options that name a stored journal and a moment in it: shared by every command that reads one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.core.errors import InvalidArgument

if TYPE_CHECKING:
    from kvledger.journal import LookUpSource
    from kvledger.journal.replay import Replayed

DatabaseArgument = Annotated[
    str,
    typer.Argument(metavar="DATABASE", help="The database, by URL or path; or a folder of exported files."),
]
StoreArgument = Annotated[str, typer.Argument(metavar="DATABASE", help="The database, by URL or path.")]
JournalOption = Annotated[
    int | None,
    typer.Option("--journal", min=1, help="Number of the journal in it. Default: the latest."),
]
AtOption = Annotated[
    int | None,
    typer.Option("--at", min=1, help="Seq to look at: the end of the last transaction that ended by then."),
]


ExportedOption = Annotated[
    Path | None,
    typer.Option("--exported", help="Folder with what was exported of it and pruned from the database."),
]


def replay_stored(
    database: str, journal: int | None, at: int | None, *, exported: Path | None = None
) -> "Replayed":
    """The state of a stored journal at seq `at`, at its end for None, from the nearest checkpoint on.

    Raises `UnknownJournal` for a database or journal that is not there, and what `replay_source` raises.
    """
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        return replay_source(opened.source, at)


def replay_source(source: "LookUpSource", at: int | None) -> "Replayed":
    """The state of an open journal at seq `at`, at its end for None.

    Raises `InvalidArgument` where `at` lies before or behind what is stored, and what replay raises.
    """
    from kvledger.journal.lookups.beginning import sentence_of
    from kvledger.journal.replay import replay

    begins = source.beginning()
    if at is not None and at < begins.seq - 1:
        raise InvalidArgument(f"the state at seq {at} is not known: {sentence_of(begins)}")
    if at is not None and at > (last := source.head().seq):
        raise InvalidArgument(f"seq {at} is not there yet: the journal ends at {last}")
    return replay(source, upto=at)
