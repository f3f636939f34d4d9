"""The levels of both pools, and their pages by owner."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.api.projection import Standing
from kvledger.api.schemas.common import PoolName
from kvledger.api.schemas.pools import OwnerRun, PoolMap, PoolOut, PoolsOut
from kvledger.api.told.events import told_text
from kvledger.core.ids import NodeId
from kvledger.journal.places import CALLER, DEFERRED, FREE, OUTSIDE
from kvledger.journal.state import State


@dataclass(frozen=True, slots=True)
class Levels:
    """What the nodes of a state amount to, in pages and nodes."""

    locked_full: int
    locked_swa: int
    tombstoned: int
    tombstones: int
    mixed: int


def levels_of(standing: Standing) -> Levels:
    """The levels of a state, counted once. Cost: O(nodes)."""
    return standing.derive("levels", lambda: _count(standing.state))


def pools_of(standing: Standing) -> PoolsOut:
    """Both pools in tokens. Cost: O(pool) and, once for each state, O(nodes)."""
    state, levels = standing.state, levels_of(standing)
    full, swa = state.places()
    return PoolsOut(
        at=standing.at,
        pools=(
            _pool("full", state, full.total, full.free, full.tree, levels.locked_full, levels.tombstoned),
            _pool("swa", state, swa.total, swa.free, swa.tree, levels.locked_swa, 0),
        ),
        nodes=len(state.nodes),
        tombstones=levels.tombstones,
        mixed_nodes=levels.mixed,
        requests=len(state.requests),
        leases=len(state.leases),
    )


def evictable_tokens(standing: Standing, pool: PoolName) -> int:
    """Tokens that eviction could free of one pool."""
    levels = levels_of(standing)
    full, swa = standing.state.places()
    pages = full.tree - levels.locked_full if pool == "full" else swa.tree - levels.locked_swa
    return max(0, pages) * standing.state.page_size


def map_of(standing: Standing, pool: PoolName, *, first_page: int, pages: int, limit: int) -> PoolMap:
    """Pages from `first_page` on by owner, in at most `limit` runs. Cost: O(pages)."""
    state = standing.state
    total = state.full_pages if pool == "full" else state.swa_pages
    end = min(first_page + pages, total + 1)
    codes = owner_codes(state, pool, first_page, max(first_page, end))
    requests = {request.code: request.id for request in state.requests.values()}
    runs: list[OwnerRun] = []
    covered = 0
    for start, count in _equal_stretches(codes):
        if len(runs) == limit:
            break
        code = int(codes[start])
        runs.append(
            OwnerRun(page=first_page + start, count=count, **_owner(state, pool, code, requests.get(code)))
        )
        covered = start + count
    return PoolMap(
        at=standing.at, pool=pool, pages_total=total, first_page=first_page, pages=covered, runs=tuple(runs)
    )


def owner_codes(state: State, pool: PoolName, first: int, end: int) -> npt.NDArray[np.int64]:
    """Of pages [first, end) the code of who has them, as `State.full_at` reads it.

    Who has an SWA page is told by the Full page that maps to it.
    """
    if pool == "full":
        return state.full_at[first:end]
    homes = state.swa_at[first:end]
    return np.where(homes > 0, state.full_at.take(homes, mode="clip"), homes)


def _owner(state: State, pool: PoolName, code: int, request: str | None) -> dict[str, Any]:
    if code > 0:
        node = state.nodes.get(NodeId(code - 1))
        if node is None:
            return {"place": "tree", "node": code - 1}
        return {
            "place": "tree",
            "node": node.id,
            "locked": (node.full_lock if pool == "full" else node.swa_lock) > 0,
            "tombstone": pool == "full" and node.swa is None,
        }
    match code:
        case _ if code == FREE:
            return {"place": "free"}
        case _ if code in (DEFERRED, OUTSIDE):
            return {"place": "deferred"}
        case _ if code == CALLER:
            return {"place": "caller"}
    return {"place": "request", "request": None if request is None else told_text(request)}


def _equal_stretches(codes: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(start, count) of each stretch of equal codes."""
    if not codes.size:
        return
    starts = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1, [codes.size])).tolist()
    for start, end in pairwise(starts):
        yield start, end - start


def _count(state: State) -> Levels:
    locked_full = locked_swa = tombstoned = tombstones = mixed = 0
    for node in state.nodes.values():
        pages = len(node.full)
        if node.full_lock:
            locked_full += pages
        if node.swa is None:
            tombstones += 1
            tombstoned += pages
        else:
            if node.swa_lock:
                locked_swa += pages
            if node.is_mixed:
                mixed += 1
    return Levels(locked_full, locked_swa, tombstoned, tombstones, mixed)


def _pool(
    name: PoolName, state: State, total: int, free: int, tree: int, locked: int, tombstoned: int
) -> PoolOut:
    page = state.page_size
    # Where a journal breaks the rules a locked page may be elsewhere by now: it then counts where it is.
    protected = min(locked, tree)
    return PoolOut(
        pool=name,
        page_size=page,
        pages=total,
        total=total * page,
        free=free * page,
        evictable=(tree - protected) * page,
        protected=protected * page,
        held=(total - free - tree) * page,
        tombstoned=tombstoned * page,
    )
