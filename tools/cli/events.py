"""`kvledger events` and `kvledger anomalies`: events found by what they are about."""

from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.stored import JournalOption, StoreArgument

LIMIT = 100
"""Events of one answer, unless more are asked for."""

LARGEST_LIMIT = 10_000
"""More than anybody reads; an export is for that."""

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=LARGEST_LIMIT, help="How many at most.")]
FromOption = Annotated[
    int | None,
    typer.Option("--from", min=1, help="First seq to look at; an answer with more to come names the next."),
]


def events_command(
    database: StoreArgument,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Of this kind; may be given more than once.")
    ] = None,
    node: Annotated[int | None, typer.Option("--node", min=0, help="About this node.")] = None,
    request: Annotated[str | None, typer.Option("--request", help="Of this request.")] = None,
    transaction: Annotated[
        int | None, typer.Option("--transaction", min=1, help="Of the transaction of this number.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Recorded at or after this time (ISO 8601, UTC).")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Recorded before this time.")] = None,
    first: FromOption = None,
    limit: LimitOption = LIMIT,
    reveal: Annotated[
        bool, typer.Option("--reveal-tokens", help="Show token ids and namespaces, if they were kept.")
    ] = False,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The events that meet every condition given, in order of seq."""
    from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
    from kvledger.journal import EventFilter, Journal
    from kvledger.tools.lookups import event_page, microseconds

    wanted = EventFilter(
        kinds=tuple(kind or ()),
        node=None if node is None else NodeId(node),
        request_id=None if request is None else RequestId(request),
        transaction=None if transaction is None else TxnId(transaction),
        since_us=None if since is None else microseconds(since),
        until_us=None if until is None else microseconds(until),
        first_seq=None if first is None else Seq(first),
    )
    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        page = event_page(reader, reader.find(wanted, limit=limit + 1), limit=limit, reveal=reveal)
    if as_json:
        print_json(page)
    else:
        for event in page.events:
            typer.echo(event.line())
        _say_next(page.next)
    return OK


def anomalies_command(
    database: StoreArgument,
    first: FromOption = None,
    limit: LimitOption = LIMIT,
    journal: JournalOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Refused and failed operations, calls and locks that a reset cut short, events that were not stored."""
    from kvledger.journal import Journal
    from kvledger.journal.history import anomalies
    from kvledger.tools.lookups import anomaly_page

    with Journal.open(database, create=False) as store:
        reader = store.reader(journal)
        page = anomaly_page(reader, anomalies(reader, first_seq=first), limit=limit)
    if as_json:
        print_json(page)
    else:
        for anomaly in page.anomalies:
            found = anomaly.event
            request = found.event.get("request_id")
            whose = "" if request is None else f" request {request}:"
            what = f"{found.op}: {found.event['kind']}{whose} {anomaly.sentence}"
            typer.echo(f"{found.seq:>9}  {found.time}  {what}")
        if not page.anomalies:
            typer.echo("no anomalies")
        _say_next(page.next)
    return OK


def _say_next(seq: int | None) -> None:
    if seq is not None:
        typer.echo(f"there are more: --from {seq}", err=True)
