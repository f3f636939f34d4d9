"""Which events fit a state at all: the things they name exist and their arrays have the right lengths.

This is not the audit. A journal in which a locked page was freed fits, and replays as written, so
that one can look at it; a journal that deletes a node nobody created does not fit, and replay stops
with a `ReplayError`. Each function here looks and changes nothing, and returns what the event is
about, so that effects and audit need not look it up again. The rules are those of docs/events.md.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core.config import MAX_PAGES
from kvledger.core.errors import JournalError
from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    CallIgnored,
    Checkpoint,
    Event,
    Evicted,
    KvFingerprinted,
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
    PrefixInserted,
    PrefixMatched,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    RolledBack,
    Sums,
    SwaLockReleased,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import LeaseId, NodeId, RequestId, Seq
from kvledger.journal.state import Lease, Node, Request, State
from kvledger.journal.tokens import HASH_BYTES, TOKEN_BYTES, policy_of

_HASHES = {"hash": HASH_BYTES, "none": 0}
"""Bytes that stand for the tokens of any node, by the token policies that do not keep them."""

TRUE = b"\x01"
"""A true value among the bytes of a boolean array."""

LARGEST = 2**62
"""Ids, stamps and lengths stay below this: places and digests are 64-bit integers, and ids are added to."""


class ReplayError(JournalError):
    """A journal that cannot be folded: an event that does not fit the state before it.

    Attributes: `problem` (the sentence), `seq` where known, and of `node`, `lease`, `request` the
    one that the journal names although it does not exist.
    """

    def __init__(
        self,
        problem: str,
        *,
        seq: Seq | None = None,
        node: NodeId | None = None,
        lease: LeaseId | None = None,
        request: RequestId | None = None,
    ) -> None:
        self.problem = problem
        self.seq = seq
        self.node = node
        self.lease = lease
        self.request = request
        super().__init__(problem if seq is None else f"seq {seq}: {problem}")


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


def _in_range(what: str, value: int) -> None:
    if not -LARGEST < value < LARGEST:
        raise _too_large(what, value)


def _too_large(what: str, value: int) -> ReplayError:
    return ReplayError(f"{what} {value} is too large to be one")


def _node(state: State, node_id: NodeId) -> Node:
    node = state.nodes.get(node_id)
    if node is None:
        raise ReplayError(f"node {node_id} does not exist", node=node_id)
    return node


def _node_or_none(state: State, node_id: NodeId | None) -> Node | None:
    return None if node_id is None else _node(state, node_id)


def _lease(state: State, lease_id: LeaseId) -> Lease:
    lease = state.leases.get(lease_id)
    if lease is None:
        raise ReplayError(f"lease {lease_id} is not held", lease=lease_id)
    return lease


def _request(state: State, request_id: RequestId) -> Request:
    request = state.requests.get(request_id)
    if request is None:
        raise ReplayError(f"request {request_id!r} is not open", request=request_id)
    return request


def _full(state: State, pages: Pages) -> None:
    # A mark is looked for among bytes: for the few pages of an event that is a third of numpy's price.
    if TRUE in state.marks_full(pages, None, None, "clip").tobytes():
        strange = _strange(pages, first=1, last=state.full_pages)
        raise ReplayError(f"a Full page outside 1..{state.full_pages} is named: {strange}")


def _swa(state: State, pages: Pages) -> None:
    """As `_full`, but 0 stands for "no peer"."""
    marks = state.marks_swa(pages, None, None, "clip").tobytes()
    if TRUE in marks and marks.count(TRUE) != len(pages) - np.count_nonzero(pages):
        strange = _strange(pages, first=0, last=state.swa_pages)
        raise ReplayError(f"an SWA page outside 0..{state.swa_pages} is named: {strange}")


def _strange(pages: npt.NDArray[np.int64], *, first: int, last: int) -> int:
    return int(pages[(pages < first) | (pages > last)][0])


def _unequal(event: Event, count: int, *arrays: Pages | Sums) -> ReplayError:
    """What to raise where not all of `arrays` have `count` pages."""
    node = getattr(event, "node", None)
    what = event.kind if node is None else f"{event.kind} of node {node}"
    found = next((len(array) for array in arrays if len(array) != count), count)
    return ReplayError(f"{what}: {found} pages stand where there must be {count}")


def _pages_allocated(state: State, event: PagesAllocated) -> Request | None:
    if len(event.swa_pages) != len(event.full_pages):
        raise _unequal(event, len(event.full_pages), event.swa_pages)
    _full(state, event.full_pages)
    _swa(state, event.swa_pages)
    if event.owner is None:
        return None
    request = _request(state, event.owner)
    if event.row_start is None or not 0 <= event.row_start <= request.row_pages:
        raise ReplayError(
            f"pages_allocated continues the row of request {request.id!r} at {event.row_start}, "
            f"but the row has {request.row_pages} pages"
        )
    return request


def _pages_freed(state: State, event: PagesFreed) -> Request | None:
    if len(event.swa_pages) != len(event.full_pages):
        raise _unequal(event, len(event.full_pages), event.swa_pages)
    _full(state, event.full_pages)
    _swa(state, event.swa_pages)
    return None if event.owner is None else _request(state, event.owner)


def _node_created(state: State, event: NodeCreated) -> Node | None:
    count = len(event.full_pages)
    if event.node in state.nodes or not 0 <= event.node < LARGEST:
        raise ReplayError(f"node_created gives the id {event.node}, which is taken or none")
    if not -LARGEST < event.stamp < LARGEST:
        raise _too_large("stamp", event.stamp)
    if count == 0:
        raise ReplayError(f"node {event.node} is created without a page")
    expected = _HASHES.get(state.token_policy, count * state.page_size * TOKEN_BYTES)
    if len(event.tokens) != expected:
        raise ReplayError(
            f"node {event.node} is created with {len(event.tokens)} bytes of tokens for {count} pages "
            f"under the token policy {state.token_policy!r}, which stores {expected}"
        )
    _full(state, event.full_pages)
    if event.swa_pages is not None:
        if len(event.swa_pages) != count:
            raise _unequal(event, count, event.swa_pages)
        _swa(state, event.swa_pages)
    parent = _node_or_none(state, event.parent)
    above = 0 if parent is None else parent.end
    if event.start != above:
        raise ReplayError(f"node {event.node} starts at {event.start}, but its parent ends at {above}")
    return parent


def _node_split(state: State, event: NodeSplit) -> Node:
    node = _node(state, event.node)
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
    node = _node(state, event.node)
    parent = None if node.parent is None else node.parent.id
    if node.children:
        raise ReplayError(f"node {node.id} is deleted although it has {len(node.children)} children")
    if event.parent != parent:
        raise ReplayError(f"node {node.id} is deleted under {event.parent}, but its parent is {parent}")
    if len(event.full_pages) != len(node.full):
        raise _unequal(event, len(node.full), event.full_pages)
    _full(state, event.full_pages)
    if (event.swa_pages is None) != (node.swa is None):
        raise ReplayError(f"node_deleted and node {node.id} disagree whether it is a tombstone")
    if event.swa_pages is not None:
        if len(event.swa_pages) != len(node.full):
            raise _unequal(event, len(node.full), event.swa_pages)
        _swa(state, event.swa_pages)
    if event.parent_stamp is not None:
        _in_range("stamp", event.parent_stamp)
    return node


def _swa_tombstoned(state: State, event: SwaTombstoned) -> Node:
    node = _node(state, event.node)
    if node.swa is None:
        raise ReplayError(f"node {node.id} is tombstoned, but it is a tombstone already")
    if not len(event.full_pages) == len(event.swa_pages) == len(node.full):
        raise _unequal(event, len(node.full), event.full_pages, event.swa_pages)
    _full(state, event.full_pages)
    _swa(state, event.swa_pages)
    return node


def _swa_recovered(state: State, event: SwaRecovered) -> Node:
    node = _node(state, event.node)
    if node.swa is not None:
        raise ReplayError(f"node {node.id} is recovered, but it is no tombstone")
    if not len(event.node_full) == len(event.incoming_full) == len(event.swa_pages) == len(node.full):
        raise _unequal(event, len(node.full), event.node_full, event.incoming_full, event.swa_pages)
    _full(state, event.node_full)
    _full(state, event.incoming_full)
    _swa(state, event.swa_pages)
    if not -LARGEST < event.stamp < LARGEST:
        raise _too_large("stamp", event.stamp)
    return node


def _lock_acquired(state: State, event: LockAcquired) -> Node | None:
    if event.lease in state.leases:
        raise ReplayError(f"lease {event.lease} is acquired twice")
    if not (
        -LARGEST < event.lease < LARGEST
        and -LARGEST < event.length < LARGEST
        and -LARGEST < event.swa_from < LARGEST
    ):
        _in_range("lease", event.lease)
        _in_range("length", event.length)
        _in_range("SWA position", event.swa_from)
    return _node_or_none(state, event.node)


def _lock_released(state: State, event: LockReleased) -> Lease:
    return _lease(state, event.lease)


def _swa_lock_released(state: State, event: SwaLockReleased) -> Lease:
    lease = _lease(state, event.lease)
    if not lease.swa_held:
        raise ReplayError(
            f"the SWA half of lease {lease.id} is released, but it was given up before", lease=lease.id
        )
    return lease


def _node_touched(state: State, event: NodeTouched) -> list[Node]:
    if not -LARGEST < event.first_stamp < LARGEST:
        raise _too_large("stamp", event.first_stamp)
    nodes = state.nodes
    try:
        return [nodes[node_id] for node_id in event.nodes]
    except KeyError as error:
        missing = error.args[0]
        raise ReplayError(f"node {missing} does not exist", node=missing) from None


def _prefix_matched(state: State, event: PrefixMatched) -> Node | None:
    return _node_or_none(state, event.node)


def _request_opened(state: State, event: RequestOpened) -> Lease:
    if event.request_id in state.requests:
        raise ReplayError(f"request {event.request_id!r} is opened twice")
    _full(state, event.pages)
    return _lease(state, event.lease)


def _request_row_changed(state: State, event: RequestRowChanged) -> Request:
    request = _request(state, event.request_id)
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
    _full(state, event.pages)
    if event.lease is not None:
        _lease(state, event.lease)
    return request


def _request_closed(state: State, event: RequestClosed) -> Request:
    return _request(state, event.request_id)


def _mapping_set(state: State, event: MappingSet) -> None:
    if len(event.swa_pages) != len(event.full_pages):
        raise _unequal(event, len(event.full_pages), event.swa_pages)
    _full(state, event.full_pages)
    _swa(state, event.swa_pages)


def _kv_fingerprinted(state: State, event: KvFingerprinted) -> Node:
    node = _node(state, event.node)
    if not len(event.full_pages) == len(event.full_sums) == len(node.full):
        raise _unequal(event, len(node.full), event.full_pages, event.full_sums)
    _full(state, event.full_pages)
    if (event.swa_sums is None) != (node.swa is None):
        raise ReplayError(f"kv_fingerprinted and node {node.id} disagree whether it is a tombstone")
    if event.swa_sums is not None and len(event.swa_sums) != len(node.full):
        raise _unequal(event, len(node.full), event.swa_sums)
    return node


def _cache_reset(state: State, event: CacheReset) -> None:
    _in_range("generation", event.generation)


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
}
"""By event type: returns what the event is about (node, lease, request or list), or raises `ReplayError`."""
