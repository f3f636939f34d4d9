"""Leases: the locks that are held, by whom and since when."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kvledger.api.answers.leases import leases_of
from kvledger.api.answers.tree import node_named
from kvledger.api.cursors import decode_cursor, encode_cursor
from kvledger.api.projection import Standing
from kvledger.api.routes.dependencies import KEPT, LIMIT, OF_A_JOURNAL, AtSeq, CursorParam, Limit, Opened
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.api.schemas.requests import LeasesOut
from kvledger.core.ids import NAME_CHARACTERS

router = APIRouter(prefix="/v1/journals/{journal}/leases", tags=["state"], responses=OF_A_JOURNAL | KEPT)

CURSOR = "leases"


@router.get("", response_model=LeasesOut)
def leases(
    request: Request,
    opened: Opened,
    at: AtSeq = None,
    node: Annotated[
        int | None, Query(ge=0, le=SEQ_MAX, description="Whose locked path has this node.")
    ] = None,
    of_request: Annotated[
        str | None, Query(alias="request", max_length=NAME_CHARACTERS, description="Of this request.")
    ] = None,
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Response:
    """The leases that are held, oldest first."""
    after = None if cursor is None else decode_cursor(CURSOR, cursor, types=(int,))[0]

    def tell(standing: Standing) -> LeasesOut:
        answer, last = leases_of(
            standing,
            births=opened.timeline.births,
            node=None if node is None else node_named(standing.state, node),
            request=of_request,
            after=after,
            limit=limit,
        )
        return answer if last is None else answer.model_copy(update={"next": encode_cursor(CURSOR, last)})

    return state_answer(request, opened, at, tell)
