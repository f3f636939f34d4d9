"""A sink that asks for it hears when an outermost transaction begins: how long one took is its to tell."""

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.core.sinks import MemorySink, TransactionRecord


class Listener(MemorySink):
    """Writes down what it hears, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def begin(self) -> None:
        self.heard.append("begin")

    def append(self, transaction: TransactionRecord) -> None:
        self.heard.append(transaction.op)
        super().append(transaction)


def opened() -> tuple[HybridCache, Listener]:
    sink = Listener()
    cache = HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=64, swa_tokens=64), sink=sink)
    sink.heard.clear()
    return cache, sink


def test_each_outermost_transaction_begins_once_and_before_it_is_handed_over() -> None:
    cache, sink = opened()
    slots = cache.alloc(8)
    cache.free(slots)
    assert sink.heard == ["begin", "alloc", "begin", "free"]


def test_a_nested_transaction_does_not_begin_again() -> None:
    cache, sink = opened()
    with cache.transaction("step"):
        cache.alloc(4)
        cache.alloc(4)
    assert sink.heard == ["begin", "step"]


def test_what_changes_nothing_begins_without_an_end() -> None:
    cache, sink = opened()
    with pytest.raises(OutOfSlots):
        cache.alloc(128)
    cache.match_prefix([1, 2, 3, 4])
    assert set(sink.heard) <= {"begin"}


def test_the_opening_of_a_cache_begins_too() -> None:
    sink = Listener()
    HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=64, swa_tokens=64), sink=sink)
    assert sink.heard == ["begin", "open"]
