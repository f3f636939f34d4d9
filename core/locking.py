"""Taking and giving back locks: split where the lock begins and ends, touch, lock.

A lock holds Full from a node to the root and exactly `min(length, page_ceil(W))` tokens of SWA. Its SWA
reach is a token position, so later splits cannot move it. A match ends in enough live tokens that the
SWA half never meets a tombstone.
"""

from kvledger.core.errors import InvariantViolation
from kvledger.core.events import (
    LockAcquired,
    LockReleased,
    NodeSplit,
    NodeTouched,
    PrefixMatched,
    SwaLockReleased,
)
from kvledger.core.ids import RequestId
from kvledger.core.inputs import TOKEN_BYTES
from kvledger.core.node import Node, parent_of
from kvledger.core.state import LeaseState
from kvledger.core.transaction import Ledger


def split(ledger: Ledger, node: Node, at: int) -> Node:
    """Cut a node at token position `at`, strictly inside it; returns the new head, `node` keeps the tail."""
    head = ledger.state.new_node_id()
    ledger.apply(NodeSplit(node.id, head, at, node.key[: (at - node.start) * TOKEN_BYTES]))
    return ledger.state.nodes[head]


def lock(
    ledger: Ledger,
    node: Node | None,
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
    if node is not None:
        top = node
        window = [node.id]
        while top.start > swa_from:
            top = parent_of(top)
            window.append(top.id)
        if top.start < swa_from:
            split(ledger, top, swa_from)
        window.reverse()
    node_id = None if node is None else node.id
    ledger.apply(PrefixMatched(namespace, request_id, length, full_length, node_id))
    if node is not None:
        first = state.clock + 1
        state.clock += len(window)
        ledger.apply(NodeTouched(tuple(window), first))
        _check_live(node, swa_from)
    lease = state.new_lease_id()
    ledger.apply(LockAcquired(lease, node_id, namespace, request_id, length, swa_from, state.generation))
    return state.leases[lease]


def release(ledger: Ledger, lease: LeaseState, by_reset: bool = False) -> None:
    """Unlock what the lease still holds. O(path)."""
    node_id = None if lease.node is None else lease.node.id
    ledger.apply(LockReleased(lease.id, node_id, lease.request_id, lease.swa_held, by_reset))


def release_swa(ledger: Ledger, lease: LeaseState) -> None:
    """Unlock the SWA half. O(window)."""
    node_id = None if lease.node is None else lease.node.id
    ledger.apply(SwaLockReleased(lease.id, node_id, lease.request_id))


def _check_live(node: Node, swa_from: int) -> None:
    current = node
    while not current.is_root and current.start >= swa_from:
        if current.swa is None:
            raise InvariantViolation([("window-match", f"an SWA lock would meet the tombstone {current!r}")])
        current = parent_of(current)
