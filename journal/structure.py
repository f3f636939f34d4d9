"""Which events fit a state at all: the things they name exist and their arrays have the right lengths.

This is not the audit. A journal in which a locked page was freed fits, and replays as written, so
that one can look at it; a journal that deletes a node nobody created does not fit, and replay stops
with a `ReplayError`. Each function here looks and changes nothing, and returns what the event is
about, so that effects and audit need not look it up again. The rules are those of docs/events.md.
"""

from collections.abc import Callable
from typing import Any

from kvledger.core.config import MAX_PAGES
from kvledger.core.errors import JournalError
from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    CallIgnored,
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
    PagesAllocated,
    PagesFreed,
    PrefixInserted,
    PrefixMatched,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    RolledBack,
    SwaLockReleased,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.journal.fits import (
    LARGEST,
    ReplayError,
    check_full,
    check_range,
    check_swa,
    lease_named,
    node_named,
    node_or_none,
    request_named,
    too_large,
    unequal,
)
from kvledger.journal.state import Lease, Node, Request, State
from kvledger.journal.tokens import HASH_BYTES, TOKEN_BYTES, policy_of

_HASHES = {"hash": HASH_BYTES, "none": 0}
"""Bytes that stand for the tokens of any node, by the token policies that do not keep them."""


def check_opened(event: CacheOpened) -> None:
    """Raise `ReplayError` unless the sizes in `event` can be those of a cache."""
    sizes = (event.page_size, event.window, event.full_pages, event.swa_pages)
    if min(sizes) < 1:
        raise ReplayError(
            "cache_opened gives page size, window, Full and SWA pages as "
            f"{', '.join(map(str, sizes))}: each must be at least 1"
        )
    if max(sizes) > MAX_PAGES:
        raise ReplayError(f"cache_opened gives a size of {max(sizes)}: the largest is {MAX_PAGES}")
    try:
        policy_of(event)
    except JournalError as error:
        raise ReplayError(str(error)) from error


def _pages_allocated(state: State, event: PagesAllocated) -> Request | None:
    if len(event.swa_pages) != len(event.full_pages):
        raise unequal(event, len(event.full_pages), event.swa_pages)
    check_full(state, event.full_pages)
    check_swa(state, event.swa_pages)
    if event.owner is None:
        return None
    request = request_named(state, event.owner)
    if event.row_start is None or not 0 <= event.row_start <= request.row_pages:
        raise ReplayError(
            f"pages_allocated continues the row of request {request.id!r} at {event.row_start}, "
            f"but the row has {request.row_pages} pages"
        )
    return request


def _pages_freed(state: State, event: PagesFreed) -> Request | None:
    if len(event.swa_pages) != len(event.full_pages):
        raise unequal(event, len(event.full_pages), event.swa_pages)
    check_full(state, event.full_pages)
    check_swa(state, event.swa_pages)
    return None if event.owner is None else request_named(state, event.owner)


def _node_created(state: State, event: NodeCreated) -> Node | None:
    count = len(event.full_pages)
    if event.node in state.nodes or not 0 <= event.node < LARGEST:
        raise ReplayError(f"node_created gives the id {event.node}, which is taken or none")
    if not -LARGEST < event.stamp < LARGEST:
        raise too_large("stamp", event.stamp)
    if count == 0:
        raise ReplayError(f"node {event.node} is created without a page")
    expected = _HASHES.get(state.token_policy, count * state.page_size * TOKEN_BYTES)
    if len(event.tokens) != expected:
        raise ReplayError(
            f"node {event.node} is created with {len(event.tokens)} bytes of tokens for {count} pages "
            f"under the token policy {state.token_policy!r}, which stores {expected}"
        )
    check_full(state, event.full_pages)
    if event.swa_pages is not None:
        if len(event.swa_pages) != count:
            raise unequal(event, count, event.swa_pages)
        check_swa(state, event.swa_pages)
    parent = node_or_none(state, event.parent)
    above = 0 if parent is None else parent.end
    if event.start != above:
        raise ReplayError(f"node {event.node} starts at {event.start}, but its parent ends at {above}")
    return parent


def _node_split(state: State, event: NodeSplit) -> Node:
    node = node_named(state, event.node)
    if event.head in state.nodes or not 0 <= event.head < LARGEST:
        raise ReplayError(f"node_split gives its head the id {event.head}, which is taken or none")
    if not node.start < event.at < node.end or (event.at - node.start) % state.page_size:
        raise ReplayError(
            f"node {node.id} covers [{node.start}, {node.end}) and cannot be split at {event.at}"
        )
    expected = _HASHES.get(state.token_policy)
    if expected is not None and len(event.head_tokens) != expected:
        raise ReplayError(
            f"the head of node {node.id} has {len(event.head_tokens)} bytes for its tokens under the token "
            f"policy {state.token_policy!r}, which stores {expected}"
        )
    return node


def _node_deleted(state: State, event: NodeDeleted) -> Node:
    node = node_named(state, event.node)
    parent = None if node.parent is None else node.parent.id
    if node.children:
        raise ReplayError(f"node {node.id} is deleted although it has {len(node.children)} children")
    if event.parent != parent:
        raise ReplayError(f"node {node.id} is deleted under {event.parent}, but its parent is {parent}")
    if len(event.full_pages) != len(node.full):
        raise unequal(event, len(node.full), event.full_pages)
    check_full(state, event.full_pages)
    if (event.swa_pages is None) != (node.swa is None):
        raise ReplayError(f"node_deleted and node {node.id} disagree whether it is a tombstone")
    if event.swa_pages is not None:
        if len(event.swa_pages) != len(node.full):
            raise unequal(event, len(node.full), event.swa_pages)
        check_swa(state, event.swa_pages)
    if event.parent_stamp is not None:
        check_range("stamp", event.parent_stamp)
    return node


