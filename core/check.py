"""The full walk: every invariant of the state, recomputed from scratch and compared.

Gathers all violations before it raises, each with the id of the invariant (DESIGN 9). For tests, for
debugging and on demand: it costs O(nodes + pages of both pools), and no operation calls it.
"""

from collections.abc import Iterator

import numpy as np

from kvledger.core.errors import InvariantViolation
from kvledger.core.node import Node, parent_of
from kvledger.core.page_table import (
    CALLER,
    DEFERRED,
    FIRST_REQUEST,
    FREE,
    SWA_BOUND,
    SWA_DEFERRED,
    SWA_FREE,
    TREE,
)
from kvledger.core.state import CacheState

Violation = tuple[str, str]


def check(state: CacheState, memory: list[Violation]) -> None:
    """Raise InvariantViolation with everything that is wrong; `memory` is what the pools found themselves."""
    found = [
        *memory,
        *_tree(state),
        *_locks(state),
        *_bindings(state),
        *_counts(state),
        *_requests(state),
    ]
    if found:
        raise InvariantViolation(found)


def _tree(state: CacheState) -> Iterator[Violation]:
    """Shape: keys, positions, links, namespaces; every node reachable exactly once."""
    seen: set[int] = set()
    stack: list[Node] = list(state.roots.values())
    for namespace, root in state.roots.items():
        if root.namespace != namespace or not root.children:
            yield "tree", f"the root of namespace {namespace!r} is empty or misplaced"
    while stack:
        node = stack.pop()
        for key, child in node.children.items():
            stack.append(child)
            if child.id in seen:
                yield "tree", f"{child!r} is reached twice"
            seen.add(child.id)
            if state.nodes.get(child.id) is not child:
                yield "tree", f"{child!r} hangs in the tree but is not registered"
            if child.parent is not node or child.start != node.end:
                yield "tree", f"{child!r} does not continue its parent {node!r}"
            if child.key[: state.page_bytes] != key or not child.key:
                yield "tree", f"{child!r} hangs under a key that is not its first page"
            if child.namespace != node.namespace:
                yield "namespace", f"{child!r} of {child.namespace!r} hangs in {node.namespace!r}"
            pages, rest = divmod(len(child.key), state.page_bytes)
            if rest or child.end - child.start != pages * state.page_size or len(child.full) != pages:
                yield "tree", f"{child!r}: tokens, positions and Full pages differ in length"
            if child.swa is not None and len(child.swa) != len(child.full):
                yield "mapping", f"{child!r}: SWA and Full pages differ in number"
    for id in state.nodes.keys() - seen:
        yield "tree", f"node {id} is registered but not reachable"


def _locks(state: CacheState) -> Iterator[Violation]:
    """Lock counts are exactly what the leases say."""
    full: dict[int, int] = dict.fromkeys(state.nodes, 0)
    swa: dict[int, int] = dict.fromkeys(state.nodes, 0)
    for lease in state.leases.values():
        node = lease.node
        if (0 if node is None else node.end) != lease.length:
            yield "lock-order", f"lease {lease.id} of {lease.length} tokens does not end with its node"
        while node is not None and not node.is_root:
            if node.id not in full:
                yield "locked-full", f"lease {lease.id} holds {node!r}, which is gone"
                break
            full[node.id] += 1
            if lease.swa_held and node.end > lease.swa_from:
                swa[node.id] += 1
                if node.start < lease.swa_from:
                    yield "lock-order", f"lease {lease.id} begins inside {node!r}"
            node = parent_of(node)
    for id, node in state.nodes.items():
        if (node.full_lock, node.swa_lock) != (full[id], swa[id]):
            yield "lock-order", f"{node!r} should be locked {full[id]}/{swa[id]}"
        if not node.full_lock >= node.swa_lock >= 0:
            yield "lock-order", f"{node!r}: the Full lock must cover the SWA lock"
        if node.swa is None and node.swa_lock:
            yield "tombstone-unlocked", f"the tombstone {node!r} carries an SWA lock"


