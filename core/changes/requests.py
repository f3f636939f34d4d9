"""Changes of a request's row and lease, which move together."""

from kvledger.core.events import Pages, RequestClosed, RequestOpened, RequestRowChanged
from kvledger.core.state import CacheState, LeaseState, RequestState, change


def _opened_back(state: CacheState, event: RequestOpened, token: None) -> None:
    del state.requests[event.request_id]


@change(RequestOpened, _opened_back)
def _opened(state: CacheState, event: RequestOpened) -> None:
    state.next_owner += 1
    request = RequestState(
        event.request_id,
        event.namespace,
        epoch=event.epoch,
        ordinal=state.next_owner - 1,
        generation=state.generation,
    )
    request.lease = state.leases[event.lease]
    request.write_row(0, event.pages)
    request.row_pages = len(event.pages)
    state.requests[request.id] = request


RowToken = tuple[LeaseState | None, int, int, Pages, Pages]
"""Lease, epoch and length before, the pages that were overwritten, and those cut off the end."""


def _row_back(state: CacheState, event: RequestRowChanged, token: RowToken) -> None:
    request = state.requests[event.request_id]
    request.lease, request.epoch, request.row_pages, overwritten, cut_off = token
    request.write_row(event.row_pages, cut_off)
    request.write_row(event.first_page, overwritten)


@change(RequestRowChanged, _row_back)
def _row(state: CacheState, event: RequestRowChanged) -> RowToken:
    request = state.requests[event.request_id]
    first, old_pages = event.first_page, request.row_pages
    overwritten = request.row_slice(first, min(first + len(event.pages), old_pages))
    cut_off = request.row_slice(event.row_pages, old_pages)
    token = (request.lease, request.epoch, old_pages, overwritten, cut_off)
    request.lease = None if event.lease is None else state.leases[event.lease]
    request.epoch = event.epoch
    request.write_row(first, event.pages)
    request.row_pages = event.row_pages
    return token


def _closed_back(state: CacheState, event: RequestClosed, token: RequestState) -> None:
    state.requests[token.id] = token
    token.closed_by = None


@change(RequestClosed, _closed_back)
def _closed(state: CacheState, event: RequestClosed) -> RequestState:
    request = state.requests.pop(event.request_id)
    request.closed_by = event.reason
    return request
