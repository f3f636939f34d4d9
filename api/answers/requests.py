"""Open requests: rows by page, what of them is the request's own, and the lock on the rest."""

from collections.abc import Sequence

import numpy as np

from kvledger.api.answers.leases import holders_of, lease_named
from kvledger.api.answers.slot import slots_of
from kvledger.api.problems import unknown
from kvledger.api.projection import LeaseBirths, Standing
from kvledger.api.schemas.requests import RequestDetail, RequestOut, RequestsOut
from kvledger.api.told.events import told_text
from kvledger.api.told.hiding import Hiding
from kvledger.api.told.runs import runs_of
from kvledger.core.ids import RequestId
from kvledger.journal.state import Request, State


def requests_of(
    standing: Standing, *, births: LeaseBirths, hide: Hiding, after: str | None, limit: int
) -> tuple[RequestsOut, str | None]:
    """Open requests by id, after the one named `after`; and the last one shown where there are more."""
    state = standing.state
    left = sorted(name for name in state.requests if after is None or name > after)
    shown = [state.requests[name] for name in left[:limit]]
    items = _told(shown, standing, births=births, hide=hide)
    answer = RequestsOut(at=standing.at, items=items, total=len(state.requests))
    return answer, shown[-1].id if len(left) > limit else None


def request_of(standing: Standing, name: str, *, births: LeaseBirths, hide: Hiding) -> RequestDetail:
    """One open request with its row. Raises a refusal (404) where it is not open. Cost: O(row)."""
    state = standing.state
    request = state.requests.get(RequestId(name))
    if request is None:
        raise unknown(
            "request", detail="no request of this id is open at this seq; its history may tell of it"
        )
    (told,) = _told([request], standing, births=births, hide=hide)
    return RequestDetail(at=standing.at, request=told, row=runs_of(slots_of(request.row, state.page_size)))


def _told(
    requests: Sequence[Request], standing: Standing, *, births: LeaseBirths, hide: Hiding
) -> tuple[RequestOut, ...]:
    state = standing.state
    leases = [lease_named(state, request.lease) for request in requests]
    held = [lease for lease in leases if lease is not None]
    holders = dict(
        zip(
            (lease.id for lease in held),
            holders_of(held, births=births, upto_seq=standing.at.seq),
            strict=True,
        )
    )
    return tuple(
        RequestOut(
            id=told_text(request.id),
            namespace=told_text(hide.namespace(request.namespace)),
            epoch=request.epoch,
            row_tokens=request.row_pages * state.page_size,
            own_pages=(own := own_pages(state, request)),
            shared_pages=request.row_pages - own,
            lease=None if lease is None else holders[lease.id],
        )
        for request, lease in zip(requests, leases, strict=True)
    )


def own_pages(state: State, request: Request) -> int:
    """How many pages of a request's row it holds itself: the others are the tree's."""
    return int(np.count_nonzero(state.full_at.take(request.row, mode="clip") == request.code))
