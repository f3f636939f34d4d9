"""`kvledger history`: what befell a slot, a node or a request."""

from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.paging import (
    LIMIT,
    AfterOption,
    BeforeOption,
    LimitOption,
    NewestOption,
    RevealOption,
    ToOption,
    from_or_after,
    say_nothing,
    say_rest,
)
from kvledger.tools.cli.stored import DatabaseArgument, ExportedOption, JournalOption

if TYPE_CHECKING:
    from kvledger.journal.lookups.tenures import Side
    from kvledger.tools.documents.lookups import EventPage

history_app = typer.Typer(help="What befell a slot, a node or a request.")


@history_app.command("slot")
def history_slot(
    database: DatabaseArgument,
    slot: Annotated[int, typer.Argument(help="Number of the slot.", min=0)],
    swa: Annotated[bool, typer.Option("--swa", help="A slot of the SWA pool, not of the Full pool.")] = False,
    first: Annotated[int, typer.Option("--from", min=1, help="First seq to look at.")] = 1,
    last: ToOption = None,
    after: AfterOption = None,
    limit: LimitOption = LIMIT,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Who held a slot, from which seq to which, and why it was given up; `token` is the one in the slot."""
    from kvledger.journal.lookups.beginning import unseen
    from kvledger.journal.lookups.tenures import page_history
    from kvledger.tools.documents.slot_history import slot_history
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        if source.info.config is None:
            raise InvalidArgument(f"journal {source.info.id} holds no event yet")
        page_size = int(source.info.config["page_size"])
        side: Side = "swa" if swa else "full"
        _check_slot(slot, page_size, int(source.info.config[f"{side}_tokens"]), swa=swa)
        page = slot // page_size
        # Taken before it is asked what was pruned: what goes in between is told.
        tenures = tuple(
            page_history(source, side, page, first_seq=first, last_seq=last, limit=limit + 1, after_seq=after)
        )
        history = slot_history(
            source,
            tenures,
            side=side,
            slot=slot,
            page_size=page_size,
            limit=limit,
            unseen=unseen(source, first_seq=from_or_after(first, after)),
        )
    if as_json:
        print_json(history)
    else:
        for tenure in history.tenures:
            typer.echo(tenure.line(last_seq=last))
        say_nothing(history.tenures, f"no event stored here tells of a holder of slot {slot}")
        say_rest(history)
    return OK


@history_app.command("node")
def history_node(
    database: DatabaseArgument,
    node: Annotated[int, typer.Argument(help="Id of the node.", min=0)],
    through_splits: Annotated[
        bool,
        typer.Option(
            "--through-splits/--own", help="With what befell the nodes it was cut from, or its own alone."
        ),
    ] = True,
    after: AfterOption = None,
    limit: LimitOption = LIMIT,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The events about a node and the nodes it was cut from, from the one that made its pages a node's on."""
    from kvledger.journal.lookups.history import node_history, node_unseen
    from kvledger.tools.documents.lookups import event_page
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        # Taken before it is asked what was pruned: what goes in between is told.
        found = tuple(
            node_history(source, node, through_splits=through_splits, limit=limit + 1, after_seq=after)
        )
        missing = node_unseen(source, node, through_splits=through_splits, after_seq=after)
        page = event_page(source, found, limit=limit, unseen=missing, reveal=reveal)
    return _print_events(page, as_json=as_json, nothing=f"no event stored here tells of a node {node}")


@history_app.command("request")
def history_request(
    database: DatabaseArgument,
    request: Annotated[str, typer.Argument(help="The request's id.")],
    after: AfterOption = None,
    before: BeforeOption = None,
    newest_first: NewestOption = False,
    limit: LimitOption = LIMIT,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The events of a request: all of its own transactions, and those of others that name it."""
    from kvledger.journal.lookups.beginning import unseen
    from kvledger.journal.lookups.history import request_history
    from kvledger.tools.documents.lookups import event_page
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        # Taken before it is asked what was pruned: what goes in between is told.
        found = tuple(
            request_history(
                source,
                request,
                limit=limit + 1,
                after_seq=after,
                before_seq=before,
                newest_first=newest_first,
            )
        )
        missing = unseen(source, first_seq=from_or_after(None, after))
        page = event_page(
            source, found, limit=limit, unseen=missing, newest_first=newest_first, reveal=reveal
        )
    nothing = f"no event names a request {request!r}"
    return _print_events(page, as_json=as_json, newest_first=newest_first, nothing=nothing)


def _check_slot(slot: int, page_size: int, tokens: int, *, swa: bool) -> None:
    """Raise InvalidArgument for a slot that no token ever stands in."""
    if not page_size <= slot < page_size + tokens:
        raise InvalidArgument(
            f"slot {slot} is not in the {'SWA' if swa else 'Full'} pool, whose slots are {page_size} to "
            f"{page_size + tokens - 1}"
        )


def _print_events(page: "EventPage", *, as_json: bool, nothing: str, newest_first: bool = False) -> int:
    """A page of events and what there is beyond it; `nothing` is said, as an error, where there are none."""
    if not page.events:
        raise InvalidArgument(nothing if page.unseen is None else f"{nothing}; {page.unseen.sentence}")
    if as_json:
        print_json(page)
        return OK
    for event in page.events:
        typer.echo(event.line())
    say_rest(page, newest_first=newest_first)
    return OK
