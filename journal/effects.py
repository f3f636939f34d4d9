"""What each event does to the state: docs/events.md, row by row.

Each function takes the state, an event that fits it (`structure.py`) and what the event is about.
Events are taken at their word: whether the word is true is the audit's question. Cost is that of the
pages an event names and, for locks, of the nodes on the path.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kvledger.core.events import (
    CacheReset,
    CallIgnored,
    Cause,
    Checkpoint,
    Evicted,
    KvFingerprinted,
    KvUnread,
    LockAcquired,
    LockReleased,
    MappingSet,
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    NodeTouched,
    Pages,
    PagesAllocated,
    PagesFreed,
    Pool,
    PrefixInserted,
    PrefixMatched,
    RecoveryMode,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    RolledBack,
    SwaLockReleased,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.journal.places import CALLER, DEFERRED, FREE
from kvledger.journal.same_pages import Table, all_deferred
from kvledger.journal.state import Lease, Node, Request, State
from kvledger.journal.tokens import TOKEN_BYTES

REUSABLE = (Cause.CAPACITY, Cause.CASCADE)
"""Causes whose pages may be allocated again in the same transaction; all others wait for its end.

A tuple, for a member of an enum is compared in less time than it is hashed."""

_RECOVERY, _SWA_SIDE, _ADOPTED = Cause.RECOVERY, Pool.SWA, RecoveryMode.ADOPT_INCOMING


def real_pages(pages: Pages) -> Pages:
    """`pages` without the zeros that stand for "no peer"."""
    if len(pages) == 1:
        return pages if pages.item() else pages[:0]
    return pages if np.count_nonzero(pages) == len(pages) else pages[pages != 0]


def _put(state: State, table: Table, pages: Pages, place: int) -> None:
    if len(pages) == 1:
        table[pages.item()] = place
    else:
        table[state.index(pages)] = place


def _free_full(state: State, pages: Pages, cause: Cause) -> None:
    if cause in REUSABLE:
        _put(state, state.full_at, pages, FREE)
    else:
        _put(state, state.full_at, pages, DEFERRED)
        state.deferred_full.append(pages)


def _free_swa(state: State, pages: Pages, cause: Cause) -> None:
    pages = real_pages(pages)
    if cause in REUSABLE:
        _put(state, state.swa_at, pages, FREE)
    else:
        _put(state, state.swa_at, pages, DEFERRED)
        state.deferred_swa.append(pages)


def _map(state: State, full: Pages, swa: Pages) -> None:
    if len(full) == 1:
        page, peer = full.item(), swa.item()
        state.mapping[page] = peer
        if peer:
            state.swa_at[peer] = page
        return
    state.mapping[state.index(full)] = swa
    beside = state.index(swa)
    if np.count_nonzero(swa) != len(swa):
        full, beside = full[swa != 0], beside[swa != 0]
    state.swa_at[beside] = full


def end_transaction(state: State) -> None:
    """The outermost transaction ended: what was deferred is free. Cost O(pages deferred)."""
    if not state.deferred_full and not state.deferred_swa:
        return
    for deferred, at in ((state.deferred_full, state.full_at), (state.deferred_swa, state.swa_at)):
        for pages in deferred:
            # A page that was taken again too early is no longer deferred; it stays where it is now.
            if len(pages) == 1:
                page = pages.item()
                if at.item(page) == DEFERRED:
                    at[page] = FREE
                continue
            index = state.index(pages)
            at[index if all_deferred(at, index) else index[at[index] == DEFERRED]] = FREE
        deferred.clear()


def _pages_allocated(state: State, event: PagesAllocated, request: Request | None) -> None:
    full = event.full_pages
    _map(state, full, event.swa_pages)
    if request is None:
        _put(state, state.full_at, full, CALLER)
    else:
        _put(state, state.full_at, full, request.code)
        start = event.row_start or 0
        request.write_row(full, first_page=start, row_pages=start + len(full))


def _pages_freed(state: State, event: PagesFreed, request: Request | None) -> None:
    if event.pool is not _SWA_SIDE:
        _free_full(state, event.full_pages, event.cause)
    _put(state, state.mapping, event.full_pages, 0)
    _free_swa(state, event.swa_pages, event.cause)


def _node_created(state: State, event: NodeCreated, parent: Node | None) -> None:
    node = Node(
        id=event.node,
        namespace=event.namespace,
        parent=parent,
        start=event.start,
        end=event.start + len(event.full_pages) * state.page_size,
        tokens=event.tokens,
        full=event.full_pages,
        swa=event.swa_pages,
        stamp=event.stamp,
        full_origin=event.full_origin,
        swa_origin=event.swa_origin,
    )
    state.nodes[node.id] = node
    state.siblings(node)[node.id] = node
    _put(state, state.full_at, node.full, node.place)


def _cut_tokens(state: State, event: NodeSplit, node: Node) -> tuple[bytes, bytes]:
    """What stands for the tokens of head and tail: a hash is that of a prefix, and the tail's end stays."""
    if state.token_policy != "full":
        return event.head_tokens, node.tokens
    cut = (event.at - node.start) * TOKEN_BYTES
    return node.tokens[:cut], node.tokens[cut:]


