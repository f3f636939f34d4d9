"""What the cache asks of whoever owns the memory, held to every implementation that is shipped."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvariantViolation, OutOfSlots
from kvledger.core.free_pages import EMPTY
from kvledger.core.pools import PageAllocator, PoolChanges
from kvledger.tools.embed.transformers.memory import PagedMemory

LAYOUT = KVLayout(full_layers=(1,), swa_layers=(0,), kv_heads=1, head_dim=2)
CONFIG = CacheConfig(page_size=4, sliding_window=7, full_tokens=96, swa_tokens=48, layout=LAYOUT)
FULL, SWA = CONFIG.full_pages, CONFIG.swa_pages

MakeMemory = Callable[[], Any]
IMPLEMENTATIONS: dict[str, MakeMemory] = {
    "DevicePools": lambda: DevicePools(CONFIG),
    "PagedMemory": lambda: PagedMemory(CONFIG, LAYOUT, poison=False),
    "PagedMemory, poisoned": lambda: PagedMemory(CONFIG, LAYOUT, poison=True),
}


@pytest.fixture(params=sorted(IMPLEMENTATIONS))
def memory(request: pytest.FixtureRequest) -> Any:
    return IMPLEMENTATIONS[request.param]()


def mapping_of(memory: Any) -> list[int]:
    return [int(page) for page in memory.mapping]


def test_it_speaks_the_protocol(memory: Any) -> None:
    assert isinstance(memory, PageAllocator)
    assert memory.available() == (FULL, SWA)


def test_it_hands_out_each_page_once_and_never_the_padding(memory: Any) -> None:
    full, swa = memory.allocate(FULL, SWA)
    assert sorted(full) == list(range(1, FULL + 1))
    assert sorted(swa) == list(range(1, SWA + 1))
    assert memory.available() == (0, 0)


@pytest.mark.parametrize(("full", "swa"), [(FULL + 1, 1), (1, SWA + 1)])
def test_without_room_in_one_pool_nothing_is_taken_from_the_other(memory: Any, full: int, swa: int) -> None:
    assert memory.allocate(full, swa) is None
    assert memory.available() == (FULL, SWA)


def test_what_is_given_back_or_freed_can_be_had_again(memory: Any) -> None:
    full, swa = memory.allocate(3, 2)
    memory.give_back(full[:1], swa[:1])
    memory.commit(PoolChanges(full[1:2], swa[1:], EMPTY, EMPTY))
    assert memory.available() == (FULL - 1, SWA)
    again, _ = memory.allocate(FULL - 1, 0)
    assert sorted([*again, full[2]]) == list(range(1, FULL + 1))


def test_the_mapping_is_what_commits_say(memory: Any) -> None:
    full, swa = memory.allocate(2, 2)
    memory.commit(PoolChanges(EMPTY, EMPTY, full, swa))
    assert [mapping_of(memory)[page] for page in full] == list(swa)
    cleared = full[[0, 0]]  # a page may be named twice, with one value
    memory.commit(PoolChanges(EMPTY, swa[:1], cleared, np.zeros(2, dtype=np.int64)))
    assert [mapping_of(memory)[page] for page in full] == [0, swa[1]]


def test_after_a_seeded_load_memory_and_cache_agree(memory: Any) -> None:
    cache = HybridCache(CONFIG, pool=memory)
    dice = random.Random(3)
    running: list[Any] = []
    for number in range(80):
        prompt = [dice.randrange(3)] * dice.randrange(4, 24) + [dice.randrange(50)]
        request = cache.open_request(f"r{number}", prompt)
        try:
            with cache.transaction("prefill"):
                request.extend(len(prompt) - request.prefix_len)
                if number % 5 == 0:
                    raise OutOfSlots("full", 0, 0, 0)  # an engine that thinks better of it
        except OutOfSlots:
            request.abort()
            continue
        request.computed()
        request.commit()
        running.append(request)
        if len(running) > 2:
            running.pop(dice.randrange(3)).finish()
        sizes = cache.sizes()
        page = CONFIG.page_size
        assert memory.available() == (sizes.full.free // page, sizes.swa.free // page)
        assert mapping_of(memory) == list(cache.swa_slots(np.arange(FULL + 1) * page) // page)
    assert cache.stats().evicted_full_tokens > 0
    cache.check()


def test_a_cache_whose_memory_failed_can_be_handed_over_and_looked_at(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = HybridCache(CONFIG, pool=memory)

    def fail(_: PoolChanges) -> None:
        raise OSError("the device is gone")

    monkeypatch.setattr(memory, "commit", fail)
    with pytest.raises(OSError, match="gone"):
        cache.alloc(4)
    with pytest.raises(InvariantViolation, match="refuses further work"):
        cache.alloc(4)
    cache.hand_over()
    assert cache.sizes().full.held == 4
