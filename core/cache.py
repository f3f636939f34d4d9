"""HybridCache: what a scheduler holds. Checks arguments, opens transactions, answers queries.

The rules live in the modules it calls; here is only what a call may be given, what it runs in and
what it returns.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kvledger.core.caller_transaction import Transaction
from kvledger.core.check import check
from kvledger.core.config import CacheConfig
from kvledger.core.digest import digest
from kvledger.core.errors import (
    DoubleFree,
    ForeignSlots,
    InvalidArgument,
    OutOfSlots,
    StaleLease,
    TransactionError,
)
from kvledger.core.events import CacheOpened, CallIgnored, Cause, Checkpoint, Pages
from kvledger.core.eviction import evict_tokens
from kvledger.core.held_pages import free_held, free_held_swa, take_pages
from kvledger.core.ids import NodeId, RequestId
from kvledger.core.inputs import (
    PageArithmetic,
    Slots,
    as_slots,
    check_count,
    check_name,
    check_namespace,
    check_request_id,
    num_tokens,
    pack_tokens,
)
from kvledger.core.locking import acquire, release, release_swa, reusable_bytes
from kvledger.core.matching import explain, match_prefix, taken_by_lock, walk, whole_pages
from kvledger.core.page_arrays import widened
from kvledger.core.page_table import CALLER
from kvledger.core.pools import PageAllocator
from kvledger.core.raw_insert import advance, insert, insert_after, insert_row
from kvledger.core.requests import Request, open_request
from kvledger.core.reset import reset
from kvledger.core.results import (
    Advanced,
    Evicted,
    Explanation,
    Inserted,
    Lease,
    Match,
    NodeView,
    Sizes,
    Statistics,
)
from kvledger.core.row_passes import all_set
from kvledger.core.sinks import EventSink, PlainTokens, TokenForm
from kvledger.core.state import CacheState, LeaseState
from kvledger.core.transaction import Ledger, Scope
from kvledger.core.views import node_view, sizes, statistics


class HybridCache:
    """A prefix cache over a Full and an SWA pool, shared between requests.

    `sink` takes every transaction (None: nothing is recorded); `pool` owns the memory (None: tensors and
    free sets of our own). Belongs to the thread of its first mutating call.
    """

    def __init__(
        self, config: CacheConfig, sink: EventSink | None = None, pool: PageAllocator | None = None
    ) -> None:
        self.config = config
        self._arithmetic = PageArithmetic(config.page_size, config.full_pages)
        self.pool: Any = pool
        if pool is None:
            # Imported here because torch takes seconds to load, and a reader of journals has no use for it.
            from kvledger.core.device_pools import DevicePools

            self.pool = DevicePools(config)
        self._state = CacheState(config, self.pool, vet=pool is not None)
        self._ledger = Ledger(self._state, sink)
        self._token_form: TokenForm = getattr(sink, "token_form", None) or PlainTokens()
        self._check_memory: Callable[[], list[tuple[str, str]]] | None = None
        if pool is None:
            self.pool.bind(self._state.pages, lambda: self._ledger.depth > 0)
            self._check_memory = self.pool.check
        with Scope(self._ledger, "open"):
            self._ledger.apply(
                CacheOpened(
                    config.page_size,
                    config.sliding_window,
                    config.full_pages,
                    config.swa_pages,
                    config.locked_recovery,
                    config.told(),
                )
            )
        self._ledger.hand_over()

    # Requests

    def open_request(self, request_id: str, token_ids: Any, namespace: str = "") -> Request:
        """Open a request on its longest reusable prefix, locked; at most all tokens but the last.

        `token_ids`: int32[n] best, n >= 1. InvalidArgument for an id that is open. O(tokens + path).
        """
        self._ledger.check_writer()
        return open_request(
            self._ledger,
            self._arithmetic,
            RequestId(check_request_id(request_id)),
            pack_tokens(token_ids),
            check_namespace(namespace),
        )

    # Queries

    def match_prefix(self, tokens: Any, namespace: str = "") -> Match:
        """The longest usable prefix: no split, no recency, no event. O(tokens compared + path)."""
        self._ledger.check_reader()
        return match_prefix(self._state, self._arithmetic, tokens, namespace)

    def explain(self, tokens: Any, namespace: str = "") -> Explanation:
        """Why the match is not longer. A pure query, as costly as a match."""
        self._ledger.check_reader()
        key = pack_tokens(tokens)
        found = walk(self._state, check_namespace(namespace), key, whole_pages(self._state, key))
        return explain(found, self._state, num_tokens(key))

    def can_fit(self, tokens: Any, new_tokens: int, namespace: str = "") -> bool:
        """Would `open_request(tokens)` and then `extend(new_tokens)` succeed now? A pure query.

        Counts free and evictable pages of both pools, less what locking the match would pin.
        """
        self._ledger.check_reader()
        key = pack_tokens(tokens)
        new_tokens = check_count(new_tokens, "new_tokens")
        page = self._state.page_size
        found = walk(self._state, check_namespace(namespace), key, reusable_bytes(self._state, key))
        pinned_full, pinned_swa = taken_by_lock(found, self._state)
        needed = self._arithmetic.ceil(new_tokens)
        state, table = self._state, self._state.pages
        room_full = table.free_full + state.evictable_full - pinned_full // page
        room_swa = table.free_swa + state.evictable_swa - pinned_swa // page
        return needed <= room_full and needed <= room_swa

    def swa_slots(self, slots: Any) -> Slots:
        """The SWA slot beside each Full slot, 0 for none: int64[n]. ForeignSlots outside the pool. O(n)."""
        self._ledger.check_reader()
        rows = as_slots(slots)
        page = self._state.page_size
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= self._arithmetic.slot_limit):
            raise ForeignSlots(f"slots must lie in [0, {self._arithmetic.slot_limit})")
        pages = rows // page
        swa = widened(self._state.pages.mapping[pages])
        peers: Slots = np.where(swa != 0, swa * page + (rows - pages * page), 0)
        return peers

    def sizes(self) -> Sizes:
        """Tokens by where they are: `total == free + evictable + protected + held` in each pool. O(1)."""
        self._ledger.check_reader()
        return sizes(self._state)

    def stats(self) -> Statistics:
        """Counters since the cache was opened. O(nodes)."""
        self._ledger.check_reader()
        return statistics(self._state)

    def node(self, id: int) -> NodeView:
        """One node. InvalidArgument if there is none of that id."""
        self._ledger.check_reader()
        node = self._state.nodes.get(NodeId(check_count(id, "node id")))
        if node is None:
            raise InvalidArgument(f"no node {id!r}")
        return node_view(node, self._arithmetic)

    def nodes(self, namespace: str | None = None) -> list[NodeView]:
        """All nodes, or those of one namespace, by id. O(nodes + pages)."""
        self._ledger.check_reader()
        if namespace is not None:
            check_namespace(namespace)
        return [
            node_view(node, self._arithmetic)
            for _, node in sorted(self._state.nodes.items())
            if namespace is None or node.namespace == namespace
        ]

    def check(self) -> None:
        """Walk everything; InvariantViolation names all that is wrong. O(nodes + pages)."""
        self._ledger.check_reader()
        check(self._state, self._check_memory() if self._check_memory is not None else [])

    def digest(self) -> str:
        """SHA-256 of the canonical state (docs/format.md). O(nodes + pages)."""
        self._ledger.check_reader()
        return digest(self._state, self._token_form)

    # Locks

    def acquire(self, tokens: Any, namespace: str = "", max_length: int | None = None) -> Lease:
        """Match, split, touch and lock in one transaction; `max_length` caps the reuse. O(tokens + path)."""
        self._ledger.check_writer()
        return acquire(self._ledger, self._arithmetic, tokens, namespace, max_length)

    def release(self, lease: Lease) -> None:
        """Give a lock back. StaleLease the second time; a no-op after a reset. O(path)."""
        state = self._live_lease(lease, "release")
        if state is not None:
            with Scope(self._ledger, "release"):
                release(self._ledger, state)

    def release_swa(self, lease: Lease) -> None:
        """Give the SWA half back, once decode has left it. StaleLease the second time. O(window)."""
        state = self._live_lease(lease, "release_swa")
        if state is None:
            return
        if not state.swa_held:
            raise StaleLease(f"the SWA half of lease {lease.id} was released before")
        with Scope(self._ledger, "release_swa"):
            release_swa(self._ledger, state)

    # Raw pages

    def alloc(self, num_tokens: int) -> Slots:
        """Full slots, each with an SWA peer mapped: int64[num_tokens], whole pages. Never evicts.

        UnalignedLength, OutOfSlots. O(pages).
        """
        return self._alloc("alloc", num_tokens, with_swa=True)

    def alloc_full_only(self, num_tokens: int) -> Slots:
        """Full slots without a peer, for prefixes whose SWA was never computed."""
        return self._alloc("alloc_full_only", num_tokens, with_swa=False)

    def insert(
        self, tokens: Any, slots: Any, namespace: str = "", protected_len: int = 0, swa_evicted_len: int = 0
    ) -> Inserted:
        """Give the tree `slots[protected_len:]`; it adopts what it lacks and frees the rest.

        `tokens` and `slots`, of one length, whole pages. `slots[:protected_len]` must be the tree's own.
        UnalignedLength, InvalidArgument, ForeignSlots, DoubleFree, MissingSwa. O(pages + path).
        """
        self._ledger.check_writer()
        row, start = insert_row(
            self._state,
            self._arithmetic,
            key=pack_tokens(tokens),
            slots=as_slots(slots),
            namespace=check_namespace(namespace),
            protected_len=check_count(protected_len, "protected_len"),
            swa_evicted_len=check_count(swa_evicted_len, "swa_evicted_len"),
        )
        return insert(self._ledger, row, start)

    def insert_after(self, lease: Lease, tokens: Any, slots: Any, swa_evicted_len: int = 0) -> Inserted:
        """Insert `tokens`, whole pages that continue what `lease` locks, with their slots.

        Like `insert` of the whole, without looking the locked part up again; positions, as in
        `swa_evicted_len`, count from the beginning of the prefix. StaleLease too. O(new pages).
        """
        self._ledger.check_writer()
        return insert_after(
            self._ledger,
            self._arithmetic,
            lease=lease,
            tokens=tokens,
            slots=slots,
            swa_evicted_len=swa_evicted_len,
        )

    def advance(self, lease: Lease, tokens: Any, slots: Any, swa_evicted_len: int = 0) -> Advanced:
        """Insert as `insert_after` does and move the lock to the new end, in one transaction.

        The new lease holds both halves; the old one is released. What a match would not reach is refused:
        those slots stay the caller's. InvalidArgument for an end less than a window past a `swa_evicted_len`
        beyond the lease, or past a lease whose SWA half was given back. O(new pages + nodes on the path), and
        the page numbers of the lease are copied.
        """
        self._ledger.check_writer()
        return advance(
            self._ledger,
            self._arithmetic,
            lease=lease,
            tokens=tokens,
            slots=slots,
            swa_evicted_len=swa_evicted_len,
        )

    def evict(self, full_tokens: int = 0, swa_tokens: int = 0) -> Evicted:
        """Free at least so many tokens where that many are evictable; returns what was freed. O(freed)."""
        self._ledger.check_writer()
        return Evicted(*evict_tokens(self._ledger, self._arithmetic, full_tokens, swa_tokens))

    def free(self, slots: Any) -> None:
        """Free caller-held pages, both sides. ForeignSlots, DoubleFree, UnalignedLength. O(pages)."""
        pages = self._own_pages(slots, "free")
        if len(pages):
            with Scope(self._ledger, "free"):
                free_held(self._ledger, None, pages, Cause.CALLER)

    def free_swa(self, slots: Any) -> None:
        """Free the SWA side of caller-held pages; DoubleFree where there is no peer. O(pages)."""
        pages = self._own_pages(slots, "free_swa")
        swa = self._state.pages.peers(pages)
        if not all_set(swa):
            raise DoubleFree(f"free_swa: page {int(pages[swa == 0][0])} has no SWA peer")
        if len(pages):
            with Scope(self._ledger, "free_swa"):
                free_held_swa(self._ledger, None, pages, Cause.CALLER)

    # Transactions and the life of the cache

    def transaction(self, op: str, request_id: str | None = None) -> Transaction:
        """A context manager: what runs inside is one transaction, nested ones are savepoints."""
        name = check_name(op, "the operation's name")
        request = None if request_id is None else RequestId(check_request_id(request_id))
        return Transaction(self._ledger, name, request)

    def checkpoint(self) -> str:
        """Emit a checkpoint event with `digest()`, which replay has to reproduce; returns it. O(state)."""
        self._ledger.check_writer()
        if self._ledger.depth:
            raise TransactionError("a checkpoint stands between transactions")
        value = digest(self._state, self._token_form)
        counters = self._state.counters.journaled()
        with Scope(self._ledger, "checkpoint"):
            self._ledger.apply(Checkpoint(value, counters))
        return value

    def reset(self) -> None:
        """Drop all leases, nodes and requests; raw held pages stay held. Not in a transaction. O(state)."""
        self._ledger.check_writer()
        if self._ledger.depth:
            raise TransactionError("reset is not possible inside an open transaction")
        with Scope(self._ledger, "reset"):
            reset(self._ledger)

    def hand_over(self) -> None:
        """Let the next calling thread own the cache."""
        self._ledger.hand_over()

    # How

    def _alloc(self, op: str, num_tokens: int, with_swa: bool) -> Slots:
        self._ledger.check_writer()
        pages = self._arithmetic.whole(check_count(num_tokens, "num_tokens"), "num_tokens")
        if not pages:
            return as_slots([])
        state, table, page = self._state, self._state.pages, self.config.page_size
        if pages > table.free_full:
            raise OutOfSlots("full", num_tokens, table.free_full * page, state.evictable_full * page)
        if with_swa and pages > table.free_swa:
            raise OutOfSlots("swa", num_tokens, table.free_swa * page, state.evictable_swa * page)
        with Scope(self._ledger, op):
            full = take_pages(self._ledger, pages, with_swa=with_swa, owner=None, row_start=None)
        return self._arithmetic.to_slots(full)

    def _own_pages(self, slots: Any, what: str) -> Pages:
        self._ledger.check_writer()
        pages = self._arithmetic.to_pages(slots)
        self._state.pages.check_owned(pages, CALLER, what)
        return pages

    def _live_lease(self, lease: Lease, call: str) -> LeaseState | None:
        """The state behind a receipt; None, and a journaled no-op, after a reset."""
        self._ledger.check_writer()
        if not isinstance(lease, Lease):
            raise InvalidArgument(f"{call} needs the lease that acquire returned, not {lease!r}")
        if lease.request_id is not None:
            raise InvalidArgument(f"lease {lease.id} belongs to request {lease.request_id!r}")
        state = self._state.leases.get(lease.id)
        if state is lease._state:
            return state
        if lease._state.cut_by_reset:
            with Scope(self._ledger, call):
                self._ledger.apply(CallIgnored(call, lease.id, None, lease.generation))
            return None
        raise StaleLease(f"lease {lease.id} was released before, or acquired in an undone transaction")
