"""The full state as bytes and back: what a checkpoint keeps, so that replay need not begin at the beginning.

Unlike the digest, which names nodes by their pages, a snapshot keeps everything that folding on depends on:
ids of nodes and leases, stamps, origins, epochs, lock counts, the codes of requests, the order of children.
A state that was restored (restore.py) folds on exactly as the one that was encoded would have, also where a
journal breaks the rules: what the places and the mapping say beyond what nodes imply is stored, not derived.

The layout is told in docs/format.md, "Checkpoint state".
"""

from collections.abc import Iterable, Sequence
from struct import pack

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import JournalError
from kvledger.core.events import Pages
from kvledger.core.ids import NodeId
from kvledger.journal.arrays import PAGES, pack_arrays
from kvledger.journal.state import Lease, Node, Request, State

MAGIC = b"KVLGS\x00\x01\x00"
"""Mark and version of the layout."""

ABSENT = -(2**63)
"""Stands in a column for None: no id, row or place of a string can be it."""

LIVE, SWA_ORIGIN = 1, 2
"""Bits of a node's flags: it has SWA pages; it has an SWA origin."""

NODE_COLUMNS = 13
LEASE_COLUMNS = 8
REQUEST_COLUMNS = 5


def encode_state(state: State) -> bytes:
    """The bytes of `state`, which must stand between two transactions; equal states give equal bytes.

    Raises JournalError inside a transaction, or where a lock is on a node that was deleted. Changes nothing.
    Cost: O(state).
    """
    if state.deferred_full or state.deferred_swa:
        raise JournalError("a state inside a transaction cannot be stored: pages wait for its end")
    texts = _Texts()
    nodes = _in_order(state)
    rows = {node.id: row for row, node in enumerate(nodes)}
    arrays: list[Pages] = []
    for node in nodes:
        arrays.append(node.full)
        if node.swa is not None:
            arrays.append(node.swa)
    requests = list(state.requests.values())
    arrays += [request.row for request in requests]
    codes, corrections = _corrections(state, nodes)
    arrays += corrections

    node_rows = [_node_row(node, rows, texts) for node in nodes]
    lease_rows = [_lease_row(lease, rows, texts) for lease in state.leases.values()]
    request_rows = [_request_row(request, texts) for request in requests]
    packed = pack_arrays(arrays)
    return b"".join(
        [
            MAGIC,
            _column(
                [
                    state.page_size,
                    state.window,
                    state.full_pages,
                    state.swa_pages,
                    state.generation,
                    state.next_request_code,
                ]
            ),
            _string(state.locked_recovery.encode()),
            _string(state.token_policy.encode()),
            pack("<q", len(texts.kept)),
            *[_string(text.encode()) for text in texts.kept],
            *_table(node_rows, NODE_COLUMNS),
            _string(b"".join([node.tokens for node in nodes])),
            *_table(lease_rows, LEASE_COLUMNS),
            *_table(request_rows, REQUEST_COLUMNS),
            _column(codes),
            _column([elements for elements, _, _ in packed]),
            _column([runs for _, runs, _ in packed]),
            *[data for _, _, data in packed],
        ]
    )


def _in_order(state: State) -> list[Node]:
    """All nodes, parents before children, namespaces by name, children in the order they came."""
    nodes: list[Node] = []
    for name in sorted(state.roots):
        pending = list(reversed(state.roots[name].values()))
        while pending:
            node = pending.pop()
            nodes.append(node)
            pending.extend(reversed(node.children.values()))
    return nodes


class _Texts:
    """Every text once, in order of first use; rows name it by its place."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}

    def place(self, text: str | None) -> int:
        return ABSENT if text is None else self.kept.setdefault(text, len(self.kept))


def _node_row(node: Node, rows: dict[NodeId, int], texts: _Texts) -> Sequence[int]:
    swa_origin = node.swa_origin
    return (
        node.id,
        ABSENT if node.parent is None else rows[node.parent.id],
        texts.place(node.namespace),
        node.start,
        node.stamp,
        node.full_lock,
        node.swa_lock,
        (0 if node.swa is None else LIVE) | (0 if swa_origin is None else SWA_ORIGIN),
        texts.place(node.full_origin.request_id),
        node.full_origin.epoch,
        ABSENT if swa_origin is None else texts.place(swa_origin.request_id),
        0 if swa_origin is None else swa_origin.epoch,
        len(node.tokens),
    )


def _lease_row(lease: Lease, rows: dict[NodeId, int], texts: _Texts) -> Sequence[int]:
    row = ABSENT if lease.node is None else rows.get(lease.node.id)
    if row is None:
        raise JournalError(f"lease {lease.id} locks a node that was deleted: this state cannot be stored")
    return (
        lease.id,
        row,
        texts.place(lease.namespace),
        texts.place(lease.request_id),
        lease.length,
        lease.swa_from,
        lease.generation,
        int(lease.swa_held),
    )


def _request_row(request: Request, texts: _Texts) -> Sequence[int]:
    return (
        texts.place(request.id),
        texts.place(request.namespace),
        request.epoch,
        request.code,
        ABSENT if request.lease is None else request.lease,
    )


def implied_places(state: State, nodes: Iterable[Node]) -> tuple[npt.NDArray[np.int64], Pages, Pages]:
    """Full places, mapping and SWA places as the nodes alone imply them."""
    full_at = np.zeros_like(state.full_at)
    mapping = np.zeros_like(state.mapping)
    for node in nodes:
        at = node.full.astype(np.intp)
        full_at[at] = node.place
        if node.swa is not None:
            mapping[at] = node.swa
    return full_at, mapping, beside_pages(state, mapping)


def beside_pages(state: State, mapping: Pages) -> Pages:
    """SWA places as `mapping` alone implies them."""
    swa_at = np.zeros_like(state.swa_at)
    mapped = np.flatnonzero(mapping)
    swa_at[mapping[mapped]] = mapped
    return swa_at


def _corrections(state: State, nodes: Sequence[Node]) -> tuple[list[int], list[Pages]]:
    """What is not as the nodes imply: Full pages by code, mapping entries, SWA places by code."""
    full_at, mapping, _ = implied_places(state, nodes)
    codes: list[int] = []
    arrays: list[Pages] = []
    inside = slice(1, state.full_pages + 1)
    differ = _where(full_at[inside] != state.full_at[inside]) + 1
    found = state.full_at[differ]
    for code in np.unique(found).tolist():
        codes.append(code)
        arrays.append(differ[found == code])
    mapped = _where(mapping != state.mapping)
    arrays += [mapped, state.mapping[mapped]]
    inside = slice(1, state.swa_pages + 1)
    swa_at = beside_pages(state, state.mapping)
    strayed = _where(swa_at[inside] != state.swa_at[inside]) + 1
    arrays += [strayed, state.swa_at[strayed]]
    return codes, arrays


def _where(differs: npt.NDArray[np.bool_]) -> Pages:
    return np.flatnonzero(differs).astype(PAGES)


def _column(values: Sequence[int]) -> bytes:
    return pack("<q", len(values)) + np.array(values, "<i8").tobytes()


def _table(rows: Sequence[Sequence[int]], columns: int) -> Iterable[bytes]:
    for values in zip(*rows, strict=True) if rows else [()] * columns:
        yield _column(values)


def _string(text: bytes) -> bytes:
    return pack("<q", len(text)) + text
