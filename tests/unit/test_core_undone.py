"""What a rollback puts back beside the digest: counts, origins, what the next call meets. A second."""

from collections.abc import Callable

import numpy as np
import pytest

from kvledger.core import HybridCache, Sizes
from kvledger.core.errors import TransactionError
from kvledger.core.events import PagesAllocated
from kvledger.core.sinks import MemorySink
from tests.support.witness import Witness, open_cache

TOKENS = list(range(1, 17))

Told = tuple[str, Sizes, list[tuple[object, ...]]]


def told(cache: HybridCache) -> Told:
    """Digest, sizes, and all that a node says of itself."""
    nodes = [
        (
            node.id,
            node.start,
            node.full_lock,
            node.swa_lock,
            node.last_access,
            node.full_origin,
            node.swa_origin,
            node.children,
            node.full_slots.tolist(),
            None if node.swa_slots is None else node.swa_slots.tolist(),
        )
        for node in cache.nodes()
    ]
    return cache.digest(), cache.sizes(), sorted(nodes)


def insert(cache: HybridCache, count: int, *, dead: int = 0) -> None:
    slots = cache.alloc(count)
    if dead:
        cache.free_swa(slots[:dead])
    cache.insert(TOKENS[:count], slots, swa_evicted_len=dead)


def evicted_under_lock(cache: HybridCache) -> None:
    insert(cache, 8)
    cache.release_swa(cache.acquire(TOKENS[:8]))
    cache.evict(swa_tokens=8)


def full_only(cache: HybridCache) -> np.ndarray:
    return cache.alloc_full_only(4)


@pytest.mark.parametrize("page", [1, 4])
def test_a_tombstone_has_no_swa_origin_and_a_live_node_has_one(page: int) -> None:
    cache, _ = open_cache(page=page)
    insert(cache, 16, dead=8)
    assert [node.swa_slots is None for node in cache.nodes()].count(True) == 1
    for _ in range(2):
        for node in cache.nodes():
            assert (node.swa_origin is None) == (node.swa_slots is None)
        cache.evict(swa_tokens=4)


@pytest.mark.parametrize("page", [1, 4])
def test_an_insert_of_a_dead_beginning_is_undone_in_every_count(page: int) -> None:
    cache, sink = open_cache(page=page)
    witness = Witness(cache, sink)
    before = told(cache)
    with cache.transaction("x") as t:
        insert(cache, 16, dead=8)
        t.rollback()
        witness.look_inside()
    assert told(cache) == before


@pytest.mark.parametrize("page", [1, 4])
def test_a_recovery_is_undone_in_every_count_and_origin(page: int) -> None:
    cache, sink = open_cache(page=page)
    witness = Witness(cache, sink)
    evicted_under_lock(cache)
    before = told(cache)
    with cache.transaction("x") as t:
        insert(cache, 8)
        t.rollback()
        witness.look_inside()
    assert told(cache) == before


@pytest.mark.parametrize("page", [1, 4])
def test_a_free_of_pages_without_swa_is_undone_beside_one_of_pages_with_it(page: int) -> None:
    cache, sink = open_cache(page=page)
    witness = Witness(cache, sink)
    alone, both = full_only(cache), cache.alloc(4)
    before = told(cache)
    with cache.transaction("x") as t:
        cache.free(both)
        place = t.savepoint()
        cache.free(alone)
        t.rollback(place)
        witness.look_inside()
    cache.free(alone)
    witness.look()
    assert cache.sizes().swa.free == 64
    assert told(cache) != before


