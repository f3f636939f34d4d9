"""Both pools: their levels, their pages by owner, single slots, and what eviction would take next."""

from typing import Annotated, Literal

from pydantic import Field

from kvledger.api.schemas.common import Answer, At, PoolName

Place = Literal["free", "deferred", "tree", "request", "caller"]


class PoolOut(Answer):
    """One pool in tokens: `total == free + evictable + protected + held`, deferred frees among `held`."""

    pool: PoolName
    page_size: int
    pages: int
    total: int
    free: int
    evictable: int
    protected: int
    held: int
    tombstoned: Annotated[int, Field(description="Tokens of tree nodes without SWA; 0 for the Full pool.")]


class PoolsOut(Answer):
    """Both pools, and what hangs on them."""

    at: At
    pools: tuple[PoolOut, PoolOut]
    nodes: int
    tombstones: int
    mixed_nodes: int
    requests: int
    leases: int


class OwnerRun(Answer):
    """`count` consecutive pages from `page` on in the same hands.

    `place` "tree" has the node and the locks on it; "request" the request. `tombstone` is told of Full pages.
    """

    page: int
    count: int
    place: Place
    node: int | None = None
    request: str | None = None
    locked: bool = False
    tombstone: bool = False


class PoolMap(Answer):
    """Pages [first_page, first_page + pages) of one pool by owner, as runs; page 0 is padding, not told.

    Where there are more runs than `limit` the rest is left out: `pages` says how far this answer goes.
    """

    at: At
    pool: PoolName
    pages_total: int
    first_page: int
    pages: int
    runs: tuple[OwnerRun, ...]


class SlotOut(Answer):
    """Who has one slot. `position` is the token's position in the node or the request's row, where known.

    `beside` is the slot of the other pool that stands beside it; `locked_by` the leases that reach it.
    """

    at: At
    pool: PoolName
    slot: int
    page: int
    offset: int
    place: Place
    node: int | None
    request: str | None
    position: int | None
    beside: int | None
    locked_by: tuple[int, ...]
    sentence: str


class EvictionCandidate(Answer):
    """A node that eviction would take, in order; `action` is what would become of it."""

    node: int
    stamp: int
    start: int
    end: int
    action: Literal["delete_leaf", "tombstone"]
    full_tokens: int
    swa_tokens: int
    outside_windows: Annotated[bool | None, Field(description="SWA only: outside every window.")] = None


class EvictionOut(Answer):
    """What would go next if a pool ran short, first one first; nothing is changed.

    `sentence` says what could be taken in all or, where that is nothing, why.
    """

    at: At
    pool: PoolName
    candidates: tuple[EvictionCandidate, ...]
    evictable_tokens: int
    sentence: str = ""
