"""What replay and audit hold follows the live state, and not how long the journal is."""

import gc
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.sinks import MemorySink
from kvledger.journal.audit import audit
from kvledger.journal.records import StoredTransaction, number_transactions
from kvledger.journal.replay import replay

ROUNDS = 160
"""Requests served, one after another: the same few pages change hands all the time."""


@pytest.fixture(scope="module")
def journal() -> list[StoredTransaction]:
    sink = MemorySink()
    cache = HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=96, swa_tokens=64), sink=sink)
    random = np.random.Generator(np.random.PCG64(5))
    for number in range(ROUNDS):
        prompt = random.integers(0, 2, size=24, dtype=np.int32)
        request = cache.open_request(f"r{number}", prompt)
        request.extend(24 - request.prefix_len)
        request.computed()
        request.commit()
        request.finish()
    return number_transactions(sink.transactions)


def watched(journal: list[StoredTransaction], held: list[int]) -> Iterator[StoredTransaction]:
    """Hands a journal out, and notes what is held after a quarter, a half, three quarters and at its end."""
    marks = [len(journal) * quarter // 4 for quarter in (1, 2, 3, 4)]
    for place, transaction in enumerate(journal, start=1):
        yield transaction
        if place in marks:
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])


@pytest.mark.parametrize("read", [replay, audit])
def test_a_journal_four_times_as_long_takes_no_more_memory_to_read(
    read: object, journal: list[StoredTransaction]
) -> None:
    held: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        read(watched(journal, held))  # type: ignore[operator]
    finally:
        tracemalloc.stop()
    first, *_, last = held
    grown = last - first
    transactions = len(journal) * 3 // 4
    assert grown < 16 * transactions, held
