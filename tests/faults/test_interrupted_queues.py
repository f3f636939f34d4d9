"""An interrupt while eviction looks for its victim leaves every node where it can be found again."""

import heapq
from typing import Any, Literal

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache

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
            cache.evict(**dict.fromkeys(asked, 256))
            left = {"full_tokens": cache.sizes().full.evictable, "swa_tokens": cache.sizes().swa.evictable}
            assert [left[pool] for pool in asked] == [0], f"push {nth} of {pushes}, after: {after}"
            cache.check()
