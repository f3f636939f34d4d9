"""The digest of the canonical state, laid out byte for byte in docs/format.md.

Replay computes the same bytes from the journal with code of its own; a change that emitted no event
makes the two differ at the next checkpoint.
"""

import hashlib
import struct

import numpy as np

from kvledger.core.events import Pages, WidePages
from kvledger.core.ids import NodeId
from kvledger.core.node import Node, parent_of
from kvledger.core.page_table import CALLER, DEFERRED, FREE, SWA_DEFERRED, SWA_FREE
from kvledger.core.sinks import TokenForm
from kvledger.core.state import CacheState

MAGIC = b"KVLGR\x00\x01\x00"


def digest(state: CacheState, form: TokenForm) -> str:
    """SHA-256 of the canonical state, hex; tokens enter in the form they are stored in. O(nodes + pages)."""
    out = hashlib.sha256(MAGIC)
    config = state.config
    out.update(
        _integers(
            config.page_size, config.sliding_window, config.full_pages, config.swa_pages, state.generation
        )
    )
    _nodes(out, state, form)
    _leases(out, state)
    _requests(out, state, form)
    _pages(out, state)
    return out.hexdigest()


def _nodes(out: "hashlib._Hash", state: CacheState, form: TokenForm) -> None:
    keys = _keys(state, form)
    nodes = sorted(state.nodes.values(), key=lambda node: int(node.full[0]))
    by_stamp = sorted(nodes, key=lambda node: (node.stamp, node.start, int(node.full[0])))
    ranks = {node.id: rank for rank, node in enumerate(by_stamp)}
    out.update(_integers(len(nodes)))
    for node in nodes:
        parent = parent_of(node)
        above = 0 if parent.is_root else int(parent.full[0])
        out.update(
            _integers(
                above,
                node.start,
                ranks[node.id],
                node.full_lock,
                node.swa_lock,
                0 if node.swa is None else 1,
            )
        )
        out.update(_string(form.namespace(node.namespace).encode()) if parent.is_root else _integers(-1))
        out.update(_string(keys[node.id]))
        out.update(_array(node.full))
        out.update(_integers(0) if node.swa is None else _array(node.swa))


def _keys(state: CacheState, form: TokenForm) -> dict[NodeId, bytes]:
    """What stands for each node's tokens, from the root side down."""
    keys: dict[NodeId, bytes] = {}
    for namespace, root in state.roots.items():
        stack = [(form.seed(namespace), node) for node in root.children.values()]
        while stack:
            above, node = stack.pop()
            keys[node.id] = key = form.node(above, node.key)
            stack.extend((key, child) for child in node.children.values())
    return keys


def _leases(out: "hashlib._Hash", state: CacheState) -> None:
    out.update(_integers(len(state.leases)))
    for id, lease in sorted(state.leases.items()):
        out.update(
            _integers(id, _first_page(lease.node), lease.length, lease.swa_from, 1 if lease.swa_held else 0)
        )


def _first_page(node: Node | None) -> int:
    return 0 if node is None else int(node.full[0])


def _requests(out: "hashlib._Hash", state: CacheState, form: TokenForm) -> None:
    out.update(_integers(len(state.requests)))
    for id, request in sorted((id.encode(), request) for id, request in state.requests.items()):
        out.update(_string(id))
        out.update(_string(form.namespace(request.namespace).encode()))
        out.update(_integers(-1 if request.lease is None else request.lease.id))
        out.update(_array(request.row[: request.row_pages]))


def _pages(out: "hashlib._Hash", state: CacheState) -> None:
    table = state.pages
    owner, swa_state = table.owner[1:], table.swa_state[1:]
    mapped = np.flatnonzero(table.mapping)
    for pages in (
        np.flatnonzero(owner == CALLER) + 1,
        mapped,
        table.mapping[mapped],
        np.flatnonzero(owner == FREE) + 1,
        np.flatnonzero(swa_state == SWA_FREE) + 1,
        np.flatnonzero(owner == DEFERRED) + 1,
        np.flatnonzero(swa_state == SWA_DEFERRED) + 1,
    ):
        out.update(_array(pages))


def _integers(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _string(data: bytes) -> bytes:
    return struct.pack("<q", len(data)) + data


def _array(pages: Pages | WidePages) -> bytes:
    return struct.pack("<q", len(pages)) + np.ascontiguousarray(pages, dtype="<i8").tobytes()
