"""`kvledger diff`: what differs between two moments of a journal."""

from typing import Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.stored import DatabaseArgument, JournalOption, replay_stored


def diff_command(
    database: DatabaseArgument,
    before: Annotated[int, typer.Option("--from", min=1, help="The earlier seq.")],
    after: Annotated[int | None, typer.Option("--to", min=1, help="The later seq. Default: the end.")] = None,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Nodes, locks, requests and pools that are not as they were, at the last transaction boundaries."""
    from kvledger.journal import Journal
    from kvledger.journal.difference import difference
    from kvledger.tools.lookups import DifferenceDocument

    if after is not None and after < before:
        raise InvalidArgument(f"--from {before} comes after --to {after}")
    with Journal.open(database, create=False) as store:
        number = store.reader(journal).info.id
    then, now = replay_stored(database, number, before), replay_stored(database, number, after)
    document = DifferenceDocument(
        journal=number, before=then.seq, after=now.seq, difference=difference(then.state, now.state)
    )
    if as_json:
        print_json(document)
    else:
        typer.echo(document.render(), nl=False)
    return OK
