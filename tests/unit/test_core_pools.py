"""Pools with real tensors: shapes, reading and writing through the mapping, and the mirror on the device."""

import random

import numpy as np
import pytest
import torch

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.errors import ForeignSlots, InvalidArgument, MissingSwa, TransactionError
from tests.property.twin import Twin
from tests.support.witness import open_cache

LAYOUT = KVLayout(full_layers=(0, 2), swa_layers=(1,), kv_heads=2, head_dim=3)
HEAD = list(range(1, 9))


def cache_with_tensors(*, page: int = 2, full: int = 32, swa: int = 24) -> HybridCache:
    """A small cache whose pools hold KV."""
    return open_cache(page=page, full=full, swa=swa, layout=LAYOUT)[0]


def kv(slots: np.ndarray, mark: float) -> tuple[torch.Tensor, torch.Tensor]:
    """KV that says which position and which forward it is: k = mark + position, v = -k."""
    k = (torch.arange(len(slots), dtype=torch.float32) + mark)[:, None, None].expand(-1, 2, 3)
    return k, -k


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_each_layer_has_a_slot_for_every_token_and_one_page_of_padding(dtype: str) -> None:
    layout = LAYOUT.model_copy(update={"dtype": dtype})
    cache = open_cache(page=4, full=32, swa=24, layout=layout)[0]
    for layer, slots in ((0, 36), (1, 28), (2, 36)):
        for tensor in (cache.pool.k[layer], cache.pool.v[layer]):
            assert tuple(tensor.shape) == (slots, 2, 3)
            assert tensor.dtype == getattr(torch, dtype)
            assert tensor.device.type == "cpu"


def test_what_was_written_is_read_and_an_swa_layer_goes_through_the_mapping() -> None:
    cache = cache_with_tensors()
    cache.alloc_full_only(6)
    slots = cache.alloc(8)
    peers = cache.swa_slots(slots)
    assert list(peers) != list(slots)
    for layer in (0, 1, 2):
        k, v = kv(slots, 100.0 * (layer + 1))
        cache.pool.write(layer, slots, k, v)
    for layer in (0, 1, 2):
        k, v = cache.pool.read(layer, slots)
        assert torch.equal(k, kv(slots, 100.0 * (layer + 1))[0])
        assert torch.equal(v, kv(slots, 100.0 * (layer + 1))[1])
    assert torch.equal(cache.pool.k[0][torch.from_numpy(slots)], kv(slots, 100.0)[0])
    assert torch.equal(cache.pool.k[1][torch.from_numpy(peers)], kv(slots, 200.0)[0])
    one, _ = cache.pool.read(1, slots[3:4])
    assert torch.equal(one, kv(slots, 200.0)[0][3:4])


def test_the_tree_is_read_but_never_written() -> None:
    cache = cache_with_tensors()
    slots = cache.alloc(8)
    for layer in (0, 1):
        cache.pool.write(layer, slots, *kv(slots, 1.0))
    cache.insert(HEAD, slots)
    for layer in (0, 1):
        with pytest.raises(ForeignSlots):
            cache.pool.write(layer, slots[:1], *kv(slots[:1], 9.0))
        assert torch.equal(cache.pool.read(layer, slots)[0], kv(slots, 1.0)[0])


def test_kv_is_written_into_held_slots_only() -> None:
    cache = cache_with_tensors()
    slots = cache.alloc(4)
    cache.free(slots[2:])
    for bad in (slots[2:], slots, np.array([0]), np.array([1]), np.array([10**6]), np.array([-1])):
        with pytest.raises(ForeignSlots):
            cache.pool.write(0, bad, *kv(bad, 5.0))
    assert not any(tensor.any() for tensor in cache.pool.k.values())
    request = cache.open_request("r", HEAD)
    request.extend(3)
    cache.pool.write(0, request.slots, *kv(request.slots, 7.0))
    assert torch.equal(cache.pool.read(0, request.slots)[0], kv(request.slots, 7.0)[0])


