"""The canonical state a journal amounts to, as replay rebuilds it.

Owns the data: the radix tree of every namespace, leases, requests with their rows, the Full-to-SWA
mapping and the place of every page. It holds no rule of its own: which events fit is said in
`structure.py`, what they do in `effects.py`, both after docs/events.md. Nothing here knows the cache.

Where a page is stands in two arrays with one entry a page, in the codes of `places.py`. Entry 0, the
padding page, and one entry past the end read `OUTSIDE`, so that a clipped look-up of a wrong page
number shows. Which entries these are never changes: `marks_full` and `marks_swa` take them out of two
arrays of their own, as numpy's `take` does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core.events import CacheOpened, Origin, Pages
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.journal.arrays import PAGES
from kvledger.journal.digest import state_digest
from kvledger.journal.places import CALLER, DEFERRED, FIRST_REQUEST_CODE, FREE, OUTSIDE
from kvledger.journal.same_pages import Index
from kvledger.journal.tokens import TokenPolicy, policy_of

Indexed = tuple[Pages, npt.NDArray[np.intp]]
"""Pages, and the same as numpy looks up with them."""

FIRST_ROW_CAPACITY = 16
"""Pages a row has room for before it grows; it doubles from there, so that extending stays cheap."""

INDEX = np.dtype(np.intp)
"""What numpy looks up with: pages of any other integers it converts at every look-up."""

NO_PAGES: Pages = np.empty(0, PAGES)
"""Stands for the arrays that came last, before any did."""


@dataclass(slots=True, eq=False)
class Node:
    """One edge of the tree, [start, end) in tokens; `swa` is None for a tombstone.

    `tokens` is what the token policy stored: its int32 tokens, the hash of the prefix up to `end`, or
    nothing.
    """

    id: NodeId
    namespace: str
    parent: "Node | None"
    start: int
    end: int
    tokens: bytes
    full: Pages
    swa: Pages | None
    stamp: int
    full_origin: Origin
    swa_origin: Origin | None
    full_lock: int = 0
    swa_lock: int = 0
    children: dict[NodeId, "Node"] = field(default_factory=dict)

    @property
    def place(self) -> int:
        """What `full_at` reads for the pages of this node."""
        return self.id + 1

    @property
    def is_mixed(self) -> bool:
        """Whether its Full and SWA come from different forwards."""
        return self.swa_origin is not None and (
            self.full_origin.request_id != self.swa_origin.request_id
            or self.full_origin.epoch != self.swa_origin.epoch
        )


@dataclass(slots=True, eq=False)
class Lease:
    """One lock that is still held. `node` is None for an empty lock."""

    id: LeaseId
    node: Node | None
    namespace: str
    request_id: RequestId | None
    length: int
    swa_from: int
    generation: int
    swa_held: bool = True


class Request:
    """An open request. `code` is what `full_at` reads for the pages it holds."""

    __slots__ = ("_buffer", "code", "epoch", "id", "lease", "namespace", "row_pages")

    def __init__(
        self, *, request_id: RequestId, namespace: str, epoch: int, code: int, lease: LeaseId | None
    ) -> None:
        self.id = request_id
        self.namespace = namespace
        self.epoch = epoch
        self.code = code
        self.lease = lease
        self.row_pages = 0
        self._buffer: Pages = np.empty(FIRST_ROW_CAPACITY, PAGES)

    @property
    def row(self) -> Pages:
        """int32[row_pages] Full pages, a view that is valid until the row changes."""
        return self._buffer[: self.row_pages]

    def write_row(self, pages: Pages, *, first_page: int, row_pages: int) -> None:
        """Let the row read `pages` from `first_page` on and be `row_pages` long. Cost O(len(pages))."""
        if row_pages > len(self._buffer):
            grown = np.empty(max(row_pages, 2 * len(self._buffer)), PAGES)
            grown[: self.row_pages] = self._buffer[: self.row_pages]
            self._buffer = grown
        self._buffer[first_page : first_page + len(pages)] = pages
        self.row_pages = row_pages


@dataclass(frozen=True, slots=True)
class NodeView:
    """What one node looked like at one point of the journal; pages are page numbers."""

    id: NodeId
    namespace: str
    parent: NodeId | None
    children: tuple[NodeId, ...]
    start: int
    end: int
    tokens: bytes
    full_pages: Pages
    swa_pages: Pages | None
    full_lock: int
    swa_lock: int
    stamp: int
    full_origin: Origin
    swa_origin: Origin | None


@dataclass(frozen=True, slots=True)
class PoolPlaces:
    """How many pages of one pool are in each place; `total` is their sum in a healthy journal."""

    total: int
    free: int
    deferred: int
    tree: int
    held: int


class State:
    """Everything a journal says about one cache at one point. Changed only by `effects`."""

    def __init__(self, opened: CacheOpened) -> None:
        self.page_size = opened.page_size
        self.window = opened.window
        self.full_pages = opened.full_pages
        self.swa_pages = opened.swa_pages
        self.locked_recovery = opened.locked_recovery
        self.token_policy: TokenPolicy = policy_of(opened)
        self.generation = 0
        self.nodes: dict[NodeId, Node] = {}
        self.roots: dict[str, dict[NodeId, Node]] = {}
        self.leases: dict[LeaseId, Lease] = {}
        self.requests: dict[RequestId, Request] = {}
        self.mapping: Pages = np.zeros(self.full_pages + 2, PAGES)
        self.full_at: npt.NDArray[np.int64] = _places(self.full_pages, np.int64)
        self.swa_at: Pages = _places(self.swa_pages, np.int32)
        self.marks_full = (self.full_at == OUTSIDE).take
        self.marks_swa = (self.swa_at == OUTSIDE).take
        self.deferred_full: list[Pages] = []
        self.deferred_swa: list[Pages] = []
        self.next_request_code = FIRST_REQUEST_CODE
        nothing: Indexed = (NO_PAGES, NO_PAGES.astype(INDEX))
        self._indexes = (nothing, nothing)

    def index(self, pages: Pages) -> Index:
        """`pages` as numpy looks up with them.

        An event is checked, audited and applied with the same arrays: the last two that are read-only, one of
        each pool, are remembered.
        """
        # Compiled, a loop over the two would make tuples of them each time, and take seven times as long.
        last, before = self._indexes
        if last[0] is pages:
            return last[1]
        if before[0] is pages:
            return before[1]
        if len(pages) == 1 or pages.dtype is not PAGES or pages.flags.writeable:
            # One page is looked up as a number; with what is wide, or wrong, numpy does what it always does.
            return pages
        index = pages.astype(INDEX)
        # Set at once: whatever fails or interrupts, an array stands beside its own index.
        self._indexes = ((pages, index), last)
        return index

    @property
    def window_span(self) -> int:
        """Tokens of SWA that a lock pins: the window rounded up to pages."""
        return -(-self.window // self.page_size) * self.page_size

    def siblings(self, node: Node) -> dict[NodeId, Node]:
        """The children of the node's parent, or of its namespace: the dictionary that names it."""
        if node.parent is not None:
            return node.parent.children
        return self.roots.setdefault(node.namespace, {})

    def digest(self) -> str:
        """Lower-case hex SHA-256 of the canonical state (docs/format.md). Cost O(state)."""
        return state_digest(self)

    def view(self, node: Node) -> NodeView:
        """A frozen picture of `node`; arrays are shared with the state and never written again."""
        return NodeView(
            id=node.id,
            namespace=node.namespace,
            parent=None if node.parent is None else node.parent.id,
            children=tuple(node.children),
            start=node.start,
            end=node.end,
            tokens=node.tokens,
            full_pages=node.full,
            swa_pages=node.swa,
            full_lock=node.full_lock,
            swa_lock=node.swa_lock,
            stamp=node.stamp,
            full_origin=node.full_origin,
            swa_origin=node.swa_origin,
        )

    def walk(self, namespace: str | None = None) -> Iterator[NodeView]:
        """Views of all nodes, parents before children, of one namespace or of all (None)."""
        names = sorted(self.roots) if namespace is None else [namespace]
        for name in names:
            pending = list(reversed(self.roots.get(name, {}).values()))
            while pending:
                node = pending.pop()
                yield self.view(node)
                pending.extend(reversed(node.children.values()))

    def path(self, node: Node | None) -> list[Node]:
        """The nodes from the root side down to `node`; empty for None."""
        nodes: list[Node] = []
        while node is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes

    def places(self) -> tuple[PoolPlaces, PoolPlaces]:
        """Pages by place for (Full, SWA); an SWA page is where the Full page is that maps to it. O(pool)."""
        full = self.full_at[1 : self.full_pages + 1]
        swa = self.swa_at[1 : self.swa_pages + 1]
        homes = self.full_at[swa[swa > 0]]
        return (
            PoolPlaces(
                total=self.full_pages,
                free=int(np.count_nonzero(full == FREE)),
                deferred=int(np.count_nonzero(full == DEFERRED)),
                tree=int(np.count_nonzero(full > 0)),
                held=int(np.count_nonzero(full <= CALLER)),
            ),
            PoolPlaces(
                total=self.swa_pages,
                free=int(np.count_nonzero(swa == FREE)),
                deferred=int(np.count_nonzero(swa == DEFERRED)),
                tree=int(np.count_nonzero(homes > 0)),
                held=int(np.count_nonzero(homes <= CALLER)),
            ),
        )


def _places(pages: int, dtype: type[Any]) -> npt.NDArray[Any]:
    """All pages free, between the padding page and the entry that catches numbers past the end."""
    at = np.zeros(pages + 2, dtype)
    at[0] = at[-1] = OUTSIDE
    return at
