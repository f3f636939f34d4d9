"""`kvledger transactions`: what was asked of the cache, in whose name, when, and how it ended."""

from enum import StrEnum
from typing import Annotated

import typer

from kvledger.tools.cli.events import SinceOption, UntilOption
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
    say_nothing,
    say_rest,
)
from kvledger.tools.cli.stored import DatabaseArgument, ExportedOption, JournalOption

STATUS = "How it ended. What was undone inside a committed one is told by `events --kind rolled_back`."


class Status(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"


def transactions_command(
    database: DatabaseArgument,
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Of this operation; may be given more than once.")
    ] = None,
    request: Annotated[str | None, typer.Option("--request", help="Of this request.")] = None,
    status: Annotated[Status | None, typer.Option("--status", help=STATUS)] = None,
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
    """The transactions that meet every condition given; --after and --before are numbers of transactions."""
    from kvledger.core.ids import RequestId, Seq
    from kvledger.journal import TransactionFilter
    from kvledger.journal.lookups.beginning import unseen
    from kvledger.tools.documents.lookups import microseconds, transaction_page
    from kvledger.tools.reading.sources import open_source

    wanted = TransactionFilter(
        ops=tuple(op or ()),
        request_id=None if request is None else RequestId(request),
        rolled_back=None if status is None else status is Status.ROLLED_BACK,
        since_us=None if since is None else microseconds(since),
        until_us=None if until is None else microseconds(until),
        first_seq=None if first is None else Seq(first),
        last_seq=None if last is None else Seq(last),
    )
    with open_source(database, journal, exported=exported) as opened:
        source = opened.source
        # Taken before it is asked what was pruned: what goes in between is told.
        found = tuple(
            source.find_transactions(
                wanted, limit=limit + 1, after=after, before=before, newest_first=newest_first
            )
        )
        page = transaction_page(
            source,
            found,
            limit=limit,
            unseen=unseen(
                source,
                first_seq=first,
                since_us=wanted.since_us,
                transaction=None if after is None else after + 1,
            ),
            newest_first=newest_first,
            reveal=reveal,
        )
    if as_json:
        print_json(page)
    else:
        for transaction in page.transactions:
            typer.echo(transaction.line())
        say_nothing(page.transactions, "no transactions match")
        say_rest(page, newest_first=newest_first)
    return OK
