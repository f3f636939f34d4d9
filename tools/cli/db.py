"""`kvledger db`: the tables of a store, on a server above all, where opening it does not make them."""

from typing import Annotated, Any

import typer

from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.stored import JournalOption, StoreArgument

db_app = typer.Typer(help="The tables of a store: bring them up to date, or look which there are.")


@db_app.command("upgrade")
def upgrade_command(database: StoreArgument, as_json: Annotated[bool, JsonOption] = False) -> int:
    """Make the tables, or bring them up to this version. Rows stay; a second time changes nothing.

    Exit status: 0 done, 2 could not run.
    """
    from kvledger.journal.database import store_name, store_url
    from kvledger.journal.migration import migrate, stored_revision

    url = store_url(database)
    migrate(url)
    revision = stored_revision(url)
    if as_json:
        print_json({"database": store_name(url), "revision": revision})
    else:
        typer.echo(f"{store_name(url)} has schema {revision}")
    return OK


@db_app.command("current")
def current_command(
    database: StoreArgument,
    last_seq: Annotated[
        int | None,
        typer.Option("--last-seq", min=0, help="The last seq a scheduler knew of before it died."),
    ] = None,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The schema of a store, where each of its journals ends on disk, and what a crash took of one.

    With --last-seq: which events of a journal (the newest, or --journal) were accepted and are not on disk.

    Exit status: 0 done, 2 could not run.
    """
    from kvledger.journal import Journal
    from kvledger.journal.database import store_name, store_url
    from kvledger.journal.migration import is_current, is_known, stored_revision
    from kvledger.journal.models import SCHEMA_REVISION
    from kvledger.journal.tail import Tail

    url = store_url(database)
    revision = stored_revision(url)
    ends: list[dict[str, Any]] = []
    tail: Tail | None = None
    if is_current(url, revision):
        with Journal.open(database, create=False) as store:
            if last_seq is not None:
                tail = store.reader(journal).tail(last_seq=last_seq)
            ends = [
                {"journal": info.id, "name": info.name, "durable_seq": head.seq, "number": head.number}
                for info, head in store.heads()
            ]
    if as_json:
        newest = {"revision": revision, "newest": SCHEMA_REVISION}
        missing = {} if tail is None else {"missing": tail.missing, "missing_events": tail.missing_events}
        print_json({"database": store_name(url), **newest, "journals": ends, **missing})
        return OK
    if revision is None:
        typer.echo(f"{store_name(url)} has no tables of kvledger yet")
    elif revision == SCHEMA_REVISION:
        typer.echo(f"{store_name(url)} has schema {revision}, the newest")
    elif is_current(url, revision):
        typer.echo(f"{store_name(url)} has schema {revision}, here the same as {SCHEMA_REVISION}, the newest")
    elif is_known(revision):
        typer.echo(f"{store_name(url)} has schema {revision}; this version brings {SCHEMA_REVISION}")
    else:
        what = f"of a newer version; this one knows up to {SCHEMA_REVISION}"
        typer.echo(f"{store_name(url)} has schema {revision}, {what}")
    for end in ends:
        typer.echo(f"{end['journal']:>4}  durable to seq {end['durable_seq']:>12,}  {end['name']}")
    if tail is not None and tail.missing is not None:
        first, last = tail.missing
        typer.echo(f"not on disk: events {first:,} to {last:,}, {tail.missing_events:,} that were accepted")
    elif tail is not None:
        typer.echo(f"nothing is missing up to seq {tail.last_seq:,}")
    return OK
