"""SHA-256 of the canonical state in the byte layout of docs/format.md, section "Digest" (layout 1).

This is the journal's half of a pair: the cache computes the same bytes from its own structures, and
the two share nothing but the document.
"""

import hashlib
from collections.abc import Iterable
from io import BytesIO
from operator import attrgetter
from struct import Struct, pack
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvledger.core.events import Pages
from kvledger.journal.places import CALLER, DEFERRED, FREE

if TYPE_CHECKING:
    from kvledger.journal.state import State

MAGIC = b"KVLGR\x00\x01\x00"
I64 = np.dtype("<i8")
PAGE_BYTES = I64.itemsize
"""A page in the layout, whose integers are all 64-bit."""

_NODE = Struct("<7q").pack
_COUNT = Struct("<q").pack
_NOTHING = _COUNT(0)
_RECENCY = attrgetter("stamp", "start")


def state_digest(state: "State") -> str:
    """The digest of `state` as lower-case hex. Cost O(nodes + pages + pool)."""
    full_at = state.full_at[: state.full_pages + 1]
    swa_at = state.swa_at[: state.swa_pages + 1]
    mapped = np.flatnonzero(state.mapping[: state.full_pages + 1])
    parts = [
        MAGIC,
        pack("<5q", state.page_size, state.window, state.full_pages, state.swa_pages, state.generation),
        *_nodes(state),
        *_leases(state),
        *_requests(state),
        _array(np.flatnonzero(full_at == CALLER)),
        _array(mapped),
        _array(state.mapping[mapped]),
        _array(np.flatnonzero(full_at == FREE)),
        _array(np.flatnonzero(swa_at == FREE)),
        _array(np.flatnonzero(full_at == DEFERRED)),
        _array(np.flatnonzero(swa_at == DEFERRED)),
    ]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _array(pages: Pages | npt.NDArray[np.intp]) -> bytes:
    return _COUNT(len(pages)) + pages.astype(I64, copy=False).tobytes()


def _string(text: bytes) -> bytes:
    return pack("<q", len(text)) + text


def _nodes(state: "State") -> list[bytes]:
    first = {node: node.full.item(0) for node in state.nodes.values()}
    nodes = sorted(first, key=first.__getitem__)
    # The sort is stable: what is equally recent stays in the order of its first pages.
    rank = {node: place for place, node in enumerate(sorted(nodes, key=_RECENCY))}
    # All of them are widened together: most are short, and one by one that takes longer.
    arrays = [array for node in nodes for array in (node.full, node.swa) if array is not None]
    read = BytesIO(np.concatenate(arrays, dtype=I64).tobytes() if arrays else b"").read
    parts = [pack("<q", len(nodes))]
    for node in nodes:
        parent, tokens, full, swa = node.parent, node.tokens, node.full, node.swa
        if parent is None:
            above = 0
            name = node.namespace.encode()
            named = len(name)
        else:
            above = first[parent]
            name, named = b"", -1
        live = 0 if swa is None else 1
        locks = (node.full_lock, node.swa_lock)
        parts += (
            _NODE(above, node.start, rank[node], *locks, live, named),
            name,
            _COUNT(len(tokens)),
            tokens,
            _COUNT(len(full)),
            read(PAGE_BYTES * len(full)),
            _NOTHING if swa is None else _COUNT(len(swa)),
            b"" if swa is None else read(PAGE_BYTES * len(swa)),
        )
    return parts


def _leases(state: "State") -> Iterable[bytes]:
    yield pack("<q", len(state.leases))
    for lease_id, lease in sorted(state.leases.items()):
        first = 0 if lease.node is None else lease.node.full.item(0)
        yield pack("<5q", lease_id, first, lease.length, lease.swa_from, 1 if lease.swa_held else 0)


def _requests(state: "State") -> Iterable[bytes]:
    yield pack("<q", len(state.requests))
    for name, request in sorted(
        ((request.id.encode(), request) for request in state.requests.values()), key=lambda pair: pair[0]
    ):
        yield _string(name)
        yield _string(request.namespace.encode())
        yield pack("<q", -1 if request.lease is None else request.lease)
        yield _array(request.row)
