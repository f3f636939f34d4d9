"""Transactions: what was asked of the cache, how it ended, how long it took, and the events of each."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request

from kvledger.api.etags import immutable
from kvledger.api.problems import pruned, unknown
from kvledger.api.routes.dependencies import (
    KEPT,
    LIMIT,
    OF_A_JOURNAL,
    CursorParam,
    LibraryDep,
    Limit,
    Opened,
    TellerDep,
)
from kvledger.api.routes.lists import OrderParam, Place, TimeParam, missing_before, page_of
from kvledger.api.schemas.common import SEQ_MAX, Page
from kvledger.api.schemas.events import EventOut
from kvledger.api.schemas.journals import TransactionOut
from kvledger.core.ids import NAME_CHARACTERS, RequestId, TxnId
from kvledger.journal import EventFilter, FoundTransaction, TransactionFilter
from kvledger.journal.lookups.questions import check_question

router = APIRouter(
    prefix="/v1/journals/{journal}/transactions", tags=["transactions"], responses=OF_A_JOURNAL
)

Name = Annotated[str | None, Query(max_length=NAME_CHARACTERS)]
Number = Annotated[int, Path(ge=1, le=SEQ_MAX, description="Number of the transaction.", examples=[1])]


@router.get("")
def transactions(
    library: LibraryDep,
    opened: Opened,
    teller: TellerDep,
    request: Name = None,
    op: Name = None,
    status: Literal["committed", "rolled_back"] | None = None,
    since_us: TimeParam = None,
    until_us: TimeParam = None,
    order: OrderParam = "asc",
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Page[TransactionOut]:
    """Transactions that meet every condition given, without their events."""
    place = Place.of("transactions", cursor, order)
    wanted = TransactionFilter(
        ops=() if op is None else (op,),
        request_id=None if request is None else RequestId(request),
        rolled_back=None if status is None else status == "rolled_back",
        since_us=since_us,
        until_us=until_us,
    )
    check_question(wanted, None)
    may_ask = op is None or library.hide.may_ask_for(op)
    found = opened.reader.find_transactions(
        wanted, limit=limit + 1, after=place.after, before=place.before, newest_first=place.newest_first
    )
    return page_of(
        place,
        found if may_ask else (),
        limit=limit,
        number=lambda one: one.number,
        tell=teller.transaction,
        not_here_before=lambda: missing_before(opened, since_us=since_us),
    )


@router.get("/{number}", responses=KEPT)
def transaction(request: Request, opened: Opened, teller: TellerDep, number: Number) -> TransactionOut:
    """One transaction."""
    found = _transaction(opened, number)
    immutable(request, opened, found.first_seq)
    return teller.transaction(found)


@router.get("/{number}/events")
def transaction_events(
    opened: Opened, teller: TellerDep, number: Number, cursor: CursorParam = None, limit: Limit = LIMIT
) -> Page[EventOut]:
    """The events of one transaction, in order, undone ones included."""
    place = Place.of("transaction-events", cursor, "asc")
    _transaction(opened, number)
    found = opened.reader.find(EventFilter(transaction=TxnId(number)), limit=limit + 1, after_seq=place.after)
    return page_of(
        place,
        found,
        limit=limit,
        number=lambda one: one.seq,
        tell=teller.event,
        not_here_before=lambda: missing_before(opened, transaction=number),
    )


def _transaction(opened: Opened, number: int) -> FoundTransaction:
    """The transaction of this number. Raises a refusal: 404 where there is none yet, 410 where it is gone."""
    found = next(opened.reader.find_transactions(after=number - 1, limit=1), None)
    if found is not None and found.number == number:
        return found
    if number < opened.reader.beginning().transaction:
        raise pruned(
            f"transaction {number} was pruned: what is stored begins with transaction "
            f"{opened.reader.beginning().transaction}; look in the exported files"
        )
    raise unknown(
        "transaction",
        detail=f"transaction {number} is not there, the journal ends with {opened.reader.head().number}",
    )
