"""The tree: the nodes in the rows that somebody looks at."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kvledger.api.answers.tree import Viewport, tree_of
from kvledger.api.projection import Standing
from kvledger.api.routes.absent import AbsentParam, or_absent
from kvledger.api.routes.dependencies import KEPT, OF_A_JOURNAL, AtSeq, LibraryDep, Opened
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import SEQ_MAX, AbsentOut
from kvledger.api.schemas.tree import TreeOut

router = APIRouter(prefix="/v1/journals/{journal}/tree", tags=["state"], responses=OF_A_JOURNAL | KEPT)

ROWS = 100
ROWS_MAX = 1_000
"""Rows of one answer: by default what a screen shows, at most what a tall one does several times over."""

NODES = 1_000
NODES_MAX = 5_000
"""Nodes of one answer: five thousand are a megabyte, built in some hundredths of a second."""

NAMESPACE_CHARACTERS = 1_024
"""Of a filter: more than a name that a person gives, or a label, has."""


@router.get("", response_model=TreeOut | AbsentOut)
def tree(
    request: Request,
    opened: Opened,
    library: LibraryDep,
    at: AtSeq = None,
    namespace: Annotated[
        str | None,
        Query(max_length=NAMESPACE_CHARACTERS, description="Only this namespace, as this service tells it."),
    ] = None,
    root: Annotated[
        int | None, Query(ge=0, le=SEQ_MAX, description="Only this node and what is below it.")
    ] = None,
    first_row: Annotated[int, Query(ge=0, le=SEQ_MAX)] = 0,
    rows: Annotated[int, Query(ge=1, le=ROWS_MAX)] = ROWS,
    depth: Annotated[
        int | None, Query(ge=1, le=SEQ_MAX, description="Levels from the top of what is asked for.")
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=NODES_MAX, description="Nodes at most, those near the top first.")
    ] = NODES,
    absent: AbsentParam = "refuse",
) -> Response:
    """The nodes that lie in rows [first_row, first_row + rows), parents before children, with totals."""
    view = Viewport(first_row=first_row, rows=rows, limit=limit, depth=depth, namespace=namespace, root=root)

    def tell(standing: Standing) -> TreeOut:
        return tree_of(standing, view, hide=library.hide)

    return state_answer(request, opened, at, or_absent(tell, absent=absent))
