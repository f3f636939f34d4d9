"""`kvledger history`: what befell a slot, a node or a request."""

from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.events import LIMIT, LimitOption
from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.stored import JournalOption, StoreArgument

if TYPE_CHECKING:
    from kvledger.tools.lookups import EventPage

history_app = typer.Typer(help="What befell a slot, a node or a request.")

LastOption = Annotated[int | None, typer.Option("--to", min=1, help="Last seq to look at.")]


@history_app.command("slot")
def history_slot(
    database: StoreArgument,
    slot: Annotated[int, typer.Argument(help="Number of the slot.", min=0)],
    swa: Annotated[bool, typer.Option("--swa", help="A slot of the SWA pool, not of the Full pool.")] = False,
    first: Annotated[int, typer.Option("--from", min=1, help="First seq to look at.")] = 1,
    last: LastOption = None,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Who held a slot's page, from which seq to which, and why it was given up."""
    from kvledger.journal import Journal
    from kvledger.journal.tenures import page_history
    from kvledger.tools.lookups import SlotHistory, tenure_document

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        if reader.info.config is None:
            raise InvalidArgument(f"journal {reader.info.id} holds no event yet")
        page = slot // int(reader.info.config["page_size"])
        tenures = page_history(reader, "swa" if swa else "full", page, first_seq=first, last_seq=last)
        history = SlotHistory(
            journal=reader.info.id,
            pool="swa" if swa else "full",
            slot=slot,
            page=page,
            tenures=[tenure_document(tenure) for tenure in tenures],
        )
    if as_json:
        print_json(history)
    else:
        for tenure in history.tenures:
            typer.echo(tenure.line(last_seq=last))
    return OK


@history_app.command("node")
def history_node(
    database: StoreArgument,
    node: Annotated[int, typer.Argument(help="Id of the node.", min=0)],
    limit: LimitOption = LIMIT,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The events about a node, from the one that made it on."""
    from kvledger.journal import Journal
    from kvledger.journal.history import node_history
    from kvledger.tools.lookups import event_page

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        events = event_page(reader, node_history(reader, node), limit=limit)
    return _print_events(events, as_json=as_json, nothing=f"no event stored here tells of a node {node}")


@history_app.command("request")
def history_request(
    database: StoreArgument,
    request: Annotated[str, typer.Argument(help="The request's id.")],
    limit: LimitOption = LIMIT,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The events of a request: all of its own transactions, and those of others that name it."""
    from kvledger.journal import Journal
    from kvledger.journal.history import request_history
    from kvledger.tools.lookups import event_page

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        events = event_page(reader, request_history(reader, request), limit=limit)
    return _print_events(events, as_json=as_json, nothing=f"no event names a request {request!r}")


def _print_events(events: "EventPage", *, as_json: bool, nothing: str) -> int:
    """A page of events, and whether it was cut; `nothing` is said, as an error, where there are none."""
    if not events.events:
        raise InvalidArgument(nothing)
    if as_json:
        print_json(events)
        return OK
    for event in events.events:
        typer.echo(event.line())
    if events.next is not None:
        typer.echo("there are more: give a higher --limit", err=True)
    return OK
