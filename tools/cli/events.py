"""`kvledger events` and `kvledger anomalies`: events found by what they are about."""

from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.paging import (
    LIMIT,
    AfterOption,
    BeforeOption,
    FromOption,
    LimitOption,
    NewestOption,
    RevealOption,
    ToOption,
    from_or_after,
    say_nothing,
    say_rest,
)
from kvledger.tools.cli.stored import DatabaseArgument, ExportedOption, JournalOption

SinceOption = Annotated[
    str | None, typer.Option("--since", help="Recorded at or after this time (ISO 8601, UTC).")
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Recorded before this time.")]


def events_command(
    database: DatabaseArgument,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Of this kind; may be given more than once.")
    ] = None,
    node: Annotated[
        list[int] | None,
        typer.Option("--node", min=0, help="About this node; may be given more than once."),
    ] = None,
    request: Annotated[str | None, typer.Option("--request", help="Of this request.")] = None,
    transaction: Annotated[
        int | None, typer.Option("--transaction", min=1, help="Of the transaction of this number.")
    ] = None,
    undone: Annotated[
        bool | None,
        typer.Option("--undone/--kept", help="Only what was rolled back, or only what was not."),
    ] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    first: FromOption = None,
    last: ToOption = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    newest_first: NewestOption = False,
    limit: LimitOption = LIMIT,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """The events that meet every condition given, in order of seq."""
    from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
    from kvledger.journal import EventFilter
    from kvledger.journal.lookups.beginning import unseen
    from kvledger.tools.documents.lookups import event_page, microseconds
    from kvledger.tools.reading.sources import open_source

    wanted = EventFilter(
        kinds=tuple(kind or ()),
        nodes=tuple(map(NodeId, node or ())),
        request_id=None if request is None else RequestId(request),
        transaction=None if transaction is None else TxnId(transaction),
        undone=undone,
        since_us=None if since is None else microseconds(since),
        until_us=None if until is None else microseconds(until),
        first_seq=None if first is None else Seq(first),
        last_seq=None if last is None else Seq(last),
    )
    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        # Taken before it is asked what was pruned: what goes in between is told.
        found = tuple(
            source.find(
                wanted, limit=limit + 1, after_seq=after, before_seq=before, newest_first=newest_first
            )
        )
        page = event_page(
            source,
            found,
            limit=limit,
            unseen=unseen(
                source,
                first_seq=from_or_after(first, after),
                since_us=wanted.since_us,
                transaction=transaction,
            ),
            newest_first=newest_first,
            reveal=reveal,
        )
    if as_json:
        print_json(page)
    else:
        for event in page.events:
            typer.echo(event.line())
        say_nothing(page.events, "no events match")
        say_rest(page, newest_first=newest_first)
    return OK


def anomalies_command(
    database: DatabaseArgument,
    first: FromOption = None,
    last: ToOption = None,
    after: AfterOption = None,
    before: BeforeOption = None,
    newest_first: NewestOption = False,
    limit: LimitOption = LIMIT,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Refused and failed operations, calls and locks that a reset cut short, events that were not stored.

    What a cache refuses by its policy (`run --locked-recovery skip`) is none; `events --kind rolled_back`
    has it.
    """
    from kvledger.journal.lookups.beginning import unseen
    from kvledger.journal.lookups.history import anomalies
    from kvledger.tools.documents.lookups import anomaly_page
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        # Taken before it is asked what was pruned: what goes in between is told.
        found = tuple(
            anomalies(
                source,
                first_seq=first,
                last_seq=last,
                limit=limit + 1,
                after_seq=after,
                before_seq=before,
                newest_first=newest_first,
            )
        )
        page = anomaly_page(
            source,
            found,
            limit=limit,
            unseen=unseen(source, first_seq=from_or_after(first, after)),
            newest_first=newest_first,
            reveal=reveal,
        )
    if as_json:
        print_json(page)
        return OK
    for anomaly in page.anomalies:
        one = anomaly.event
        request = one.event.get("request_id")
        whose = "" if request is None else f" request {request}:"
        what = f"{one.op}: {one.event['kind']}{whose} {anomaly.sentence}"
        typer.echo(f"{one.seq:>9}  {one.time}  {what}")
    say_nothing(page.anomalies, "no anomalies")
    say_rest(page, newest_first=newest_first)
    return OK
