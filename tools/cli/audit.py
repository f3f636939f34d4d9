"""`kvledger audit`: was locked KV ever replaced, freed or handed on?"""

from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, VIOLATION, JsonOption, print_json, progress_bar
from kvledger.tools.cli.stored import DatabaseArgument, JournalOption


def audit_command(
    database: DatabaseArgument,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Check every invariant at every event of a journal, without the cache's code.

    Exit status: 0 pass, 1 violation, 2 could not run.
    """
    from kvledger.journal import Journal
    from kvledger.tools.judge import judge

    with progress_bar() as progress, Journal.open(database, create=False) as store:
        verdict = judge(store, journal, progress=progress)
    if as_json:
        print_json(verdict)
    else:
        typer.echo(verdict.render(), nl=False)
    return OK if verdict.verdict == "pass" else VIOLATION
