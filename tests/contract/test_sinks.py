"""One contract for every sink: in memory, in a file, on a server."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import JournalError
from kvledger.core.sinks import EventSink, MemorySink
from kvledger.journal import Journal, StoredTransaction, number_transactions
from kvledger.journal.audit import audit
from kvledger.journal.replay import replay
from kvledger.journal.stored_tokens import StoredTokens
from tests.support.stored_events import facts, short_story

Open = Callable[[], AbstractContextManager[tuple[EventSink, Callable[[], list[StoredTransaction]]]]]


@contextmanager
def in_memory() -> Iterator[tuple[EventSink, Callable[[], list[StoredTransaction]]]]:
    sink, tokens = MemorySink(), StoredTokens()
    yield sink, lambda: number_transactions(tokens.stored(one) for one in sink.transactions)


@contextmanager
def in_store(url: str) -> Iterator[tuple[EventSink, Callable[[], list[StoredTransaction]]]]:
    with Journal.open(url) as journal, journal.record() as recorder:

        def stored() -> list[StoredTransaction]:
            recorder.flush()
            return list(journal.reader().transactions())

        yield recorder, stored


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def opened_sink(request: pytest.FixtureRequest, tmp_path: Any) -> Open:
    """Makes a sink, and what reads back the transactions it took."""
    if request.param == "memory":
        return in_memory
    if request.param == "sqlite":
        return lambda: in_store(f"sqlite:///{tmp_path / 'run.db'}")
    url = request.getfixturevalue("postgresql_store")
    return lambda: in_store(url)


def comparable(stored: StoredTransaction) -> tuple[Any, ...]:
    events = [(event.seq, event.undone, facts(event.event)) for event in stored.events]
    return stored.number, stored.op, stored.request_id, stored.rolled_back, stored.reason, events


def test_every_sink_keeps_the_same_transactions_in_order(opened_sink: Open) -> None:
    with opened_sink() as (sink, stored):
        for transaction in short_story():
            sink.append(transaction)
        assert [comparable(one) for one in stored()] == [
            comparable(one) for one in number_transactions(short_story_as_kept())
        ]


def short_story_as_kept() -> list[Any]:
    tokens = StoredTokens()
    return [tokens.stored(transaction) for transaction in short_story()]


def test_what_a_cache_does_replays_and_passes_from_every_sink(opened_sink: Open) -> None:
    with opened_sink() as (sink, stored):
        cache = HybridCache(
            CacheConfig(page_size=4, sliding_window=8, full_tokens=256, swa_tokens=256), sink=sink
        )
        for number in range(3):
            request = cache.open_request(f"r{number}", list(range(40)))
            request.extend(40 - request.prefix_len)
            request.computed()
            request.commit()
            request.finish()
        assert replay(stored()).state.digest() == cache.digest()
        assert audit(stored()).counts.events == sum(len(one.events) for one in stored())
        assert not [finding for finding in audit(stored()).findings if finding.invariant != "chain"]


def test_a_sink_takes_one_cache_and_refuses_a_second(opened_sink: Open) -> None:
    config = CacheConfig(page_size=4, sliding_window=8, full_tokens=64, swa_tokens=64)
    with opened_sink() as (sink, stored):
        cache = HybridCache(config, sink=sink)
        with pytest.raises(JournalError, match="already"):
            HybridCache(config, sink=sink)
        cache.alloc(4)
        transactions = stored()
        assert [one.op for one in transactions] == ["open", "alloc"]
        assert replay(transactions).state.digest() == cache.digest()
