"""Long runs of pages, which the tables are asked for by slices: only the time may tell. Two seconds."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache, page_arrays, page_table
from kvledger.core.errors import DoubleFree, InvariantViolation
from kvledger.core.page_arrays import RUN_PAGES, VIEW_SPARES, page_index, part_of
from kvledger.core.row_passes import is_ascending
from kvledger.core.sinks import MemorySink
from kvledger.journal.codec import EncodedEvent, encode
from tests.planted.evidence import Course
from tests.planted.life import life

LONG = 3 * RUN_PAGES


def opened() -> HybridCache:
    return HybridCache(
        CacheConfig(page_size=1, sliding_window=8, full_tokens=3 * LONG, swa_tokens=3 * LONG),
        sink=MemorySink(),
    )


def tokens(count: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + count, dtype=np.int32)


def lived(course: Course) -> list[EncodedEvent]:
    sink = MemorySink()
    cache = HybridCache(course.config(), sink=sink)
    life(cache, cache.check, steps=100)
    return [encode(event) for transaction in sink.transactions for event in transaction.events]


@pytest.mark.interpreted
@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
def test_a_life_with_every_run_taken_by_a_slice_is_told_in_the_same_events(
    eviction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    course = Course(life, page=1, window=6, full=240, swa=180, eviction=eviction)
    one_by_one = lived(course)
    monkeypatch.setattr(page_arrays, "RUN_PAGES", 2)
    monkeypatch.setattr(page_table, "RUN_PAGES", 2)
    assert lived(course) == one_by_one
    assert len(one_by_one) > 500


def test_the_mirror_follows_a_long_row_in_and_out_of_the_tree() -> None:
    cache = opened()
    row = cache.alloc(LONG)
    cache.check()
    cache.insert(tokens(LONG), row)
    other = np.concatenate((tokens(LONG // 2), tokens(LONG // 2, 9_000)))
    half = cache.alloc(LONG // 2)
    cache.insert(other, np.concatenate((row[: LONG // 2], half)), protected_len=LONG // 2)
    assert cache.match_prefix(tokens(LONG)).slots.tolist() == row.tolist()
    cache.evict(swa_tokens=LONG)
    cache.check()
    cache.evict(full_tokens=3 * LONG)
    cache.check()
    assert not cache.nodes()


def test_a_commit_writes_the_mirror_once_however_many_runs_it_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = opened()
    update = cache.pool._update_on_host
    updates: list[int] = []

    def counted(mirror: Any, parts: list[Any]) -> None:
        updates.append(len(parts))
        update(mirror, parts)

    monkeypatch.setattr(cache.pool, "_update_on_host", counted)

    def written(call: Callable[[], object]) -> int:
        before = len(updates)
        call()
        cache.check()
        return len(updates) - before

    def two_runs_and_a_page() -> None:
        with cache.transaction("several"):
            rows.extend(cache.alloc(count) for count in (LONG, 1, RUN_PAGES))
            cache.free_swa(rows[0][::-1])

    rows: list[np.ndarray] = []
    assert written(lambda: rows.append(cache.alloc(RUN_PAGES))) == 1
    assert written(lambda: cache.insert(tokens(RUN_PAGES), rows.pop())) == 0
    assert written(two_runs_and_a_page) == 1
    assert written(lambda: cache.insert(tokens(RUN_PAGES, 9_000), rows.pop())) == 0
    assert written(lambda: cache.evict(full_tokens=2 * RUN_PAGES)) == 1
    assert written(lambda: cache.free(np.concatenate(rows))) == 1
    assert not cache.nodes()


def test_a_rollback_puts_long_runs_back() -> None:
    cache = opened()
    cache.insert(tokens(LONG), cache.alloc(LONG))
    held = cache.alloc(LONG)
    before, sizes = cache.digest(), cache.sizes()
    with cache.transaction("undone") as t:
        cache.insert(tokens(LONG, 9_000), held)
        cache.evict(full_tokens=LONG)
        cache.free(cache.alloc(LONG))
        t.rollback()
    assert (cache.digest(), cache.sizes()) == (before, sizes)
    cache.check()
    with pytest.raises(DoubleFree):
        cache.insert(tokens(LONG), np.concatenate((held[:-1], held[:1])))
    assert cache.digest() == before


def test_a_page_named_twice_in_a_long_row_is_refused() -> None:
    cache = opened()
    row = cache.alloc(LONG)
    twice = row.copy()
    twice[LONG // 2] = twice[LONG // 2 - 1]
    before = cache.digest()
    for call in (lambda: cache.insert(tokens(LONG), twice), lambda: cache.free(twice)):
        with pytest.raises(DoubleFree, match="is named twice"):
            call()
    assert cache.digest() == before


def test_a_long_row_out_of_order_stays_as_it_came() -> None:
    cache = opened()
    row = cache.alloc(LONG)
    row[[7, 11]] = row[[11, 7]]
    cache.insert(tokens(LONG), row)
    assert cache.match_prefix(tokens(LONG)).slots.tolist() == row.tolist()
    cache.check()
    cache.evict(full_tokens=LONG)
    cache.check()


@pytest.mark.parametrize("count", [RUN_PAGES - 1, RUN_PAGES, RUN_PAGES + 1])
def test_a_slice_stands_for_a_run_of_ascending_pages_and_for_nothing_else(count: int) -> None:
    run = np.arange(5, 5 + count, dtype=np.int32)
    assert (page_index(run) is run) == (count < RUN_PAGES)
    if count >= RUN_PAGES:
        assert page_index(run) == slice(5, 5 + count)
    gap = run.copy()
    gap[-1] += 1
    swapped = run.copy()
    swapped[[1, 2]] = swapped[[2, 1]]
    twice = run.copy()
    twice[1] = twice[2]
    for other in (gap, swapped, twice, run[::-1].copy()):
        assert page_index(other) is other
    assert is_ascending(run)
    assert is_ascending(gap)
    assert not is_ascending(swapped)
    assert not is_ascending(twice)


def test_a_part_keeps_no_array_alive_that_is_much_longer_than_it() -> None:
    pages = np.arange(1, 1 + 64 * (VIEW_SPARES + 1), dtype=np.int32)
    pages.setflags(write=False)
    assert part_of(pages, 0, len(pages)) is pages
    most = part_of(pages, 0, 64 * VIEW_SPARES)
    assert most.base is pages
    less = part_of(most, 0, 64 * VIEW_SPARES - 1)
    assert less.base is None
    for part in (most, less):
        assert not part.flags.writeable
        assert part.tolist() == pages[: len(part)].tolist()


@pytest.mark.interpreted
def test_an_interrupt_in_any_line_of_a_look_up_leaves_no_index_beside_another_array() -> None:
    lines = 0

    def interrupt_at(nth: int) -> Callable[..., Any]:
        def trace(frame: Any, event: str, arg: object) -> Any:
            nonlocal lines
            if frame.f_code is not page_table.PageTable.index_of.__code__:
                return trace if event == "call" else None
            if event == "line":
                lines += 1
                if lines == nth:
                    raise KeyboardInterrupt
            return trace

        return trace

    reached = refused = 0
    for nth in range(1, 8):
        cache = opened()
        row, other = cache.alloc(LONG), cache.alloc(LONG)
        cache.insert(tokens(LONG), row, swa_evicted_len=LONG)
        before, lines = cache.digest(), 0
        sys.settrace(interrupt_at(nth))
        try:
            cache.free(other)
        except KeyboardInterrupt:
            reached += 1
        finally:
            sys.settrace(None)
        undone = cache.digest() == before
        try:
            cache.evict(full_tokens=LONG)
            cache.check()
            if undone:
                cache.free(other)
        except InvariantViolation as refusal:
            if "cut off in the middle" not in str(refusal):
                raise
            refused += 1
            continue
        cache.check()
        assert cache.sizes().full.free == 3 * LONG
    assert reached - refused > 3