def _swa_tombstoned(state: State, event: SwaTombstoned) -> Node:
    node = node_named(state, event.node)
    if node.swa is None:
        raise ReplayError(f"node {node.id} is tombstoned, but it is a tombstone already")
    if not len(event.full_pages) == len(event.swa_pages) == len(node.full):
        raise unequal(event, len(node.full), event.full_pages, event.swa_pages)
    check_full(state, event.full_pages)
    check_swa(state, event.swa_pages)
    return node


def _swa_recovered(state: State, event: SwaRecovered) -> Node:
    node = node_named(state, event.node)
    if node.swa is not None:
        raise ReplayError(f"node {node.id} is recovered, but it is no tombstone")
    if not len(event.node_full) == len(event.incoming_full) == len(event.swa_pages) == len(node.full):
        raise unequal(event, len(node.full), event.node_full, event.incoming_full, event.swa_pages)
    check_full(state, event.node_full)
    check_full(state, event.incoming_full)
    check_swa(state, event.swa_pages)
    if not -LARGEST < event.stamp < LARGEST:
        raise too_large("stamp", event.stamp)
    return node


def _lock_acquired(state: State, event: LockAcquired) -> Node | None:
    if event.lease in state.leases:
        raise ReplayError(f"lease {event.lease} is acquired twice")
    if not (
        -LARGEST < event.lease < LARGEST
        and -LARGEST < event.length < LARGEST
        and -LARGEST < event.swa_from < LARGEST
    ):
        check_range("lease", event.lease)
        check_range("length", event.length)
        check_range("SWA position", event.swa_from)
    return node_or_none(state, event.node)


def _lock_released(state: State, event: LockReleased) -> Lease:
    return lease_named(state, event.lease)


def _swa_lock_released(state: State, event: SwaLockReleased) -> Lease:
    lease = lease_named(state, event.lease)
    if not lease.swa_held:
        raise ReplayError(
            f"the SWA half of lease {lease.id} is released, but it was given up before", lease=lease.id
        )
    return lease


def _node_touched(state: State, event: NodeTouched) -> list[Node]:
    if not -LARGEST < event.first_stamp < LARGEST:
        raise too_large("stamp", event.first_stamp)
    nodes = state.nodes
    try:
        return [nodes[node_id] for node_id in event.nodes]
    except KeyError as error:
        missing = error.args[0]
        raise ReplayError(f"node {missing} does not exist", node=missing) from None


def _prefix_matched(state: State, event: PrefixMatched) -> Node | None:
    return node_or_none(state, event.node)


def _request_opened(state: State, event: RequestOpened) -> Lease:
    if event.request_id in state.requests:
        raise ReplayError(f"request {event.request_id!r} is opened twice")
    check_full(state, event.pages)
    return lease_named(state, event.lease)


def _request_row_changed(state: State, event: RequestRowChanged) -> Request:
    request = request_named(state, event.request_id)
    changed_to = event.first_page + len(event.pages)
    if (
        not 0 <= event.first_page <= request.row_pages
        or not 0 <= event.row_pages <= max(request.row_pages, changed_to)
        or (len(event.pages) > 0 and changed_to > event.row_pages)
    ):
        raise ReplayError(
            f"the row of request {request.id!r} has {request.row_pages} pages; pages "
            f"[{event.first_page}, {changed_to}) cannot make it {event.row_pages} long"
        )
    check_full(state, event.pages)
    if event.lease is not None:
        lease_named(state, event.lease)
    return request


def _request_closed(state: State, event: RequestClosed) -> Request:
    return request_named(state, event.request_id)


def _mapping_set(state: State, event: MappingSet) -> None:
    if len(event.swa_pages) != len(event.full_pages):
        raise unequal(event, len(event.full_pages), event.swa_pages)
    check_full(state, event.full_pages)
    check_swa(state, event.swa_pages)


def _kv_fingerprinted(state: State, event: KvFingerprinted) -> Node:
    node = node_named(state, event.node)
    if not len(event.full_pages) == len(event.full_sums) == len(node.full):
        raise unequal(event, len(node.full), event.full_pages, event.full_sums)
    check_full(state, event.full_pages)
    if (event.swa_sums is None) != (node.swa is None):
        raise ReplayError(f"kv_fingerprinted and node {node.id} disagree whether it is a tombstone")
    if event.swa_sums is not None and len(event.swa_sums) != len(node.full):
        raise unequal(event, len(node.full), event.swa_sums)
    return node


def _kv_unread(state: State, event: KvUnread) -> Node:
    node = node_named(state, event.node)
    if len(event.full_pages) != len(node.full):
        raise unequal(event, len(node.full), event.full_pages)
    check_full(state, event.full_pages)
    return node


def _cache_reset(state: State, event: CacheReset) -> None:
    check_range("generation", event.generation)


def _fits_always(state: State, event: object) -> None:
    """Events that say nothing about the state, or that any state can take."""


STRUCTURE: dict[type, Callable[[State, Any], Any]] = {
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
    PrefixMatched: _prefix_matched,
    RequestOpened: _request_opened,
    RequestRowChanged: _request_row_changed,
    RequestClosed: _request_closed,
    MappingSet: _mapping_set,
    PrefixInserted: _fits_always,
    Evicted: _fits_always,
    RolledBack: _fits_always,
    Checkpoint: _fits_always,
    CacheReset: _cache_reset,
    CallIgnored: _fits_always,
    KvFingerprinted: _kv_fingerprinted,
    KvUnread: _kv_unread,
}
"""By event type: returns what the event is about (node, lease, request or list), or raises `ReplayError`."""
