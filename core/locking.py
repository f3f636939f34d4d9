"""Taking and giving back locks: split where the lock begins and ends, touch, lock.

A lock holds Full from a node to the root and exactly `min(length, page_ceil(W))` tokens of SWA. Its SWA
reach is a token position, so later splits cannot move it. A match ends in enough live tokens that the
SWA half never meets a tombstone.
"""

from typing import Any

from kvledger.core.errors import InvariantViolation
from kvledger.core.events import (
    FingerprintReason,
    LockAcquired,
    LockReleased,
    NodeSplit,
    NodeTouched,
    Pages,
    PrefixMatched,
    SwaLockReleased,
)
from kvledger.core.fingerprints import fingerprint, locked_once
from kvledger.core.ids import RequestId
from kvledger.core.inputs import (
    TOKEN_BYTES,
    PageArithmetic,
    check_count,
    check_namespace,
    num_tokens,
    pack_tokens,
)
from kvledger.core.matching import Walk, path_pages, walk, whole_pages
from kvledger.core.node import Node, parent_of
from kvledger.core.results import Lease
from kvledger.core.state import CacheState, LeaseState
from kvledger.core.transaction import Ledger, Scope
from kvledger.core.uses import Matched


def split(ledger: Ledger, node: Node, at: int) -> Node:
    """Cut a node at token position `at`, strictly inside it; returns the new head, `node` keeps the tail."""
    head = ledger.state.new_node_id()
    ledger.apply(NodeSplit(node.id, head, at, node.key[: (at - node.start) * TOKEN_BYTES]))
    return ledger.state.nodes[head]


def reusable_bytes(state: CacheState, key: bytes | bytearray) -> int:
    """How much of a request's key a match may cover: whole pages, and never its last token."""
    pages = max(0, num_tokens(key) - 1) // state.page_size
    return pages * state.page_bytes


def acquire(
    ledger: Ledger, arithmetic: PageArithmetic, tokens: Any, namespace: Any, max_length: Any
) -> Lease:
    """`HybridCache.acquire`, past the check of the thread: what it returns, errors and cost as there."""
    state = ledger.state
    key = pack_tokens(tokens)
    own_namespace = check_namespace(namespace)
    limit = whole_pages(state, key)
    if max_length is not None:
        limit = min(limit, check_count(max_length, "max_length") // state.page_size * state.page_bytes)
    with Scope(ledger, "acquire"):
        found, pages, lease = match_and_lock(ledger, namespace=own_namespace, key=key, limit=limit)
        state.counters.hit_tokens += found.length
    return receipt(lease, pages, arithmetic)


def receipt(lease: LeaseState, pages: Pages, arithmetic: PageArithmetic) -> Lease:
    """The receipt of a lock that holds now; `pages` are the Full pages under it."""
    return Lease(
        lease.id,
        lease.length,
        None if lease.node is None else lease.node.id,
        lease.swa_from,
        lease.generation,
        lease.request_id,
        pages,
        arithmetic,
        lease,
    )


def match_and_lock(
    ledger: Ledger,
    *,
    namespace: str,
    key: bytes | bytearray,
    limit: int,
    request_id: RequestId | None = None,
) -> tuple[Walk, Pages, LeaseState]:
    """Lock the longest usable prefix of `key[:limit]` (bytes, whole pages). O(limit + path)."""
    found = walk(ledger.state, namespace, key, limit)
    pages = path_pages(found, ledger.state.page_size)
    node = found.path[found.depth - 1] if found.depth else None
    lease = lock(
        ledger,
        node,
        namespace=namespace,
        length=found.length,
        full_length=found.reached,
        request_id=request_id,
    )
    if lease.node is not None:
        ledger.use(Matched(lease.node))
    return found, pages, lease


def lock(
    ledger: Ledger,
    node: Node | None,
    *,
    namespace: str,
    length: int,
    full_length: int,
    request_id: RequestId | None,
) -> LeaseState:
    """Lock the path that ends with `length` tokens inside or at the end of `node`. O(path)."""
    state = ledger.state
    swa_from = max(0, length - state.window_tokens)
    if node is not None and length < node.end:
        node = split(ledger, node, length)
    window: list[Node] = []
    if node is not None:
        window.append(node)
        while window[-1].start > swa_from:
            window.append(parent_of(window[-1]))
        if window[-1].start < swa_from:
            split(ledger, window[-1], swa_from)
        window.reverse()
    node_id = None if node is None else node.id
    ledger.apply(PrefixMatched(namespace, request_id, length, full_length, node_id))
    if window:
        ledger.apply(NodeTouched(tuple(n.id for n in window), state.ticks(len(window))))
        _check_live(window)
    lease = state.new_lease_id()
    ledger.apply(LockAcquired(lease, node_id, namespace, request_id, length, swa_from, state.generation))
    if state.fingerprint is not None:
        fingerprint(ledger, locked_once(node), FingerprintReason.LOCKED)
    return state.leases[lease]


def release(ledger: Ledger, lease: LeaseState, by_reset: bool = False) -> None:
    """Unlock what the lease still holds. O(path)."""
    if ledger.state.fingerprint is not None:
        fingerprint(ledger, locked_once(lease.node), FingerprintReason.UNLOCKED)
    node_id = None if lease.node is None else lease.node.id
    ledger.apply(LockReleased(lease.id, node_id, lease.request_id, lease.swa_held, by_reset))


def release_swa(ledger: Ledger, lease: LeaseState) -> None:
    """Unlock the SWA half. O(window)."""
    node_id = None if lease.node is None else lease.node.id
    ledger.apply(SwaLockReleased(lease.id, node_id, lease.request_id))


def _check_live(window: list[Node]) -> None:
    for node in window:
        if node.swa is None:
            raise InvariantViolation([("window-match", f"an SWA lock would meet the tombstone {node!r}")])