def _bindings(state: CacheState) -> Iterator[Violation]:
    """Each page in one place; the mapping is what the nodes and holders say, and injective."""
    table = state.pages
    in_tree = np.zeros(len(table.owner), dtype=np.int64)
    for node in state.nodes.values():
        np.add.at(in_tree, node.full, 1)
        mapped = table.mapping[node.full]
        if not np.array_equal(mapped, np.zeros_like(node.full) if node.swa is None else node.swa):
            yield "mapping", f"{node!r}: the mapping of its Full pages is not its SWA pages"
    if (in_tree > 1).any():
        yield "conservation", f"Full page {int(np.argmax(in_tree > 1))} is bound to two node positions"
    wrong = np.flatnonzero((in_tree > 0) != (table.owner == TREE))
    if len(wrong):
        yield "conservation", f"Full page {int(wrong[0])} is in the tree or marked so, but not both"
    peers = table.mapping[table.mapping != 0]
    if len(np.unique(peers)) != len(peers):
        yield "mapping", "two Full pages map to one SWA page"
    bound = np.zeros(len(table.swa_state), dtype=bool)
    bound[peers] = True
    wrong = np.flatnonzero(bound != (table.swa_state == SWA_BOUND))
    if len(wrong):
        yield "mapping", f"SWA page {int(wrong[0])} is bound or marked so, but not both"
    loose = np.flatnonzero((table.mapping != 0) & ((table.owner == FREE) | (table.owner == DEFERRED)))
    if len(loose):
        yield "mapping", f"Full page {int(loose[0])} is free and still maps to something"
    if table.owner[0] != FREE or table.mapping[0] or table.swa_state[0]:
        yield "conservation", "the padding page is in use"


def _counts(state: CacheState) -> Iterator[Violation]:
    """Running counts equal what the page table and the tree add up to."""
    table = state.pages
    owner, swa_state = table.owner[1:], table.swa_state[1:]
    tree_swa = sum(len(node.swa) for node in state.nodes.values() if node.swa is not None)
    bound = int((swa_state == SWA_BOUND).sum())
    expected = {
        "free_full": int((owner == FREE).sum()),
        "tree_full": int((owner == TREE).sum()),
        "held_full": int((owner >= CALLER).sum() + (owner == DEFERRED).sum()),
        "free_swa": int((swa_state == SWA_FREE).sum()),
        "tree_swa": tree_swa,
        "held_swa": bound - tree_swa + int((swa_state == SWA_DEFERRED).sum()),
    }
    for name, value in expected.items():
        if getattr(table, name) != value:
            yield "conservation", f"{name} counts {getattr(table, name)} pages, there are {value}"
    locked_full = sum(len(n.full) for n in state.nodes.values() if n.full_lock)
    locked_swa = sum(len(n.swa) for n in state.nodes.values() if n.swa_lock and n.swa is not None)
    if (state.locked_full, state.locked_swa) != (locked_full, locked_swa):
        yield (
            "lock-order",
            f"locked pages count {state.locked_full}/{state.locked_swa}, not {locked_full}/{locked_swa}",
        )
    available = table.allocator.available()
    reusable = sum(map(len, table.reuse_full)) + len(table.spare_full)
    reusable_swa = sum(map(len, table.reuse_swa)) + len(table.spare_swa)
    if available != (table.free_full - reusable, table.free_swa - reusable_swa):
        yield "conservation", f"the allocator has {available} free pages, the cache counts otherwise"


def _requests(state: CacheState) -> Iterator[Violation]:
    """Every slot of a row is the request's own or lies on its locked path."""
    table = state.pages
    own_total = 0
    for request in state.requests.values():
        lease = request.lease
        protected = request.protected // state.page_size
        own = request.row[protected : request.row_pages]
        own_total += len(own)
        if len(own) and (table.owner[own] != request.ordinal).any():
            yield "row-safety", f"request {request.id!r} names pages past its lock that are not its own"
        node = None if lease is None else lease.node
        position = protected
        while node is not None and not node.is_root:
            first = position - len(node.full)
            if first < 0 or not np.array_equal(request.row[first:position], node.full):
                yield (
                    "row-safety",
                    f"the row of request {request.id!r} differs from its locked path at {node!r}",
                )
                break
            position = first
            node = parent_of(node)
        if lease is not None and state.leases.get(lease.id) is not lease:
            yield "row-safety", f"request {request.id!r} holds lease {lease.id}, which is gone"
        progress = [request.protected, request.computed, request.reserved]
        progress.append(request.row_pages * state.page_size)
        if progress != sorted(progress):
            yield (
                "row-safety",
                f"request {request.id!r} has {request.reserved} slots for {request.row_pages} pages, "
                f"{request.computed} of them computed and {request.protected} locked",
            )
    held = int((table.owner >= FIRST_REQUEST).sum())
    if held != own_total:
        yield "conservation", f"requests hold {held} pages, their rows name {own_total}"