def test_a_request_may_not_write_into_the_prefix_it_shares() -> None:
    cache = cache_with_tensors(page=1, full=64, swa=64)
    cache.insert(HEAD, cache.alloc(8))
    request = cache.open_request("r", [*HEAD, 50, 51])
    request.extend(2)
    with pytest.raises(ForeignSlots):
        cache.pool.write(0, request.slots, *kv(request.slots, 5.0))
    own = request.slots[8:]
    cache.pool.write(0, own, *kv(own, 5.0))


def test_no_kv_is_written_while_a_transaction_is_open() -> None:
    cache = cache_with_tensors()
    slots = cache.alloc(4)
    with cache.transaction("step"), pytest.raises(TransactionError):
        cache.pool.write(0, slots, *kv(slots, 5.0))
    assert not cache.pool.k[0].any()
    cache.pool.write(0, slots, *kv(slots, 5.0))


def test_an_swa_layer_has_nothing_for_a_slot_without_a_peer() -> None:
    cache = cache_with_tensors()
    slots = cache.alloc(4)
    cache.free_swa(slots[:2])
    with pytest.raises(MissingSwa):
        cache.pool.write(1, slots, *kv(slots, 5.0))
    with pytest.raises(MissingSwa):
        cache.pool.read(1, slots[:1])
    assert not cache.pool.k[1].any()
    cache.pool.write(0, slots, *kv(slots, 5.0))


