"""Nodes: one at any seq, and what happened to it."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from kvledger.api.answers.node import node_of
from kvledger.api.projection import Standing
from kvledger.api.routes.absent import AbsentParam, or_absent
from kvledger.api.routes.dependencies import (
    KEPT,
    LIMIT,
    OF_A_JOURNAL,
    AtSeq,
    CursorParam,
    Limit,
    Opened,
    TellerDep,
)
from kvledger.api.routes.lists import Place, missing_before, page_of
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import SEQ_MAX, AbsentOut, Page
from kvledger.api.schemas.events import EventOut
from kvledger.api.schemas.tree import NodeOut
from kvledger.journal.lookups.history import node_history

router = APIRouter(prefix="/v1/journals/{journal}/nodes", tags=["state"], responses=OF_A_JOURNAL)

NodeNumber = Annotated[int, Path(ge=0, le=SEQ_MAX, examples=[12])]


@router.get("/{node}", response_model=NodeOut | AbsentOut, responses=KEPT)
def node(
    request: Request,
    opened: Opened,
    teller: TellerDep,
    node: NodeNumber,
    at: AtSeq = None,
    absent: AbsentParam = "refuse",
) -> Response:
    """One node: its slots, its locks and who holds them since when, and where its pages came from."""

    def tell(standing: Standing) -> NodeOut:
        return node_of(standing, node, reader=opened.reader, births=opened.timeline.births, teller=teller)

    return state_answer(request, opened, at, or_absent(tell, absent=absent))


@router.get("/{node}/history")
def history(
    opened: Opened, teller: TellerDep, node: NodeNumber, cursor: CursorParam = None, limit: Limit = LIMIT
) -> Page[EventOut]:
    """The events about one node, oldest first, with those of the nodes that it was cut from."""
    place = Place.of("node-history", cursor, "asc")
    return page_of(
        place,
        node_history(opened.reader, node, limit=limit + 1, after_seq=place.after),
        limit=limit,
        number=lambda found: found.seq,
        tell=teller.event,
        not_here_before=lambda: missing_before(opened),
    )
