"""`kvledger tail`: the last events of a journal, and those that come."""

import time
from typing import Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK
from kvledger.tools.cli.paging import LARGEST_LIMIT, RevealOption, say_unseen
from kvledger.tools.cli.stored import DatabaseArgument, ExportedOption, JournalOption

PAUSE_SECONDS = 0.2
"""Between two looks at a journal that is followed: soon enough for a person, and no load."""


def tail_command(
    database: DatabaseArgument,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=LARGEST_LIMIT, help="How many of the last events.")
    ] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is recorded.")] = False,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help='One JSON object a line; before them {"unseen": ...} where some were pruned.'
        ),
    ] = False,
) -> int:
    """Print the last events of a journal, one a line."""
    from kvledger.journal.lookups.beginning import unseen
    from kvledger.tools.documents.lookups import event_document, unseen_document
    from kvledger.tools.reading.follow import first_of_last
    from kvledger.tools.reading.follow import follow as follow_journal
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        if follow and opened.store is None:
            raise InvalidArgument(f"{database} holds exported files, which do not grow: --follow a database")
        missing = unseen_document(unseen(source, first_seq=first_of_last(source, lines)))
        if not as_json:
            say_unseen(missing)
            if not source.head().seq:
                typer.echo("no events yet", err=True)
        elif missing is not None:
            typer.echo(f'{{"unseen":{missing.model_dump_json()}}}')
        for found in follow_journal(source, lines, pause=_pause if follow else None):
            event = event_document(found, journal=source.info, reveal=reveal)
            typer.echo(event.model_dump_json() if as_json else event.line())
    return OK


def _pause() -> None:
    time.sleep(PAUSE_SECONDS)
