"""An interrupt while eviction looks for its victim leaves every node where it can be found again."""

import heapq
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache, eviction_queue, recency, retention
from kvledger.core.errors import InvariantViolation

PAGE = 4


def grown(eviction: Literal["lru", "lru-2"]) -> HybridCache:
    """A tree of chains, some of whose SWA lies inside windows and some outside."""
    cache = HybridCache(
        CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=256, swa_tokens=256, eviction=eviction)
    )
    for first in range(0, 4_000, 1_000):
        lease = cache.acquire(np.empty(0, dtype=np.int32))
        for start in range(first, first + 24, PAGE):
            tokens = np.arange(start, start + PAGE, dtype=np.int32)
            lease = cache.advance(lease, tokens, cache.alloc(PAGE)).lease
        cache.release(lease)
    return cache


@pytest.mark.interpreted
@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
@pytest.mark.parametrize("asked", [{"full_tokens": PAGE}, {"swa_tokens": PAGE}], ids=["full", "swa"])
def test_all_that_is_evictable_is_evicted_after_an_interrupt_at_any_push(
    eviction: Literal["lru", "lru-2"], asked: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = heapq.heappush

    def pushing(cache: HybridCache, nth: int, *, after: bool) -> int:
        """Evict what is asked, interrupted before or after the `nth` push; how many pushes there were."""
        seen = 0

        def push(heap: list[Any], entry: Any) -> None:
            nonlocal seen
            seen += 1
            if seen == nth and not after:
                raise KeyboardInterrupt
            real(heap, entry)
            if seen == nth:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(heapq, "heappush", push)
            if nth:
                with pytest.raises(KeyboardInterrupt):
                    cache.evict(**asked)
            else:
                cache.evict(**asked)
        return seen

    pushes = pushing(grown(eviction), 0, after=False)
    assert pushes > 4, "too few entries are made: the test would prove nothing"
    for nth in range(1, pushes + 1):
        for after in (False, True):
            cache = grown(eviction)
            pushing(cache, nth, after=after)
            assert left_after_all(cache, asked) == 0, f"push {nth} of {pushes}, after: {after}"


def left_after_all(cache: HybridCache, asked: dict[str, int]) -> int:
    """Tokens that are evictable still after all were locked, let go and asked for, some at a time."""
    leases = [cache.acquire(np.arange(first, first + 24, dtype=np.int32)) for first in range(0, 4_000, 1_000)]
    cache.evict(full_tokens=PAGE, swa_tokens=PAGE)
    for lease in leases:
        cache.release(lease)
    for _ in range(4):
        cache.evict(**dict.fromkeys(asked, 64))
    cache.check()
    (pool,) = asked
    sizes = cache.sizes()
    return {"full_tokens": sizes.full.evictable, "swa_tokens": sizes.swa.evictable}[pool]


@pytest.mark.interpreted
@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
@pytest.mark.parametrize("asked", [{"full_tokens": PAGE}, {"swa_tokens": PAGE}], ids=["full", "swa"])
def test_all_that_is_evictable_is_evicted_after_an_interrupt_in_any_line_of_the_queues(
    eviction: Literal["lru", "lru-2"], asked: dict[str, int]
) -> None:
    files = {eviction_queue.__file__, recency.__file__, retention.__file__}

    def interrupted(cache: HybridCache, nth: int) -> int:
        """Evict what is asked, interrupted before the `nth` line of them; how many lines there were."""
        seen = 0

        def trace(frame: Any, event: str, arg: object) -> Callable[..., Any] | None:
            nonlocal seen
            if frame.f_code.co_filename not in files:
                return None
            if event == "line":
                seen += 1
                if seen == nth:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            cache.evict(**asked)
        except KeyboardInterrupt:
            assert nth
        finally:
            sys.settrace(before)
        return seen

    lines = interrupted(grown(eviction), 0)
    assert lines > 40, "hardly anything is run: the test would prove nothing"
    refused = 0
    for nth in range(1, lines + 1):
        cache = grown(eviction)
        assert interrupted(cache, nth) == nth
        try:
            assert left_after_all(cache, asked) == 0, f"line {nth} of {lines}"
        except InvariantViolation as error:
            # What a change does to the queues is a part of it: such a cache says that it was cut off.
            if "cut off" not in str(error):
                raise
            refused += 1
    assert refused < lines / 2
