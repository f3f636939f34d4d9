"""The queues of eviction are caches of an order: rebuilding them, or never doing so, changes no answer.

Lives and walks of a few hundred operations with queues that are rebuilt all the time. Some three seconds.
"""

import gc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core import HybridCache, recency, retention
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
    for module in (recency, retention):
        monkeypatch.setattr(module, "COMPACT_FLOOR", floor)
    rebuilt = 0

    def counted(entries: Iterable[Entry]) -> EvictionQueue:
        nonlocal rebuilt
        rebuilt += 1
        return EvictionQueue(entries)

    for module in (recency, retention):
        monkeypatch.setattr(
            module, "EvictionQueue", lambda entries=(): counted(entries) if entries else EvictionQueue()
        )
    assert lived(course) == seldom
    assert rebuilt > 0 or floor > 0


@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
def test_nodes_that_came_and_went_do_not_wait_for_ever_to_be_queued(
    monkeypatch: pytest.MonkeyPatch, eviction: str
) -> None:
    for module in (recency, retention):
        monkeypatch.setattr(module, "COMPACT_FLOOR", 8)
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
@pytest.mark.parametrize(("full", "swa"), [(64, 4_000), (4_000, 64), (64, 64)])
def test_nodes_that_went_for_want_of_one_pool_are_kept_alive_by_no_queue(
    eviction: str, full: int, swa: int
) -> None:
    cache, _ = open_cache(full=full, swa=swa, eviction=eviction)
    for number in range(600):
        cache.evict(full_tokens=4, swa_tokens=4)
        slots = cache.alloc(4)
        cache.insert([number, 1, 2, 3], slots)
    gc.collect()
    alive = sum(1 for found in gc.get_objects() if type(found) is Node)
    assert alive <= 1 + 2 * len(list(cache.nodes()))