def test_kv_of_another_shape_or_layer_is_refused() -> None:
    cache = cache_with_tensors()
    slots = cache.alloc(4)
    k, v = kv(slots, 5.0)
    for call in (
        lambda: cache.pool.write(0, slots, k[:3], v[:3]),
        lambda: cache.pool.write(0, slots, k[:, :1], v[:, :1]),
        lambda: cache.pool.write(0, slots, k, v[:, :, :1]),
        lambda: cache.pool.write(5, slots, k, v),
        lambda: cache.pool.read(5, slots),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert not cache.pool.k[0].any()


def test_healing_under_a_lock_leaves_the_locked_readers_kv_and_brings_the_new_window() -> None:
    cache = cache_with_tensors(page=2, full=64, swa=64)
    kept = cache.alloc(8)
    for layer in (0, 1):
        cache.pool.write(layer, kept, *kv(kept, 10.0))
    cache.insert(HEAD, kept)
    reader = cache.acquire(HEAD)
    cache.release_swa(reader)
    cache.evict(swa_tokens=8)
    incoming = cache.alloc(8)
    for layer in (0, 1):
        cache.pool.write(layer, incoming, *kv(incoming, 500.0))
    cache.insert(HEAD, incoming)
    assert list(cache.match_prefix(HEAD).slots) == list(kept)
    reused = cache.alloc(64 - 8)
    cache.pool.write(0, reused, *kv(reused, 9000.0))
    assert torch.equal(cache.pool.read(0, reader.slots)[0], kv(kept, 10.0)[0])
    assert torch.equal(cache.pool.read(1, reader.slots)[0], kv(kept, 500.0)[0])


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_the_mirror_has_the_dtype_that_was_asked_for_and_an_entry_for_every_page(dtype: str) -> None:
    cache = open_cache(page=4, full=32, swa=24, mapping_dtype=dtype)[0]
    assert cache.pool.mapping.dtype == getattr(torch, dtype)
    assert tuple(cache.pool.mapping.shape) == (9,)
    slots = cache.alloc(8)
    pages = torch.from_numpy(slots[::4] // 4)
    assert cache.pool.mapping[pages].tolist() == list(cache.swa_slots(slots)[::4] // 4)
    assert int(cache.pool.mapping[0]) == 0


def test_the_mirror_is_the_hosts_truth_after_any_walk() -> None:
    for seed in range(8):
        chance = random.Random(f"mirror {seed}")
        twin = Twin(page=4, window=7, full_pages=12, swa_pages=9)
        for _ in range(80):
            step = chance.choice(
                ["alloc", "free", "free_swa", "insert", "evict", "acquire", "release", "release_swa"]
            )
            getattr(twin, step)(chance.randrange)
            twin.model.settle()
            wanted = [twin.model.peer.get(page, 0) for page in range(13)]
            assert twin.cache.pool.mapping.tolist() == wanted, (seed, step)


def test_the_mirror_changes_at_the_commit_and_not_before() -> None:
    cache = open_cache(page=4, full=32, swa=24)[0]
    slots = cache.alloc(8)
    before = cache.pool.mapping.clone()
    with cache.transaction("step") as t:
        cache.free_swa(slots)
        more = cache.alloc(4)
        assert torch.equal(cache.pool.mapping, before)
        assert not cache.swa_slots(slots).any()
        start = t.savepoint()
        cache.free(more)
        t.rollback(start)
    assert cache.pool.mapping[torch.from_numpy(slots[::4] // 4)].tolist() == [0, 0]
    assert int(cache.pool.mapping[int(more[0]) // 4]) == int(cache.swa_slots(more)[0]) // 4


def test_an_undone_transaction_leaves_the_mirror_and_the_kv_untouched() -> None:
    cache = cache_with_tensors()
    slots = cache.alloc(4)
    cache.pool.write(0, slots, *kv(slots, 5.0))
    before = cache.pool.mapping.clone()
    with cache.transaction("step") as t:
        cache.free(slots)
        cache.alloc(4)
        t.rollback()
    assert torch.equal(cache.pool.mapping, before)
    assert torch.equal(cache.pool.read(0, slots)[0], kv(slots, 5.0)[0])


@pytest.mark.parametrize("page", [1, 4, 16])
def test_a_recycled_page_brings_no_mapping_along(page: int) -> None:
    cache = open_cache(page=page, full=8 * page, swa=8 * page)[0]
    cache.free(cache.alloc(8 * page))
    bare = cache.alloc_full_only(8 * page)
    assert not cache.swa_slots(bare).any()
    assert not cache.pool.mapping.any()
    cache.free(bare)
    again = cache.alloc(8 * page)
    assert cache.swa_slots(again).all()


@pytest.mark.parametrize("page", [1, 2, 4, 8, 16, 64, 256])
def test_the_padding_page_is_never_handed_out(page: int) -> None:
    cache = open_cache(page=page, full=6 * page, swa=5 * page)[0]
    for _ in range(3):
        slots = cache.alloc(5 * page)
        bare = cache.alloc_full_only(page)
        given = np.concatenate([slots, bare])
        assert sorted(given) == list(range(page, 7 * page))
        assert sorted(cache.swa_slots(slots)) == list(range(page, 6 * page))
        assert not cache.swa_slots(bare).any()
        cache.free(given)


def test_slots_are_whole_pages_of_consecutive_numbers() -> None:
    cache = open_cache(page=8, full=64, swa=64)[0]
    slots = cache.alloc(24).reshape(-1, 8)
    assert (slots[:, 0] % 8 == 0).all()
    assert (np.diff(slots, axis=1) == 1).all()


def test_which_page_is_handed_out_depends_on_the_free_set_alone() -> None:
    def left_free(order: list[int]) -> list[int]:
        cache = open_cache(page=1, full=16, swa=16)[0]
        slots = cache.alloc(16)
        for i in order:
            cache.free(slots[[i]])
        return list(cache.alloc(4))

    assert left_free([3, 9, 5, 12, 7]) == left_free([12, 7, 3, 5, 9])


def test_an_undone_allocation_is_handed_out_again_when_it_is_tried_again() -> None:
    cache = open_cache(page=1, full=16, swa=16)[0]
    cache.free(cache.alloc(9)[2:7])
    with cache.transaction("try") as t:
        first = cache.alloc(6)
        t.rollback()
    assert list(cache.alloc(6)) == list(first)


def test_without_a_layout_there_is_bookkeeping_and_a_mirror_but_no_kv() -> None:
    cache = HybridCache(CacheConfig(page_size=1, sliding_window=4, full_tokens=8, swa_tokens=8))
    slots = cache.alloc(4)
    assert cache.pool.mapping.any()
    with pytest.raises(InvalidArgument):
        cache.pool.read(0, slots)


def test_slots_move_to_the_device_in_one_piece() -> None:
    cache = open_cache()[0]
    slots = cache.alloc(4)
    moved = cache.pool.to_device(slots)
    assert moved.dtype == torch.int64
    assert moved.tolist() == list(slots)
