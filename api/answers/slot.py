"""Who has one slot: its page, whose that is, the token that stands in it, and the locks that reach it."""

import numpy as np
import numpy.typing as npt

from kvledger.api.answers.leases import locking, locks_position
from kvledger.api.answers.pools import owner_codes
from kvledger.api.problems import unknown
from kvledger.api.projection import Standing
from kvledger.api.schemas.common import PoolName
from kvledger.api.schemas.events import TenureOut
from kvledger.api.schemas.pools import Place, SlotOut
from kvledger.api.told.events import told_text
from kvledger.core.events import Pages
from kvledger.core.ids import NodeId
from kvledger.journal.lookups.tenures import Tenure
from kvledger.journal.places import CALLER, DEFERRED, FREE
from kvledger.journal.state import Node, Request, State

LEASES_SHOWN = 1_000
"""Leases named in one answer: as many as a scheduler runs requests at once."""


def slot_of(standing: Standing, pool: PoolName, slot: int) -> SlotOut:
    """All about one slot. Raises a refusal (404) for one that is none of the pool. Cost: O(owner's pages)."""
    state = standing.state
    page, offset = divmod(slot, state.page_size)
    check_page(state, pool, slot)
    code = int(owner_codes(state, pool, page, page + 1)[0])
    node = state.nodes.get(NodeId(code - 1)) if code > 0 else None
    request = _request_with(state, code) if code < CALLER else None
    index = _index_in(state, pool, page, node, request)
    position = (
        None if index is None else (0 if node is None else node.start) + index * state.page_size + offset
    )
    beside = int(state.mapping[page]) if pool == "full" else max(0, int(state.swa_at[page]))
    locked_by: tuple[int, ...] = ()
    if node is not None and position is not None:
        leases = locking(standing, node)
        swa = pool == "swa"
        locked_by = tuple(one.id for one in leases if locks_position(one, position, swa=swa))
    place = _place(code)
    return SlotOut(
        at=standing.at,
        pool=pool,
        slot=slot,
        page=page,
        offset=offset,
        place=place,
        node=None if code <= 0 else code - 1,
        request=None if request is None else told_text(request.id),
        position=position,
        beside=beside * state.page_size + offset if beside else None,
        locked_by=locked_by[:LEASES_SHOWN],
        sentence=_sentence(place, pool, slot, node, request, position, len(locked_by)),
    )


def tenure_out(tenure: Tenure, *, offset: int, page_size: int) -> TenureOut:
    """A tenure of a page as one slot of it, the one at `offset`, has it."""
    return TenureOut(
        since=tenure.since,
        since_us=tenure.since_us,
        until=tenure.until,
        until_us=tenure.until_us,
        holder=tenure.holder,
        request=None if tenure.request is None else told_text(tenure.request),
        node=tenure.node,
        position=None if tenure.position is None else tenure.position + offset,
        beside=None if tenure.beside is None else tenure.beside * page_size + offset,
        began=tenure.began,
        ended=tenure.ended,
        cause=tenure.cause,
    )


def check_page(state: State, pool: PoolName, slot: int) -> None:
    """Raise a refusal (404) unless `slot` is one of the pool that is ever handed out."""
    pages = state.full_pages if pool == "full" else state.swa_pages
    first, end = state.page_size, (pages + 1) * state.page_size
    if slot < first:
        raise unknown("slot", detail=f"slots below {first} are padding: no token ever stands in them")
    if slot >= end:
        raise unknown("slot", detail=f"the {pool} pool has slots {first} to {end - 1}, not {slot}")


def slots_of(pages: Pages, page_size: int) -> npt.NDArray[np.int64]:
    """The slots of some pages, in order: int64[pages * page_size]. In a large pool they pass int32."""
    firsts = pages.astype(np.int64) * page_size
    return (firsts[:, None] + np.arange(page_size)).reshape(-1)


def _request_with(state: State, code: int) -> Request | None:
    return next((request for request in state.requests.values() if request.code == code), None)


def _index_in(
    state: State, pool: PoolName, page: int, node: Node | None, request: Request | None
) -> int | None:
    """Which page of the node, or of the request's row, this is; None where it is in neither."""
    full_page = page if pool == "full" else int(state.swa_at[page])
    pages = node.full if node is not None else request.row if request is not None else None
    if pages is None:
        return None
    found = np.flatnonzero(pages == full_page)
    return int(found[0]) if found.size else None


def _place(code: int) -> Place:
    if code > 0:
        return "tree"
    if code == FREE:
        return "free"
    if code == DEFERRED:
        return "deferred"
    return "caller" if code == CALLER else "request"


def _sentence(
    place: Place,
    pool: PoolName,
    slot: int,
    node: Node | None,
    request: Request | None,
    position: int | None,
    leases: int,
) -> str:
    what = f"{'Full' if pool == 'full' else 'SWA'} slot {slot}"
    at = "" if position is None else f" and holds token {position} of its path"
    match place:
        case "free":
            return f"{what} is free"
        case "deferred":
            return f"{what} was freed in a transaction that is not over"
        case "caller":
            return f"{what} is held by a caller that allocated it itself"
        case "request":
            row = "" if position is None else f", as token {position} of its row"
            return f"{what} is held by request {'?' if request is None else told_text(request.id)}{row}"
    locks = (
        "no lease reaches it"
        if not leases
        else f"{leases} {'lease locks' if leases == 1 else 'leases lock'} it"
    )
    return f"{what} belongs to node {'?' if node is None else node.id}{at}; {locks}"
