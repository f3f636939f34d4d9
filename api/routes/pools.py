"""Both pools: their levels, and their pages by owner."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kvledger.api.answers.pools import map_of, pools_of
from kvledger.api.routes.dependencies import KEPT, OF_A_JOURNAL, AtSeq, Opened
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import SEQ_MAX, PoolName
from kvledger.api.schemas.pools import PoolMap, PoolsOut

router = APIRouter(prefix="/v1/journals/{journal}/pools", tags=["state"], responses=OF_A_JOURNAL | KEPT)

MAP_PAGES_MAX = 1_000_000
"""Pages of one answer: a pool of a million pages is looked through in some milliseconds."""

RUNS = 2_000
RUNS_MAX = 5_000
"""Runs of one answer: as many as a screen has room for, and half a megabyte at most."""


@router.get("", response_model=PoolsOut)
def pools(request: Request, opened: Opened, at: AtSeq = None) -> Response:
    """How full both pools are, in tokens, and what hangs on them."""
    return state_answer(request, opened, at, pools_of)


@router.get("/{pool}/map", response_model=PoolMap)
def pool_map(
    request: Request,
    opened: Opened,
    pool: PoolName,
    at: AtSeq = None,
    first_page: Annotated[int, Query(ge=1, le=SEQ_MAX)] = 1,
    pages: Annotated[int, Query(ge=1, le=MAP_PAGES_MAX)] = MAP_PAGES_MAX,
    limit: Annotated[int, Query(ge=1, le=RUNS_MAX, description="Runs at most.")] = RUNS,
) -> Response:
    """Pages of one pool by owner. Where the runs end before the pages asked for, go on behind them."""
    return state_answer(
        request,
        opened,
        at,
        lambda standing: map_of(standing, pool, first_page=first_page, pages=pages, limit=limit),
    )
