"""Why a prefix did not match for longer."""

import numpy as np
from fastapi import APIRouter

from kvledger.api.answers.explain import explain as explain_at
from kvledger.api.routes.dependencies import JSON_BODY, OF_A_JOURNAL, WITH_BODY, LibraryDep, Opened
from kvledger.api.schemas.tree import ExplainRequest, ExplanationOut

router = APIRouter(prefix="/v1/journals/{journal}/explain", tags=["state"], responses=OF_A_JOURNAL)


@router.post("", dependencies=[JSON_BODY], responses=WITH_BODY)
def explain(opened: Opened, library: LibraryDep, asked: ExplainRequest) -> ExplanationOut:
    """Walk the tree along some tokens and say how far they match, and why no further. Changes nothing."""
    tokens = np.array(asked.tokens, "<i4").tobytes()
    with opened.timeline.state_at(asked.at) as standing:
        namespace = library.hide.namespace_named(asked.namespace, standing.state)
        absence = library.hide.absence(asked.namespace)
        return explain_at(standing, tokens, namespace=namespace, absence=absence)
