"""What the routes that show a state share: from `at` to the bytes of an answer."""

from collections.abc import Callable
from dataclasses import replace

from fastapi import Request
from fastapi.responses import Response

from kvledger.api.etags import immutable
from kvledger.api.library import OpenedJournal
from kvledger.api.projection import Standing
from kvledger.api.schemas.common import Answer

JSON = "application/json"


def state_answer(
    request: Request, opened: OpenedJournal, at: int | None, tell: Callable[[Standing], Answer]
) -> Response:
    """What `tell` says of the state at `at`.

    A reader that has the answer of a settled seq is told so before any state is computed. While a state
    stands still, the same question is answered once.
    """
    timeline = opened.timeline
    place = timeline.place(at)
    if place.settled:
        immutable(request, opened, place.seq)
    with timeline.state_at(at) as standing:
        # Where the follower stands is the end until it has heard of more: what can be kept for ever must not
        # say that it may change, nor be an answer that was made before.
        told = replace(standing, at=standing.at.model_copy(update={"settled": place.settled}))
        question = (request.url.path, request.url.query, place.settled)
        body = standing.answer(question, lambda: tell(told).model_dump_json().encode())
    return Response(body, media_type=JSON)
