"""`kvledger tail`: the last events of a journal, and those that come."""

import time
from typing import Annotated

import typer

from kvledger.tools.cli.events import LARGEST_LIMIT
from kvledger.tools.cli.output import OK
from kvledger.tools.cli.stored import JournalOption, StoreArgument

PAUSE_SECONDS = 0.2
"""Between two looks at a journal that is followed: soon enough for a person, and no load."""


def tail_command(
    database: StoreArgument,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=LARGEST_LIMIT, help="How many of the last events.")
    ] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is recorded.")] = False,
    reveal: Annotated[
        bool, typer.Option("--reveal-tokens", help="Show token ids and namespaces, if they were kept.")
    ] = False,
    journal: JournalOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> int:
    """Print the last events of a journal, one a line."""
    from kvledger.journal import Journal
    from kvledger.tools.follow import follow as follow_journal
    from kvledger.tools.lookups import event_document

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        for found in follow_journal(reader, lines, pause=_pause if follow else None):
            event = event_document(found, policy=reader.info.token_policy, reveal=reveal)
            typer.echo(event.model_dump_json() if as_json else event.line())
    return OK


def _pause() -> None:
    time.sleep(PAUSE_SECONDS)
