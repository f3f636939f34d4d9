"""Making room: least recently used first, and never anything locked.

Full: unlocked leaves, their SWA with them. SWA: nodes without SWA lock, those outside every window first;
internal nodes and Full-locked leaves become tombstones, unlocked leaves are deleted. With eviction "lru-2" a
node of which only the end is to be kept is cut, and what lies before goes. Whenever a leaf goes, unlocked
tombstone ancestors left childless go too, and are counted.
"""

from typing import Any

from kvledger.core.errors import OutOfSlots
from kvledger.core.events import Cause, Evicted, NodeDeleted, SwaTombstoned
from kvledger.core.inputs import PageArithmetic, check_count
from kvledger.core.locking import split
from kvledger.core.node import Node, parent_id, parent_of
from kvledger.core.transaction import Ledger, Scope


def delete(ledger: Ledger, node: Node, cause: Cause) -> None:
    """Delete a childless node and free its pages; a parent left a leaf takes over a later stamp."""
    parent = parent_of(node)
    inherits = not parent.is_root and len(parent.children) == 1 and node.stamp > parent.stamp
    ledger.apply(
        NodeDeleted(node.id, parent_id(node), cause, node.full, node.swa, node.stamp if inherits else None)
    )


def evict_tokens(
    ledger: Ledger, arithmetic: PageArithmetic, full_tokens: Any, swa_tokens: Any
) -> tuple[int, int]:
    """`HybridCache.evict`, past the check of the thread: tokens freed (full, swa); the rest as there."""
    config, page = ledger.state.config, ledger.state.page_size
    full = min(arithmetic.ceil(check_count(full_tokens, "full_tokens")), config.full_pages)
    swa = min(arithmetic.ceil(check_count(swa_tokens, "swa_tokens")), config.swa_pages)
    with Scope(ledger, "evict"):
        gone_full, gone_swa = evict(ledger, full, swa)
    return gone_full * page, gone_swa * page


def evict(ledger: Ledger, full_pages: int, swa_pages: int) -> tuple[int, int]:
    """Free at least so many pages where that many are evictable; returns the pages freed (full, swa)."""
    state = ledger.state
    full = swa = 0
    if full_pages <= 0 and swa_pages <= 0:
        return 0, 0
    while full < full_pages:
        node = state.recency.next_full()
        if node is None:
            break
        gone_full, gone_swa = _delete_with_ancestors(ledger, node)
        full += gone_full
        swa += gone_swa
    while swa < swa_pages:
        node = state.recency.next_swa()
        if node is not None and state.retention is not None:
            kept = state.retention.kept_from(node)
            if node.start < kept < node.end:
                node = split(ledger, node, kept)
        if node is None or node.swa is None:
            break
        if not node.children and not node.full_lock:
            gone_full, gone_swa = _delete_with_ancestors(ledger, node)
            full += gone_full
            swa += gone_swa
        else:
            swa += len(node.swa)
            ledger.apply(SwaTombstoned(node.id, Cause.CAPACITY, node.full, node.swa))
    state.recency.drop_outdated()
    page = state.page_size
    ledger.apply(Evicted(full_pages * page, swa_pages * page, full * page, swa * page))
    return full, swa


def make_room(ledger: Ledger, pages: int) -> None:
    """Evict until `pages` pages are free in both pools; OutOfSlots, before any event, if they cannot be."""
    state = ledger.state
    table = state.pages
    missing_full = pages - table.free_full
    missing_swa = pages - table.free_swa
    if missing_full <= 0 and missing_swa <= 0:
        return
    page = state.page_size
    if missing_full > state.evictable_full:
        raise OutOfSlots("full", pages * page, table.free_full * page, state.evictable_full * page)
    if missing_swa > state.evictable_swa:
        raise OutOfSlots("swa", pages * page, table.free_swa * page, state.evictable_swa * page)
    evict(ledger, max(0, missing_full), max(0, missing_swa))


def _delete_with_ancestors(ledger: Ledger, node: Node) -> tuple[int, int]:
    """Delete a leaf, then the unlocked tombstones above it that this leaves childless."""
    full, swa = len(node.full), 0 if node.swa is None else len(node.swa)
    parent = parent_of(node)
    delete(ledger, node, Cause.CAPACITY)
    while not parent.is_root and not parent.children and parent.swa is None and not parent.full_lock:
        above = parent_of(parent)
        full += len(parent.full)
        delete(ledger, parent, Cause.CASCADE)
        parent = above
    return full, swa
