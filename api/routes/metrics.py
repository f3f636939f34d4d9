"""Metrics for Prometheus."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from kvledger.api.metrics import Metrics

router = APIRouter(tags=["health"])

EXPOSITION = {
    "description": "All metrics, in the text form or as OpenMetrics, as Accept asks.",
    "content": {
        "text/plain": {"schema": {"type": "string"}},
        "application/openmetrics-text": {"schema": {"type": "string"}},
    },
}


@router.get("/metrics", response_class=Response, responses={200: EXPOSITION})
def metrics(request: Request) -> Response:
    """Counters and levels of every journal that is followed."""
    of_this_service: Metrics = request.app.state.metrics
    content, content_type = of_this_service.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})
