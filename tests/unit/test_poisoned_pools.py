"""Poisoned pools: whatever belongs to nobody holds NaN, and whatever belongs to somebody is left alone."""

import random

import numpy as np
import pytest
import torch

from kvledger.core import HybridCache, KVLayout, Request
from kvledger.core.errors import OutOfSlots, TransactionError
from tests.support.witness import open_cache

LAYOUT = KVLayout(full_layers=(0, 2), swa_layers=(1,), kv_heads=2, head_dim=3)
HEAD = np.arange(1, 9, dtype=np.int32)


def poisoned(**sizes: int) -> HybridCache:
    cache = open_cache(**{"page": 2, "full": 32, "swa": 24, **sizes}, layout=LAYOUT)[0]
    cache.pool.poison()
    return cache


def write(cache: HybridCache, slots: np.ndarray) -> None:
    for layer in (0, 1, 2):
        values = torch.full((len(slots), 2, 3), float(layer + 1))
        cache.pool.write(layer, slots, values, -values)


def pages_of_nan(cache: HybridCache, layer: int) -> list[int]:
    """Pages that hold NaN and nothing else, in `k` and in `v`; a page of numbers and NaN fails."""
    found: list[list[int]] = []
    for tensors in (cache.pool.k, cache.pool.v):
        nan = tensors[layer].isnan().unflatten(0, (-1, cache.config.page_size)).flatten(1)
        assert (nan.all(dim=1) | ~nan.any(dim=1)).all()
        found.append(np.flatnonzero(nan.all(dim=1).numpy()).tolist())
    assert found[0] == found[1]
    return found[0]


def test_every_free_page_and_the_padding_are_poisoned_at_once() -> None:
    cache = open_cache(page=2, full=8, swa=6, layout=LAYOUT)[0]
    taken = cache.alloc(4)
    assert taken[0] // 2 == 1
    cache.pool.poison()
    assert pages_of_nan(cache, 0) == pages_of_nan(cache, 2) == [0, 3, 4]
    assert pages_of_nan(cache, 1) == [0, 3]


def test_a_free_poisons_its_pages_on_each_side_that_it_frees() -> None:
    cache = poisoned(full=12, swa=8)
    slots = cache.alloc(8)
    write(cache, slots)
    cache.free_swa(slots[:4])
    assert pages_of_nan(cache, 0) == [0, 5, 6]
    assert pages_of_nan(cache, 1) == [0, 1, 2]
    cache.free(slots[2:6])
    assert pages_of_nan(cache, 0) == [0, 2, 3, 5, 6]
    assert pages_of_nan(cache, 1) == [0, 1, 2, 3]


def test_an_undone_free_keeps_the_kv() -> None:
    cache = poisoned()
    slots = cache.alloc(4)
    write(cache, slots)
    with cache.transaction("step") as t:
        cache.free(slots)
        t.rollback()
    assert cache.pool.read(0, slots)[0].eq(1).all()
    assert cache.pool.read(1, slots)[0].eq(2).all()


def test_a_recovery_poisons_the_incoming_full_and_keeps_the_incoming_swa() -> None:
    cache = poisoned()
    first = cache.alloc(8)
    write(cache, first)
    cache.insert(HEAD, first)
    lease = cache.acquire(HEAD)
    cache.release_swa(lease)
    cache.evict(swa_tokens=8)
    again = cache.alloc(8)
    write(cache, again)
    peers = cache.swa_slots(again)
    cache.insert(HEAD, again)
    assert cache.stats().recoveries_locked > 0
    assert cache.pool.k[0][first].eq(1).all()
    assert cache.pool.k[0][again].isnan().all()
    assert (cache.swa_slots(first) == peers).all()
    assert cache.pool.k[1][peers].eq(2).all()


def test_poison_waits_for_no_transaction() -> None:
    cache = poisoned()
    with cache.transaction("step"), pytest.raises(TransactionError):
        cache.pool.poison()


def test_pools_that_were_not_asked_to_poison_keep_what_they_free() -> None:
    cache = open_cache(page=2, full=32, swa=24, layout=LAYOUT)[0]
    slots = cache.alloc(4)
    write(cache, slots)
    cache.free(slots)
    assert cache.pool.k[0][slots].eq(1).all()


@pytest.mark.parametrize("page", [1, 3, 4])
def test_after_any_walk_free_pages_hold_nan_and_pages_with_kv_hold_none(page: int) -> None:
    chance = random.Random(f"poison {page}")
    texts = np.array([[chance.randrange(4) for _ in range(6 * page)] for _ in range(5)], dtype=np.int32)
    cache = poisoned(page=page, full=24 * page, swa=16 * page, window=2 * page)
    requests: list[Request] = []
    for number in range(120):
        if chance.random() < 0.5 or not requests:
            row = np.concatenate([texts[chance.randrange(5)], texts[chance.randrange(5)]])
            request = cache.open_request(f"r{number}", row[: chance.randrange(page, 12 * page)])
            start = request.reserved
            try:
                request.extend(request.num_tokens - start)
            except OutOfSlots:
                request.abort()
                continue
            own = np.unique(request.slots_of(start, request.reserved) // page)
            write(cache, (own[:, None] * page + np.arange(page)).flatten())
            request.computed()
            requests.append(request)
        else:
            request = requests.pop(chance.randrange(len(requests)))
            request.slide()
            getattr(request, chance.choice(["finish", "abort"]))()
        sizes = cache.sizes()
        assert len(pages_of_nan(cache, 0)) == 1 + sizes.full.free // page
        assert len(pages_of_nan(cache, 1)) == 1 + sizes.swa.free // page
