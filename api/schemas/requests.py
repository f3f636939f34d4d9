"""Open requests and leases."""

from kvledger.api.schemas.common import Answer, At, Runs
from kvledger.api.schemas.tree import HolderOut


class RequestOut(Answer):
    """An open request: its row by page, which part of it is its own, and its lock."""

    id: str
    namespace: str
    epoch: int
    row_tokens: int
    own_pages: int
    shared_pages: int
    lease: HolderOut | None


class RequestDetail(Answer):
    """One request at one seq; `row` are its Full slots in token order."""

    at: At
    request: RequestOut
    row: Runs


class RequestsOut(Answer):
    """Open requests at one seq, by id; `next` continues the list."""

    at: At
    items: tuple[RequestOut, ...]
    total: int
    next: str | None = None


class LeasesOut(Answer):
    """Locks held at one seq, oldest lease first; `next` continues the list."""

    at: At
    items: tuple[HolderOut, ...]
    total: int
    next: str | None = None
