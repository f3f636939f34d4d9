"""The queues of eviction are caches of an order: rebuilding them, or never doing so, changes no answer.

Lives and walks of a few hundred operations with queues that are rebuilt all the time. Some three seconds.
"""

import pytest

from kvledger.core import HybridCache, recency, retention
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
    heap = recency.heap

    def counted(entries: list[recency.Entry]) -> list[recency.Entry]:
        nonlocal rebuilt
        rebuilt += 1
        return heap(entries)

    for module in (recency, retention):
        monkeypatch.setattr(module, "heap", counted)
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
