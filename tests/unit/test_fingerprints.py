"""Checksums of KV: equal bytes, equal checksums; one bit, one place or one layer off, and they differ."""

import numpy as np
import pytest
import torch

from kvledger.core import HybridCache, KVLayout
from kvledger.core.errors import ForeignSlots, InvalidArgument
from kvledger.core.kv_checksum import KVChecksum, odd
from tests.support.witness import open_cache

LAYOUT = KVLayout(full_layers=(0, 2), swa_layers=(1,), kv_heads=2, head_dim=3)


def filled(dtype: str = "float32", *, page: int = 4) -> tuple[HybridCache, np.ndarray]:
    """A cache with five held pages whose KV repeats from page to page, and their numbers."""
    layout = LAYOUT.model_copy(update={"dtype": dtype})
    cache = open_cache(page=page, full=10 * page, swa=8 * page, layout=layout)[0]
    cache.alloc_full_only(page)
    slots = cache.alloc(5 * page)
    generator = torch.Generator().manual_seed(0)
    for layer in (0, 1, 2):
        k, v = (torch.rand((page, 2, 3), generator=generator).repeat(5, 1, 1) for _ in range(2))
        cache.pool.write(layer, slots, k, v)
    return cache, slots[::page] // page


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_pages_with_equal_bytes_have_equal_checksums_and_those_of_both_sides_differ(dtype: str) -> None:
    cache, pages = filled(dtype)
    checksums = cache.pool.fingerprint(pages)
    assert (checksums.dtype, checksums.shape) == (np.uint64, (5, 2))
    assert (checksums == checksums[0]).all()
    assert checksums[0, 0] != checksums[0, 1]
    assert checksums[0].all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("which", ["k", "v"])
def test_the_lowest_bit_of_any_element_changes_its_page_and_side_alone(
    dtype: str, layer: int, which: str
) -> None:
    cache, pages = filled(dtype)
    before = cache.pool.fingerprint(pages)
    tensor = getattr(cache.pool, which)[layer]
    kept = int(pages[2]) * 4
    first = int(cache.swa_slots([kept])[0]) if layer == 1 else kept
    bits = tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
    for slot in range(first, first + 4):
        for place in ((0, 0), (0, 2), (1, 1)):
            bits[slot][place] ^= 1
            differ = cache.pool.fingerprint(pages) != before
            assert np.argwhere(differ).tolist() == [[2, int(layer == 1)]]
            bits[slot][place] ^= 1
    assert (cache.pool.fingerprint(pages) == before).all()


def test_elements_that_change_places_change_the_checksum() -> None:
    cache, pages = filled()
    before = cache.pool.fingerprint(pages[:1])[0, 0]
    first = int(pages[0]) * 4
    k, v = cache.pool.k, cache.pool.v

    def swapped(left: torch.Tensor, right: torch.Tensor) -> np.uint64:
        kept = left.clone()
        left.copy_(right)
        right.copy_(kept)
        after = cache.pool.fingerprint(pages[:1])[0, 0]
        right.copy_(left)
        left.copy_(kept)
        return after

    assert swapped(k[0][first], k[0][first + 1]) != before
    assert swapped(k[0][first, 0], k[0][first, 1]) != before
    assert swapped(k[0][first : first + 4], v[0][first : first + 4]) != before
    assert swapped(k[0][first : first + 4], k[2][first : first + 4]) != before
    assert cache.pool.fingerprint(pages[:1])[0, 0] == before


def test_nan_equals_itself_and_minus_zero_differs_from_zero() -> None:
    cache, pages = filled()
    cache.pool.k[0][:] = float("nan")
    assert (cache.pool.fingerprint(pages) == cache.pool.fingerprint(pages)).all()
    cache.pool.k[0][:] = 0.0
    zero = cache.pool.fingerprint(pages)
    cache.pool.k[0][:] = -0.0
    assert (cache.pool.fingerprint(pages)[:, 0] != zero[:, 0]).all()


def test_a_page_without_an_swa_peer_has_no_checksum_on_that_side() -> None:
    cache, pages = filled()
    before = cache.pool.fingerprint(pages)
    cache.free_swa(np.arange(pages[1] * 4, pages[1] * 4 + 4))
    after = cache.pool.fingerprint(pages)
    assert after[1].tolist() == [int(before[1, 0]), 0]
    assert (np.delete(after, 1, axis=0) == np.delete(before, 1, axis=0)).all()


def test_many_pages_are_summed_in_parts_and_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, pages = filled()
    cache.pool.k[0][:] = torch.rand_like(cache.pool.k[0])
    whole = cache.pool.fingerprint(pages)
    monkeypatch.setattr("kvledger.core.kv_checksum.CHUNK_WORDS", 50)
    assert (cache.pool.fingerprint(pages) == whole).all()
    assert len(np.unique(whole[:, 0])) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_checksum_is_the_sum_that_its_description_says(dtype: torch.dtype) -> None:
    tensors = [torch.tensor([[1.0, -2.5], [0.0, -0.0]], dtype=dtype), torch.full((2, 2), -3.0, dtype=dtype)]
    checksum = KVChecksum(2, dtype=dtype, device=torch.device("cpu"))
    for page, found in enumerate(checksum.of(tensors, torch.tensor([0, 1])).tolist()):
        wanted = 1
        for number, tensor in enumerate(tensors):
            word = np.int16 if dtype == torch.bfloat16 else np.int32
            words = np.frombuffer(tensor[page].view(torch.uint8).numpy().tobytes(), dtype=word)
            factor = int(odd(2**32 + number, 1)[0])
            wanted += sum(int(one) * int(odd(place, 1)[0]) * factor for place, one in enumerate(words))
        assert found == wanted % 2**64


def test_the_factors_are_odd_fixed_and_different() -> None:
    factors = odd(0, 1_000)
    assert (factors % 2 == 1).all()
    assert len(np.unique(factors)) == 1_000
    assert (odd(10, 5) == factors[10:15]).all()
    # The generator's published output for state 0, its last bit set.
    assert int(factors[0]) % 2**64 == 0xE220A8397B1DCDAF


def test_signs_that_change_in_pairs_do_not_cancel_out() -> None:
    cache, pages = filled("float64")
    before = cache.pool.fingerprint(pages[:1])
    first = int(pages[0]) * 4
    cache.pool.k[0][first, 0, :2] *= -1
    assert cache.pool.fingerprint(pages[:1])[0, 0] != before[0, 0]


def test_pages_outside_the_pool_are_refused_and_no_pages_are_none() -> None:
    cache, _ = filled()
    for page in (0, 11):
        with pytest.raises(ForeignSlots):
            cache.pool.fingerprint([page])
    assert cache.pool.fingerprint([]).shape == (0, 2)


def test_pools_without_a_layout_refuse_to_sum_what_they_do_not_hold() -> None:
    cache = open_cache(page=4, full=64, swa=64)[0]
    with pytest.raises(InvalidArgument, match="without a layout"):
        cache.pool.fingerprint([1])


@pytest.mark.parametrize(("full", "swa"), [([2**60 + 1], None), ([0], None), ([-1], None), ([1], [2**40])])
def test_pages_outside_a_pool_are_refused_also_where_their_slots_would_wrap(
    full: list[int], swa: list[int] | None
) -> None:
    cache = open_cache(page=16, full=64, swa=64, layout=LAYOUT)[0]
    with pytest.raises(ForeignSlots):
        cache.pool.fingerprint(full, None if swa is None else np.array(swa))
