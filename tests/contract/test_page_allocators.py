"""What the cache asks of whoever owns the memory, held to every implementation that is shipped."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvariantViolation, OutOfSlots
from kvledger.core.free_pages import EMPTY
from kvledger.core.pools import KVFingerprinter, PageAllocator, PoolChanges

LAYOUT = KVLayout(full_layers=(1,), swa_layers=(0,), kv_heads=1, head_dim=2)
CONFIG = CacheConfig(page_size=4, sliding_window=7, full_tokens=96, swa_tokens=48, layout=LAYOUT)
FULL, SWA = CONFIG.full_pages, CONFIG.swa_pages

MakeMemory = Callable[[], Any]
IMPLEMENTATIONS: dict[str, MakeMemory] = {
    "DevicePools": lambda: DevicePools(CONFIG),
    "DevicePools, mapping of int32": lambda: DevicePools(
        CONFIG.model_copy(update={"mapping_dtype": "int32"})
    ),
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


def filled(memory: Any) -> None:
    """Numbers in all its tensors, no two alike."""
    for start, tensors in ((0, memory.k), (500_000, memory.v)):
        for layer, tensor in tensors.items():
            tensor.copy_(torch.arange(tensor.numel()).view_as(tensor) + start + 100_000 * layer)


def test_it_fingerprints_the_pages_it_is_told_whatever_its_mapping_says(memory: Any) -> None:
    filled(memory)
    speaks: object = memory
    assert isinstance(speaks, KVFingerprinter)
    full, swa = np.array([3, 1, 2], dtype=np.int64), np.array([5, 0, 4], dtype=np.int64)
    sums = memory.fingerprint(full, swa)
    assert sums.dtype == np.uint64
    assert sums.shape == (3, 2)
    assert sums[1, 1] == 0
    assert len(set(sums.ravel().tolist())) == 6
    assert (memory.fingerprint(full[::-1], swa[::-1]) == sums[::-1]).all()

    memory.k[1][3 * CONFIG.page_size] += 1.0
    memory.v[0][4 * CONFIG.page_size + 3] += 1.0
    changed = np.argwhere(memory.fingerprint(full, swa) != sums).tolist()
    assert changed == [[0, 0], [2, 1]]


def test_all_memories_come_to_the_same_fingerprints() -> None:
    pages = np.arange(1, 9, dtype=np.int64)
    memories = [make() for make in IMPLEMENTATIONS.values()]
    for memory in memories:
        filled(memory)
    first, *others = [memory.fingerprint(pages, pages[::-1].copy()) for memory in memories]
    assert all((other == first).all() for other in others)


def test_fingerprints_of_no_pages_are_none(memory: Any) -> None:
    assert memory.fingerprint(EMPTY, EMPTY).shape == (0, 2)