def _node_split(state: State, event: NodeSplit, node: Node) -> None:
    pages = (event.at - node.start) // state.page_size
    head_tokens, tail_tokens = _cut_tokens(state, event, node)
    head = Node(
        id=event.head,
        namespace=node.namespace,
        parent=node.parent,
        start=node.start,
        end=event.at,
        tokens=head_tokens,
        full=node.full[:pages],
        swa=None if node.swa is None else node.swa[:pages],
        stamp=node.stamp,
        full_origin=node.full_origin,
        swa_origin=node.swa_origin,
        full_lock=node.full_lock,
        swa_lock=node.swa_lock,
        children={node.id: node},
    )
    siblings = state.siblings(node)
    del siblings[node.id]
    siblings[head.id] = head
    state.nodes[head.id] = head
    _put(state, state.full_at, head.full, head.place)
    node.parent = head
    node.start = event.at
    node.tokens = tail_tokens
    node.full = node.full[pages:]
    node.swa = None if node.swa is None else node.swa[pages:]


def _node_deleted(state: State, event: NodeDeleted, node: Node) -> None:
    siblings = state.siblings(node)
    del siblings[node.id]
    if not siblings and node.parent is None:
        del state.roots[node.namespace]
    del state.nodes[node.id]
    _put(state, state.mapping, event.full_pages, 0)
    _free_full(state, event.full_pages, event.cause)
    if event.swa_pages is not None:
        _free_swa(state, event.swa_pages, event.cause)
    if event.parent_stamp is not None and node.parent is not None:
        node.parent.stamp = event.parent_stamp


def _swa_tombstoned(state: State, event: SwaTombstoned, node: Node) -> None:
    _put(state, state.mapping, event.full_pages, 0)
    _free_swa(state, event.swa_pages, event.cause)
    node.swa = None
    node.swa_origin = None


def _swa_recovered(state: State, event: SwaRecovered, node: Node) -> None:
    if event.mode is _ADOPTED:
        _free_full(state, event.node_full, _RECOVERY)
        _put(state, state.full_at, event.incoming_full, node.place)
        node.full = event.incoming_full
    else:
        _put(state, state.mapping, event.incoming_full, 0)
        _map(state, event.node_full, event.swa_pages)
        _free_full(state, event.incoming_full, _RECOVERY)
    node.swa = event.swa_pages
    node.stamp = event.stamp
    node.full_origin = event.full_origin
    node.swa_origin = event.swa_origin


def _lock_acquired(state: State, event: LockAcquired, node: Node | None) -> None:
    state.leases[event.lease] = Lease(
        id=event.lease,
        node=node,
        namespace=event.namespace,
        request_id=event.request_id,
        length=event.length,
        swa_from=event.swa_from,
        generation=event.generation,
    )
    swa_from = event.swa_from
    while node is not None:
        node.full_lock += 1
        if node.start >= swa_from:
            node.swa_lock += 1
        node = node.parent


def _release_swa(lease: Lease) -> None:
    node = lease.node
    while node is not None and node.start >= lease.swa_from:
        node.swa_lock -= 1
        node = node.parent
    lease.swa_held = False


def _lock_released(state: State, event: LockReleased, lease: Lease) -> None:
    if lease.swa_held:
        _release_swa(lease)
    node = lease.node
    while node is not None:
        node.full_lock -= 1
        node = node.parent
    del state.leases[lease.id]


def _swa_lock_released(state: State, event: SwaLockReleased, lease: Lease) -> None:
    _release_swa(lease)


def _node_touched(state: State, event: NodeTouched, nodes: list[Node]) -> None:
    for stamp, node in enumerate(nodes, start=event.first_stamp):
        node.stamp = stamp


def _request_opened(state: State, event: RequestOpened, lease: Lease) -> None:
    request = Request(
        request_id=event.request_id,
        namespace=event.namespace,
        epoch=event.epoch,
        code=state.next_request_code,
        lease=event.lease,
    )
    state.next_request_code -= 1
    request.write_row(event.pages, first_page=0, row_pages=len(event.pages))
    state.requests[request.id] = request


def _request_row_changed(state: State, event: RequestRowChanged, request: Request) -> None:
    request.write_row(event.pages, first_page=event.first_page, row_pages=event.row_pages)
    request.lease = event.lease
    request.epoch = event.epoch


def _request_closed(state: State, event: RequestClosed, request: Request) -> None:
    del state.requests[request.id]


def _cache_reset(state: State, event: CacheReset, subject: None) -> None:
    state.generation = event.generation


def _mapping_set(state: State, event: MappingSet, subject: None) -> None:
    _map(state, event.full_pages, event.swa_pages)


def _nothing(state: State, event: object, subject: object) -> None:
    """Facts to check: they change nothing."""


EFFECTS: dict[type, Callable[[State, Any, Any], None]] = {
    PagesAllocated: _pages_allocated,
    PagesFreed: _pages_freed,
    NodeCreated: _node_created,
    NodeSplit: _node_split,
    NodeDeleted: _node_deleted,
    SwaTombstoned: _swa_tombstoned,
    SwaRecovered: _swa_recovered,
    LockAcquired: _lock_acquired,
    LockReleased: _lock_released,
    SwaLockReleased: _swa_lock_released,
    NodeTouched: _node_touched,
    RequestOpened: _request_opened,
    RequestRowChanged: _request_row_changed,
    RequestClosed: _request_closed,
    CacheReset: _cache_reset,
    MappingSet: _mapping_set,
    PrefixInserted: _nothing,
    PrefixMatched: _nothing,
    Evicted: _nothing,
    RolledBack: _nothing,
    Checkpoint: _nothing,
    CallIgnored: _nothing,
    KvFingerprinted: _nothing,
    KvUnread: _nothing,
}
"""By event type: applies the event to the state."""
