"""`kvledger show`: the journals that are there, and the tree, a node, a slot, the requests or what eviction
would take at any seq of one.
"""

from enum import StrEnum
from typing import Annotated

import typer

from kvledger.tools.cli.extras import needs_api
from kvledger.tools.cli.output import OK, JsonOption, page, print_json
from kvledger.tools.cli.paging import RevealOption, say_nothing
from kvledger.tools.cli.stored import (
    AtOption,
    DatabaseArgument,
    ExportedOption,
    JournalOption,
    replay_source,
    replay_stored,
)
from kvledger.tools.cli.tables import show_document

CANDIDATES = 50
CANDIDATES_MAX = 1_000
"""Nodes of one answer: beyond the next few dozen the order has changed before they come up."""


class PoolChoice(StrEnum):
    """Which pool runs short."""

    FULL = "full"
    SWA = "swa"


show_app = typer.Typer(help="Look at a journal's tree, a node, a slot or a request at any seq.")


@show_app.command("journals")
def show_journals(
    database: DatabaseArgument,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The journals of a database or a folder, oldest first, with the seqs of each that are there."""
    from kvledger.tools.documents.replayed import picture_journals
    from kvledger.tools.reading.sources import open_sources

    with open_sources(database, exported=exported) as sources:
        picture = picture_journals(sources)
    if as_json:
        print_json(picture)
        return OK
    for journal in picture.journals:
        pruned = "" if journal.first_seq == 1 else f" (those before seq {journal.first_seq:,} were pruned)"
        typer.echo(
            f"{journal.journal:>4}  {journal.created}  {journal.last_seq:>12,} events  {journal.name}{pruned}"
        )
    say_nothing(picture.journals, "no journals")
    return OK


@show_app.command("tree")
def show_tree(
    database: DatabaseArgument,
    at: AtOption = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", help="Only this one, by name or by label. Default: all of them."),
    ] = None,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """All nodes with their token range, locks and origins; tombstones are marked."""
    from kvledger.tools.documents.namespaces import Namespaces
    from kvledger.tools.documents.replayed import picture_tree
    from kvledger.tools.documents.tree_page import tree_page
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        replayed = replay_source(opened.source, at)
        names = Namespaces(opened.source.info, reveal=reveal)
    picture = picture_tree(replayed, namespace, names=names)
    if as_json:
        print_json(picture)
    else:
        page().print(tree_page(picture))
    return OK


@show_app.command("node")
def show_node(
    database: DatabaseArgument,
    node: Annotated[int, typer.Argument(help="Id of the node.", min=0)],
    at: AtOption = None,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """One node: its place in the tree, pages, origins, and who locks it since when."""
    from kvledger.tools.documents.namespaces import Namespaces
    from kvledger.tools.documents.replayed import picture_node
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        names = Namespaces(source.info, reveal=reveal)
        picture = picture_node(replay_source(source, at), node, source=source, names=names)
    show_document(picture, as_json=as_json)
    return OK


@show_app.command("slot")
def show_slot(
    database: DatabaseArgument,
    slot: Annotated[int, typer.Argument(help="Number of the Full slot.", min=0)],
    at: AtOption = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Where a Full slot is, what stands beside it, and which requests can read it."""
    from kvledger.tools.documents.replayed import picture_slot

    show_document(
        picture_slot(replay_stored(database, journal, at, exported=exported), slot), as_json=as_json
    )
    return OK


@show_app.command("request")
def show_request(
    database: DatabaseArgument,
    request: Annotated[str, typer.Argument(help="The request's id.")],
    at: AtOption = None,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """An open request: its lease, what it has locked since when, and its row."""
    from kvledger.tools.documents.namespaces import Namespaces
    from kvledger.tools.documents.replayed import picture_request
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        names = Namespaces(source.info, reveal=reveal)
        picture = picture_request(replay_source(source, at), request, source=source, names=names)
    show_document(picture, as_json=as_json)
    return OK


@show_app.command("requests")
def show_requests(
    database: DatabaseArgument,
    at: AtOption = None,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The open requests: who runs, who waits, what each has locked since when and how long its row is."""
    from kvledger.tools.documents.namespaces import Namespaces
    from kvledger.tools.documents.replayed import picture_requests
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        names = Namespaces(source.info, reveal=reveal)
        picture = picture_requests(replay_source(source, at), source=source, names=names)
    if as_json:
        print_json(picture)
        return OK
    count = len(picture.requests)
    typer.echo(f"seq {picture.seq}: {count:,} open request{'' if count == 1 else 's'}")
    for request in picture.requests:
        what = "waits" if request.waiting else f"{request.row_tokens:,} tokens, {request.protected:,} locked"
        where = "" if request.node is None else f" from node {request.node} up"
        since = ""
        if request.locked_since_seq is not None:
            since = f" since seq {request.locked_since_seq}, {request.locked_since}"
        typer.echo(f"  {request.request} in namespace {request.namespace!r}: {what}{where}{since}")
    return OK


@show_app.command("eviction")
def show_eviction(
    database: DatabaseArgument,
    pool: Annotated[PoolChoice, typer.Option("--pool", help="The pool that runs short.")] = PoolChoice.FULL,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=CANDIDATES_MAX, help="How many nodes at most.")
    ] = CANDIDATES,
    at: AtOption = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The nodes that eviction would take if a pool ran short, the first one first. Needs the extra `api`."""
    with needs_api("show eviction"):
        from kvledger.tools.documents.answers import candidate_line, next_evicted

    replayed = replay_stored(database, journal, at, exported=exported)
    found = next_evicted(replayed, swa=pool is PoolChoice.SWA, limit=limit, at=at)
    if as_json:
        print_json(found)
        return OK
    name = "SWA" if pool is PoolChoice.SWA else "Full"
    typer.echo(f"seq {found.at.seq}, {name} pool: {found.sentence}")
    for one in found.candidates:
        typer.echo(f"  {candidate_line(one)}")
    return OK
