"""Checksums of KV: equal bytes, equal checksums; one bit, one place or one layer off, and they differ."""

import numpy as np
import pytest
import torch

from kvledger.core import HybridCache, KVLayout, kv_checksum
from kvledger.core.errors import ForeignSlots, InvalidArgument
from kvledger.core.kv_checksum import KVChecksum, _DeviceSums, odd
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


def said(block: torch.Tensor, page_size: int, page: int) -> int:
    """The checksum of a page as its description says it, word by word."""
    total = 1
    for number, tensor in enumerate(block):
        part = tensor[page * page_size : (page + 1) * page_size].contiguous().view(torch.uint8)
        data = part.numpy().tobytes()
        data += b"\0" * (-len(data) % 4)
        words = np.frombuffer(data, dtype="<u4").tolist()
        factors = odd(0, len(words)).tolist()
        factor = int(odd(2**32 + number, 1)[0])
        total += sum(word * place for word, place in zip(words, factors, strict=True)) * factor
    return total % 2**64


def noise(dtype: torch.dtype, *, tensors: int, slots: int, numbers: int) -> torch.Tensor:
    """KV that is any bytes, the numbers that are none and those below zero too."""
    generator = torch.Generator().manual_seed(0)
    size = tensors * slots * numbers * dtype.itemsize
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).view(tensors, slots, 1, numbers)


IN_A_ROW, TWO_RUNS, SCATTERED = np.arange(1, 8), np.array([4, 5, 6, 1, 2]), np.array([5, 1, 2, 7, 0, 4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize(("page_size", "numbers"), [(1, 1), (3, 1), (2, 1), (1, 6), (4, 5), (2, 64)])
@pytest.mark.parametrize(
    "pages", [IN_A_ROW, TWO_RUNS, SCATTERED, SCATTERED[:1]], ids=["row", "runs", "mixed", "one"]
)
@pytest.mark.parametrize("at_once", [1, 40, 2**17])
def test_a_checksum_is_the_sum_that_its_description_says(
    dtype: torch.dtype,
    page_size: int,
    numbers: int,
    pages: np.ndarray,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kv_checksum, "HOST_WORDS", at_once)
    monkeypatch.setattr(kv_checksum, "DEVICE_WORDS", at_once)
    monkeypatch.setattr(kv_checksum, "DEVICE_PAGES", 4)
    block = noise(dtype, tensors=3, slots=8 * page_size, numbers=numbers)
    wanted = [said(block, page_size, page) for page in pages.tolist()]
    assert KVChecksum(block, page_size=page_size).of(pages).tolist() == wanted
    size = page_size * numbers * dtype.itemsize
    assert _DeviceSums(block, pages=8, size=size).of(pages).tolist() == wanted


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_device_comes_to_the_same_sums_as_a_processor(dtype: torch.dtype) -> None:
    block = noise(dtype, tensors=6, slots=64 * 16, numbers=512)
    pages = np.random.Generator(np.random.PCG64(0)).permutation(64)
    found = KVChecksum(block.cuda(), page_size=16).of(pages)
    assert found.tolist() == KVChecksum(block, page_size=16).of(pages).tolist()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_what_another_stream_is_still_writing_is_waited_for() -> None:
    block = torch.zeros((2, 64, 1, 64), device="cuda")
    checksum = KVChecksum(block, page_size=16)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(100_000_000)
        block.fill_(1.0)
    found = checksum.of(np.arange(4))
    assert found.tolist() == KVChecksum(torch.ones((2, 64, 1, 64)), page_size=16).of(np.arange(4)).tolist()


def test_a_page_that_is_named_again_and_again_is_summed_each_time() -> None:
    block = noise(torch.bfloat16, tensors=3, slots=8, numbers=32)
    pages = np.array([1, 1, 3] * 40)
    for sums in (KVChecksum(block, page_size=2), _DeviceSums(block, pages=4, size=128)):
        assert sums.of(pages).tolist() == sums.of(pages[:3]).tolist() * 40


def test_what_sums_take_room_for_is_allocated_before_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = noise(torch.bfloat16, tensors=4, slots=64, numbers=16)
    checksum = _DeviceSums(block, pages=16, size=4 * 16 * 2)
    before = checksum.of(np.arange(16))

    def refuse(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("no room")

    for name in ("empty", "zeros", "ones", "full", "tensor"):
        monkeypatch.setattr(torch, name, refuse)
    assert (checksum.of(np.arange(16)) == before).all()


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
