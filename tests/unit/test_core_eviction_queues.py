"""The queues of eviction are caches of an order: rebuilding them, or never doing so, changes no answer.

Lives and walks of a few hundred operations with queues that are rebuilt all the time. Some three seconds.
"""

import gc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core import HybridCache, recency
from kvledger.core.eviction_queue import BUCKET_BITS, Entry, EvictionQueue
from kvledger.core.node import Node
from kvledger.core.sinks import MemorySink
from kvledger.journal.codec import encode
from kvledger.journal.records import number_transactions
from tests.planted.evidence import Course
from tests.planted.life import life
from tests.support.witness import open_cache

pytestmark = pytest.mark.interpreted


def lived(course: Course) -> list[object]:
    """Everything that was journaled in a life."""
    sink = MemorySink()
    cache = HybridCache(course.config(), sink=sink)
    life(cache, lambda: None)
    transactions = number_transactions(sink.transactions)
    return [encode(stored.event) for transaction in transactions for stored in transaction.events]


@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("floor", [-100_000, -20, 0, 8])
def test_rebuilding_the_queues_early_changes_nothing_that_happens(
    monkeypatch: pytest.MonkeyPatch, eviction: str, page: int, floor: int
) -> None:
    course = Course(life, page=page, window=3 * page, full=60 * page, swa=45 * page, eviction=eviction)
    seldom = lived(course)
    monkeypatch.setattr(recency, "COMPACT_FLOOR", floor)
    rebuilt = 0

    class Counted(EvictionQueue):
        def __init__(self, entries: Iterable[Entry] | None = None) -> None:
            nonlocal rebuilt
            rebuilt += entries is not None
            super().__init__(entries or ())

    monkeypatch.setattr(recency, "EvictionQueue", Counted)
    assert lived(course) == seldom
    assert rebuilt > 0 or floor > 0


@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
def test_nodes_that_came_and_went_do_not_wait_for_ever_to_be_queued(
    monkeypatch: pytest.MonkeyPatch, eviction: str
) -> None:
    monkeypatch.setattr(recency, "COMPACT_FLOOR", 8)
    cache, _ = open_cache(eviction=eviction)
    for number in range(50):
        with cache.transaction("x") as t:
            cache.insert([number], cache.alloc(1))
            t.rollback()
        assert len(cache._state.recency._offered) <= 9


ORDERS = (
    st.integers(0, 40) | st.integers(-2, 2).map(lambda by: (1 << BUCKET_BITS) + by) | st.integers(0, 2**60)
)


@given(st.lists(st.none() | st.tuples(ORDERS, st.integers(0, 3), st.integers(1, 9))))
def test_a_queue_tells_its_lowest_entry_whatever_came_and_went(
    steps: list[tuple[int, int, int] | None],
) -> None:
    node: Any = None
    queue, expected = EvictionQueue(), list[Any]()
    for step in steps:
        if step is not None:
            queue.push((*step, node))
            expected.append((*step, node))
        elif expected:
            assert queue.first() == min(expected)
            queue.drop_first()
            expected.remove(min(expected))
        assert len(queue) == len(expected)
        assert sorted(queue) == sorted(expected)
        assert queue.first() == min(expected, default=None)
    again = EvictionQueue(queue)
    for entry in sorted(expected):
        assert again.first() == entry
        again.drop_first()
    assert again.first() is None


@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
@pytest.mark.parametrize("held", [False, True], ids=["nothing held", "a prefix held"])
@pytest.mark.parametrize("asked", ["full_tokens", "swa_tokens"])
def test_no_queue_keeps_nodes_alive_that_are_gone(eviction: str, *, held: bool, asked: str) -> None:
    before = alive()
    cache, _ = open_cache(full=1_000, swa=1_000, window=2, eviction=eviction)
    cache.insert([-1, -2, -3, -4], cache.alloc(4))
    if held:
        cache.acquire([-1, -2, -3, -4])
    for number in range(600):
        if number > 16:
            cache.evict(**{asked: 4})
        cache.insert([number, 1, 2, 3], cache.alloc(4))
    there = len(list(cache.nodes()))
    assert there < 200
    assert alive() - before <= there + 40


def alive() -> int:
    gc.collect()
    return sum(1 for found in gc.get_objects() if type(found) is Node)


def test_a_queue_whose_pool_is_never_short_does_not_grow() -> None:
    cache, _ = open_cache(full=1_000, swa=4_000)
    for number in range(600):
        if number > 16:
            cache.evict(full_tokens=4)
        cache.insert([number, 1, 2, 3], cache.alloc(4))
    assert len(cache._state.recency._swa) < 40
