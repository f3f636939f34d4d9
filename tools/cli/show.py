"""`kvledger show`: the journals that are there, and the tree, a node, a slot or the requests at any seq of
one.
"""

from typing import Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, JsonOption, page, print_json
from kvledger.tools.cli.stored import AtOption, DatabaseArgument, ExportedOption, JournalOption, replay_stored
from kvledger.tools.cli.tables import show_document

show_app = typer.Typer(help="Look at a journal's tree, a node, a slot or a request at any seq.")


@show_app.command("journals")
def show_journals(
    database: DatabaseArgument,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The journals of a database or a folder, oldest first, with the seqs of each that are there."""
    from kvledger.tools.picture import picture_journals
    from kvledger.tools.sources import open_sources

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
    return OK


@show_app.command("tree")
def show_tree(
    database: DatabaseArgument,
    at: AtOption = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", help="Only this one. Default: all of them.")
    ] = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """All nodes with their token range, locks and origins; tombstones are marked."""
    from kvledger.tools.picture import picture_tree
    from kvledger.tools.tree_page import tree_page

    replayed = replay_stored(database, journal, at, exported=exported)
    picture = picture_tree(replayed, namespace)
    if namespace is not None and not picture.nodes:
        there = sorted({node.namespace for node in picture_tree(replayed, None).nodes})
        known = ", ".join(map(repr, there)) or "none"
        raise InvalidArgument(
            f"there is no node of namespace {namespace!r} at seq {picture.seq}; namespaces there: {known}"
        )
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
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """One node: its place in the tree, pages, locks and origins."""
    from kvledger.tools.picture import picture_node

    show_document(
        picture_node(replay_stored(database, journal, at, exported=exported), node), as_json=as_json
    )
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
    from kvledger.tools.picture import picture_slot

    show_document(
        picture_slot(replay_stored(database, journal, at, exported=exported), slot), as_json=as_json
    )
    return OK


@show_app.command("request")
def show_request(
    database: DatabaseArgument,
    request: Annotated[str, typer.Argument(help="The request's id.")],
    at: AtOption = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """An open request: its lease, what it has locked and its row."""
    from kvledger.tools.picture import picture_request

    show_document(
        picture_request(replay_stored(database, journal, at, exported=exported), request), as_json=as_json
    )
    return OK


@show_app.command("requests")
def show_requests(
    database: DatabaseArgument,
    at: AtOption = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The open requests: who runs, who waits, what each has locked and how long its row is."""
    from kvledger.tools.picture import picture_requests

    picture = picture_requests(replay_stored(database, journal, at, exported=exported))
    if as_json:
        print_json(picture)
        return OK
    count = len(picture.requests)
    typer.echo(f"seq {picture.seq}: {count:,} open request{'' if count == 1 else 's'}")
    for request in picture.requests:
        what = "waits" if request.waiting else f"{request.row_tokens:,} tokens, {request.protected:,} locked"
        where = "" if request.node is None else f" from node {request.node} up"
        typer.echo(f"  {request.request} in namespace {request.namespace!r}: {what}{where}")
    return OK
