"""A sink that asks for it hears when an outermost transaction begins: how long one took is its to tell."""

from pathlib import Path

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.core.sinks import BeginningListener, MemorySink, TransactionRecord
from kvledger.journal import Journal


class Listener(MemorySink):
    """Writes down what it hears, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def begin_transaction(self) -> None:
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


def test_a_method_of_another_name_is_the_sinks_own_and_never_called() -> None:
    class Bus(MemorySink):
        """A sink of a user's whose `begin` is something else."""

        def begin(self, topic: str) -> None:
            raise AssertionError("the cache called a method that is none of its business")

    sink = Bus()
    cache = HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=64, swa_tokens=64), sink=sink)
    cache.free(cache.alloc(4))
    assert not isinstance(sink, BeginningListener)
    assert [transaction.op for transaction in sink.transactions] == ["open", "alloc", "free"]


def test_listeners_are_known_by_the_protocol(tmp_path: Path) -> None:
    assert isinstance(Listener(), BeginningListener)
    assert not isinstance(MemorySink(), BeginningListener)
    with Journal.open(tmp_path / "run.db") as journal, journal.record(name="run") as recorder:
        assert isinstance(recorder, BeginningListener)
