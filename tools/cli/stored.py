"""Options that name a stored journal and a moment in it: shared by every command that reads one."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvledger.journal.replay import Replayed

DatabaseArgument = Annotated[str, typer.Argument(metavar="DATABASE", help="The database, by URL or path.")]
JournalOption = Annotated[
    int | None,
    typer.Option("--journal", min=1, help="Number of the journal in it. Default: the latest."),
]
AtOption = Annotated[
    int | None,
    typer.Option("--at", min=1, help="Seq to look at: the last transaction boundary at or before it."),
]


def replay_stored(database: str, journal: int | None, at: int | None) -> "Replayed":
    """The state of a stored journal at seq `at`, at its end for None.

    Raises `UnknownJournal` for a database or journal that is not there, and what replay raises.
    """
    from kvledger.journal import Journal
    from kvledger.journal.replay import replay

    with Journal.open(database, create=False) as store:
        return replay(store.reader(journal).transactions(), upto=at)
