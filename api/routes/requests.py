"""Open requests, and what happened to a request. Ids may hold slashes: the history names its in the query."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from kvledger.api.answers.requests import request_of, requests_of
from kvledger.api.cursors import decode_cursor, encode_cursor
from kvledger.api.projection import Standing
from kvledger.api.routes.absent import AbsentParam, or_absent
from kvledger.api.routes.dependencies import (
    KEPT,
    LIMIT,
    OF_A_JOURNAL,
    AtSeq,
    CursorParam,
    LibraryDep,
    Limit,
    Opened,
    TellerDep,
)
from kvledger.api.routes.lists import OrderParam, missing_before, page_of
from kvledger.api.routes.lists import Place as ListPlace
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import AbsentOut, Page
from kvledger.api.schemas.events import EventOut
from kvledger.api.schemas.requests import RequestDetail, RequestsOut
from kvledger.core.ids import NAME_CHARACTERS
from kvledger.journal.lookups.history import request_history

router = APIRouter(prefix="/v1/journals/{journal}", tags=["state"], responses=OF_A_JOURNAL)

CURSOR = "requests"


@router.get("/requests", response_model=RequestsOut, responses=KEPT)
def requests(
    request: Request,
    opened: Opened,
    library: LibraryDep,
    at: AtSeq = None,
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Response:
    """The open requests, by id."""
    after = None if cursor is None else decode_cursor(CURSOR, cursor, types=(str,))[0]

    def tell(standing: Standing) -> RequestsOut:
        answer, last = requests_of(
            standing, births=opened.timeline.births, hide=library.hide, after=after, limit=limit
        )
        return answer if last is None else answer.model_copy(update={"next": encode_cursor(CURSOR, last)})

    return state_answer(request, opened, at, tell)


@router.get("/requests/{request_id:path}", response_model=RequestDetail | AbsentOut, responses=KEPT)
def one_request(
    request: Request,
    opened: Opened,
    library: LibraryDep,
    request_id: Annotated[str, Path(max_length=NAME_CHARACTERS)],
    at: AtSeq = None,
    absent: AbsentParam = "refuse",
) -> Response:
    """One open request and its row."""

    def tell(standing: Standing) -> RequestDetail:
        return request_of(standing, request_id, births=opened.timeline.births, hide=library.hide)

    return state_answer(request, opened, at, or_absent(tell, absent=absent))


@router.get("/request-history", tags=["events"])
def history(
    opened: Opened,
    teller: TellerDep,
    request: Annotated[str, Query(max_length=NAME_CHARACTERS, description="The request's id.")],
    order: OrderParam = "asc",
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Page[EventOut]:
    """The events that name a request, and all events of its own transactions."""
    place = ListPlace.of("request-history", cursor, order)
    found = request_history(
        opened.reader,
        request,
        limit=limit + 1,
        after_seq=place.after,
        before_seq=place.before,
        newest_first=place.newest_first,
    )
    return page_of(
        place,
        found,
        limit=limit,
        number=lambda one: one.seq,
        tell=teller.event,
        not_here_before=lambda: missing_before(opened),
    )
