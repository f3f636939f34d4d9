"""Changes of locks: a lease takes hold of a path and lets go of it, as a whole or its SWA half."""

from kvledger.core.events import LockAcquired, LockReleased, SwaLockReleased
from kvledger.core.node import Node
from kvledger.core.state import CacheState, LeaseState, change


def _lock(state: CacheState, node: Node | None, swa_from: int, *, full: bool, swa: bool) -> None:
    """Raise the counts from `node` to the root: Full everywhere, SWA from position `swa_from` on."""
    while node is not None and node.parent is not None:
        if full:
            if not node.full_lock:
                state.locked_full += len(node.full)
            node.full_lock += 1
        if swa and node.start >= swa_from:
            if not node.swa_lock and node.swa is not None:
                state.locked_swa += len(node.swa)
            node.swa_lock += 1
        elif not full:
            return
        node = node.parent


def _unlock(state: CacheState, node: Node | None, swa_from: int, *, full: bool, swa: bool) -> None:
    """Reverse of `_lock`; a node left without a lock is offered for eviction."""
    while node is not None and node.parent is not None:
        offered = False
        if swa and node.start >= swa_from:
            node.swa_lock -= 1
            if not node.swa_lock and node.swa is not None:
                state.locked_swa -= len(node.swa)
                offered = True
        elif not full:
            return
        if full:
            node.full_lock -= 1
            if not node.full_lock:
                state.locked_full -= len(node.full)
                offered = True
        if offered:
            state.recency.offer(node)
        node = node.parent


def _acquired_back(state: CacheState, event: LockAcquired, token: None) -> None:
    lease = state.leases.pop(event.lease)
    _unlock(state, lease.node, lease.swa_from, full=True, swa=True)


@change(LockAcquired, _acquired_back)
def _acquired(state: CacheState, event: LockAcquired) -> None:
    node = None if event.node is None else state.nodes[event.node]
    lease = LeaseState(
        event.lease,
        node,
        namespace=event.namespace,
        request_id=event.request_id,
        length=event.length,
        swa_from=event.swa_from,
        generation=event.generation,
    )
    state.leases[lease.id] = lease
    _lock(state, node, event.swa_from, full=True, swa=True)


def _released_back(state: CacheState, event: LockReleased, token: LeaseState) -> None:
    state.leases[token.id] = token
    token.cut_by_reset = False
    _lock(state, token.node, token.swa_from, full=True, swa=token.swa_held)


@change(LockReleased, _released_back)
def _released(state: CacheState, event: LockReleased) -> LeaseState:
    lease = state.leases.pop(event.lease)
    lease.cut_by_reset = event.by_reset
    _unlock(state, lease.node, lease.swa_from, full=True, swa=lease.swa_held)
    return lease


def _swa_released_back(state: CacheState, event: SwaLockReleased, token: LeaseState) -> None:
    token.swa_held = True
    _lock(state, token.node, token.swa_from, full=False, swa=True)


@change(SwaLockReleased, _swa_released_back)
def _swa_released(state: CacheState, event: SwaLockReleased) -> LeaseState:
    lease = state.leases[event.lease]
    lease.swa_held = False
    _unlock(state, lease.node, lease.swa_from, full=False, swa=True)
    return lease
