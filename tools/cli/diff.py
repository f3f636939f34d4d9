"""`kvledger diff`: what differs between two moments of a journal."""

from typing import Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.stored import DatabaseArgument, ExportedOption, JournalOption, replay_source


def diff_command(
    database: DatabaseArgument,
    before: Annotated[int, typer.Option("--from", min=1, help="The earlier seq.")],
    after: Annotated[int | None, typer.Option("--to", min=1, help="The later seq. Default: the end.")] = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Nodes, locks, requests and pools that are not as they were, at the last transaction boundaries."""
    from kvledger.journal.difference import difference
    from kvledger.tools.documents.lookups import DifferenceDocument
    from kvledger.tools.reading.sources import open_source

    if after is not None and after < before:
        raise InvalidArgument(f"--from {before} comes after --to {after}")
    with open_source(database, journal, exported=exported) as opened:
        then, now = replay_source(opened.source, before), replay_source(opened.source, after)
        document = DifferenceDocument(
            journal=opened.source.info.id,
            before=then.seq,
            after=now.seq,
            difference=difference(then.state, now.state),
        )
    if as_json:
        print_json(document)
    else:
        typer.echo(document.render(), nl=False)
    return OK
