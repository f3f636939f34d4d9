"""What differs between two seqs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from kvledger.api.answers.difference import difference_of
from kvledger.api.etags import immutable
from kvledger.api.routes.dependencies import KEPT, OF_A_JOURNAL, Opened
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.api.schemas.tree import DiffOut

router = APIRouter(prefix="/v1/journals/{journal}/diff", tags=["state"], responses=OF_A_JOURNAL | KEPT)


@router.get("")
def diff(
    request: Request,
    opened: Opened,
    before: Annotated[int, Query(alias="from", ge=0, le=SEQ_MAX)],
    after: Annotated[int, Query(alias="to", ge=0, le=SEQ_MAX)],
) -> DiffOut:
    """Nodes, requests, leases and pools at seq `to` that are not as they were at seq `from`."""
    timeline = opened.timeline
    places = timeline.place(before), timeline.place(after)
    if all(place.settled for place in places):
        # The query names `from`, which stands at one boundary for ever.
        immutable(request, opened, places[1].seq)
    with timeline.states_at(before, after) as (first, second):
        return difference_of(first, second)
