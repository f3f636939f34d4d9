"""The cache's canonical state, and the tables of changes: the only way it changes.

Every event has a change and its reverse, registered by the modules of `changes/` and called by the ledger.
A change carries the event out and returns what its reverse will need; the reverse undoes it, given
that everything applied later has been undone before. Nothing else writes to nodes, pages, leases or
rows, so there is no mutation without an event.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kvledger.core.config import CacheConfig
from kvledger.core.counters import Counters
from kvledger.core.events import Cause, Pages
from kvledger.core.free_pages import EMPTY
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.core.inputs import TOKEN_BYTES
from kvledger.core.node import ROOT_ID, Node
from kvledger.core.page_table import FIRST_REQUEST, PageTable
from kvledger.core.pools import PageAllocator, fingerprinter
from kvledger.core.recency import Recency
from kvledger.core.references import References
from kvledger.core.retention import Retention

Token = Any
"""What a change leaves for its reverse; only the module of the change looks into it."""

FIRST_ROW_PAGES = 64
"""Room for this many pages in a new request's row; it doubles from there."""


class LeaseState:
    """One lock that holds: Full from `node` to the root, SWA on [swa_from, length) while `swa_held`."""

    __slots__ = (
        "cut_by_reset",
        "generation",
        "id",
        "length",
        "namespace",
        "node",
        "request_id",
        "swa_from",
        "swa_held",
    )

    def __init__(
        self,
        id: LeaseId,
        node: Node | None,
        *,
        namespace: str,
        request_id: RequestId | None,
        length: int,
        swa_from: int,
        generation: int,
    ) -> None:
        self.id = id
        self.node = node
        self.namespace = namespace
        self.request_id = request_id
        self.length = length
        self.swa_from = swa_from
        self.swa_held = True
        self.generation = generation
        self.cut_by_reset = False


class RequestState:
    """An open request: its row by page and its lease are canonical, its progress is not.

    The row's first `lease.length` tokens lie on the locked path, the pages after them are the request's own.
    """

    __slots__ = (
        "branch_len",
        "closed_by",
        "computed",
        "epoch",
        "frontier",
        "generation",
        "id",
        "lease",
        "namespace",
        "ordinal",
        "prefix_len",
        "publish_len",
        "reserved",
        "row",
        "row_pages",
        "tokens",
    )

    def __init__(self, id: RequestId, namespace: str, *, epoch: int, ordinal: int, generation: int) -> None:
        self.id = id
        self.namespace = namespace
        self.epoch = epoch
        self.ordinal = ordinal
        self.generation = generation
        self.lease: LeaseState | None = None
        self.closed_by: Cause | None = None
        self.row: Pages = np.empty(FIRST_ROW_PAGES, dtype=np.int32)
        self.row_pages = 0
        self.tokens = bytearray()
        self.reserved = 0
        self.computed = 0
        self.frontier = 0
        self.prefix_len = 0
        self.branch_len = 0
        self.publish_len = 0

    def write_row(self, first: int, pages: Pages) -> None:
        """Put pages at index `first`, growing the buffer when needed."""
        end = first + len(pages)
        if end > len(self.row):
            grown = np.empty(max(end, 2 * len(self.row)), dtype=np.int32)
            grown[: self.row_pages] = self.row[: self.row_pages]
            self.row = grown
        self.row[first:end] = pages

    def row_slice(self, first: int, end: int) -> Pages:
        """An owned, read-only copy of a part of the row."""
        if end <= first:
            return EMPTY
        part = self.row[first:end].copy()
        part.setflags(write=False)
        return part

    @property
    def protected(self) -> int:
        """Tokens of the row that lie on the locked path."""
        return 0 if self.lease is None else self.lease.length


class CacheState:
    """Tree, leases, requests and pages of one cache."""

    def __init__(self, config: CacheConfig, allocator: PageAllocator, *, vet: bool) -> None:
        self.config = config
        self.fingerprint = fingerprinter(config, allocator, foreign=vet)
        self.page_size = config.page_size
        self.page_bytes = config.page_size * TOKEN_BYTES
        self.window = config.sliding_window
        self.window_pages = config.window_pages
        self.window_tokens = config.window_pages * config.page_size
        self.pages = PageTable(config.full_pages, config.swa_pages, allocator, vet=vet)
        self.roots: dict[str, Node] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.retention: Retention | None = None
        if config.eviction == "lru-2":
            references = References(config.full_pages, config.page_size)
            self.retention = Retention(config.sliding_window, self.nodes, config.page_size, references)
        self.recency = (
            Recency(config.sliding_window, self.nodes) if self.retention is None else self.retention
        )
        self.leases: dict[LeaseId, LeaseState] = {}
        self.requests: dict[RequestId, RequestState] = {}
        self.shape = 0  # goes up when what a walk could see changes: nodes, their edges, live or tombstone
        self.last_walk: Any = None  # matching's own: what it found last, and in which shape
        self.generation = 0
        self.clock = 0
        self.torn = False  # a change or its reverse has begun and is not known to have ended
        self.locked_full = 0  # pages of nodes with a Full lock
        self.locked_swa = 0
        self.counters = Counters()
        self.next_node = 1
        self.next_lease = 1
        self.next_epoch = 1
        self.next_owner = FIRST_REQUEST

    def new_node_id(self) -> NodeId:
        """A node id never used before."""
        number = self.next_node
        self.next_node = number + 1
        return NodeId(number)

    def new_lease_id(self) -> LeaseId:
        """A lease id never used before."""
        number = self.next_lease
        self.next_lease = number + 1
        return LeaseId(number)

    def new_epoch(self) -> int:
        """An epoch never used before."""
        number = self.next_epoch
        self.next_epoch = number + 1
        return number

    def ticks(self, n: int = 1) -> int:
        """The first of the next `n` recency stamps. The clock goes back when a transaction is undone."""
        first = self.clock + 1
        self.clock += n
        return first

    @property
    def evictable_full(self) -> int:
        """Pages of nodes without a Full lock: all of them can be evicted, leaves first."""
        return self.pages.tree_full - self.locked_full

    @property
    def evictable_swa(self) -> int:
        """SWA pages of live nodes without an SWA lock."""
        return self.pages.tree_swa - self.locked_swa

    def root_or_new(self, namespace: str) -> Node:
        """The namespace's root, or one that joins the tree with its first child."""
        root = self.roots.get(namespace)
        if root is None:
            root = Node(ROOT_ID, None, namespace, key=b"", start=0, full=EMPTY, swa=None, stamp=0)
        return root


CHANGES: Final[dict[type, Callable[[CacheState, Any], Token]]] = {}
REVERSES: Final[dict[type, Callable[[CacheState, Any, Token], None]]] = {}


def change(
    kind: type, reverse: Callable[[CacheState, Any, Any], None]
) -> Callable[[Callable[[CacheState, Any], Token]], Callable[[CacheState, Any], Token]]:
    """Register a function as the change that an event kind stands for, with its reverse."""

    def register(function: Callable[[CacheState, Any], Token]) -> Callable[[CacheState, Any], Token]:
        CHANGES[kind] = function
        REVERSES[kind] = reverse
        return function

    return register
