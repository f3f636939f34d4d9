"""What would be evicted next."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kvledger.api.answers.eviction import eviction_of
from kvledger.api.routes.dependencies import KEPT, OF_A_JOURNAL, AtSeq, Opened
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import PoolName
from kvledger.api.schemas.pools import EvictionOut

router = APIRouter(prefix="/v1/journals/{journal}/eviction", tags=["state"], responses=OF_A_JOURNAL | KEPT)

CANDIDATES = 50
CANDIDATES_MAX = 1_000
"""Candidates of one answer: beyond the next few dozen the order has changed before they come up."""


@router.get("/{pool}", response_model=EvictionOut)
def eviction(
    request: Request,
    opened: Opened,
    pool: PoolName,
    at: AtSeq = None,
    limit: Annotated[int, Query(ge=1, le=CANDIDATES_MAX)] = CANDIDATES,
) -> Response:
    """The nodes that eviction would take if one pool ran short, the first one first. Nothing is evicted."""
    return state_answer(request, opened, at, lambda standing: eviction_of(standing, pool, limit=limit))