@pytest.mark.parametrize("page", [1, 4])
def test_a_leaf_that_was_deleted_and_came_back_leaves_the_order_of_eviction_as_it_was(page: int) -> None:
    cache, _ = open_cache(page=page, window=4)
    insert(cache, 4)  # the parent, oldest
    other = cache.alloc(4)
    cache.insert([90, 91, 92, 93], other)
    slots = np.concatenate((cache.match_prefix(TOKENS[:4]).slots, cache.alloc(12)))
    cache.insert(TOKENS, slots, protected_len=4)
    before = told(cache)
    with cache.transaction("x") as t:
        cache.evict(full_tokens=12)  # the leaves: the parent inherits their stamp, and is queued with it
        cache.evict(swa_tokens=1)
        t.rollback()
    assert told(cache) == before
    cache.evict(swa_tokens=page)
    assert next(node for node in cache.nodes() if node.start == 0 and len(node.children)).swa_slots is None
    assert cache.match_prefix([90, 91, 92, 93]).length == 4


MAPPED: dict[str, Callable[[HybridCache, np.ndarray], object]] = {
    "an allocation": lambda cache, held: cache.alloc(8),
    "a free": lambda cache, held: cache.free(held),
    "a free of SWA": lambda cache, held: cache.free_swa(held),
    "an eviction": lambda cache, held: cache.evict(full_tokens=8, swa_tokens=8),
    "a recovery under a lock": lambda cache, held: cache.insert(TOKENS[:8], held),
}
"""What writes entries of the mapping; `held` are slots of the caller's."""


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("what", MAPPED)
def test_the_memory_hears_of_no_mapping_that_was_undone_before_the_end(page: int, what: str) -> None:
    cache, _ = open_cache(page=page)
    insert(cache, 8)
    lease = cache.acquire(TOKENS[:8])
    cache.release_swa(lease)
    if what == "a recovery under a lock":
        cache.evict(swa_tokens=8)
    else:
        cache.release(lease)
    held = cache.alloc(8)
    before = cache.pool.mapping.tolist()
    with cache.transaction("x") as t:
        kept = cache.alloc(4)
        place = t.savepoint()
        MAPPED[what](cache, held)
        t.rollback(place)
        cache.free(kept)
    assert cache.pool.mapping.tolist() == before
    cache.check()


def test_a_transaction_that_has_ended_cannot_end_again_inside_one_that_goes_on() -> None:
    cache, sink = open_cache()
    with cache.transaction("outer"):
        cache.alloc(4)
        inner = cache.transaction("inner")
        inner.__enter__()
        inner.__exit__(None, None, None)
        with pytest.raises(TransactionError, match="ended already"):
            inner.__exit__(None, None, None)
        cache.alloc(4)
    assert cache.sizes().full.held == 8
    Witness(cache, sink).look()


@pytest.mark.parametrize("page", [1, 4])
def test_slots_that_were_reserved_and_given_back_leave_the_row_as_it_was(page: int) -> None:
    cache, sink = open_cache(page=page)
    witness = Witness(cache, sink)
    request = cache.open_request("r", TOKENS)
    request.extend(4)
    before = list(request.slots)
    with cache.transaction("x") as t:
        request.extend(8)
        t.rollback()
        assert list(request.slots) == before
        request.extend(4)
    assert list(request.slots[:4]) == before
    assert len(set(request.slots)) == 8
    assert sum(len(event.full_pages) for event in allocations(sink)) == 8 // page
    witness.look()
    request.computed()
    request.finish()
    witness.look()
    witness.verdict()


def allocations(sink: MemorySink) -> list[PagesAllocated]:
    return [
        event
        for transaction in sink.transactions
        for event, undone in zip(transaction.events, transaction.undone, strict=True)
        if isinstance(event, PagesAllocated) and not undone
    ]


@pytest.mark.parametrize("undone", [False, True])
def test_a_transaction_leaves_nothing_behind_that_only_it_needed(undone: bool) -> None:
    cache, _ = open_cache(eviction="lru-2")
    with cache.transaction("x") as t:
        insert(cache, 8)
        cache.release(cache.acquire(TOKENS[:8]))
        if undone:
            t.rollback()
    ledger = cache._ledger
    assert [ledger.events, ledger.undone, ledger._undos, ledger._uses, ledger._dead] == [[]] * 5
