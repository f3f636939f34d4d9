"""Synthetic KV: a slot's content says for which namespace, tokens, position and layer it was made."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
import torch

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.tools.kv.check import KVCheck, Slots
from kvledger.tools.kv.synthetic import Codes, KVCodec, layer_codes, prefix_codes

TOKENS = np.arange(100, 180, dtype=np.int32)


def changed(position: int) -> np.ndarray:
    tokens = TOKENS.copy()
    tokens[position] += 1
    return tokens


def test_a_code_depends_on_every_token_before_it_and_on_none_after() -> None:
    codes = prefix_codes("", TOKENS)
    for position in (0, 1, 40, 79):
        equal = prefix_codes("", changed(position)) == codes
        assert equal[:position].all()
        assert not equal[position:].any()


def test_a_code_depends_on_the_order_of_tokens_the_position_and_the_namespace() -> None:
    codes = prefix_codes("", TOKENS)
    swapped = TOKENS.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    assert prefix_codes("", swapped)[10] != codes[10]
    assert not np.isin(prefix_codes("", np.zeros(50, dtype=np.int32)), codes).any()
    assert len(set(prefix_codes("", np.zeros(50, dtype=np.int32)).tolist())) == 50
    assert (prefix_codes("tenant", TOKENS) != codes).all()


def test_a_longer_row_has_the_codes_of_its_prefix() -> None:
    assert np.array_equal(prefix_codes("n", TOKENS)[:30], prefix_codes("n", TOKENS[:30]))


def test_negative_token_ids_are_ids_like_others() -> None:
    negative = np.array([-1, -(2**31)], dtype=np.int32)
    assert (prefix_codes("", negative) != prefix_codes("", np.array([1, 0], dtype=np.int32))).all()


def test_layers_hold_different_values() -> None:
    codes = prefix_codes("", TOKENS)
    assert (layer_codes(codes, 0) != layer_codes(codes, 1)).all()


DType = Literal["float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (1, 4), (3, 5), (8, 16)])
def test_codes_survive_the_dtype_and_every_element_counts(dtype: DType, heads: int, dim: int) -> None:
    layout = KVLayout(full_layers=(0,), swa_layers=(), kv_heads=heads, head_dim=dim, dtype=dtype)
    codec = KVCodec(layout, "cpu")
    codes = prefix_codes("", TOKENS)
    k, v = codec.encode(codes)
    assert k.shape == v.shape == (len(TOKENS), heads, dim)
    assert k.dtype == v.dtype == getattr(torch, dtype)
    # What the dtype cannot hold would come back changed from a wider one.
    for values in (k, v):
        assert torch.equal(values.to(torch.float64).to(values.dtype), values)
        assert values.to(torch.float64).frac().abs().max() == 0
    assert len(codec.wrong(k, v, codes)) == 0
    k[7, -1, -1] += 1
    v[9, 0, 0] += 1
    assert codec.wrong(k, v, codes).tolist() == [7, 9]


def test_neighbouring_codes_differ_in_k_and_in_v() -> None:
    layout = KVLayout(full_layers=(0,), swa_layers=(), kv_heads=1, head_dim=4)
    k, v = KVCodec(layout, "cpu").encode(prefix_codes("", TOKENS))
    assert (k[1:] != k[:-1]).flatten(1).any(dim=1).all()
    assert (v[1:] != v[:-1]).flatten(1).any(dim=1).all()


@dataclass
class Reader:
    name: str
    row: Slots
    codes: dict[int, Codes]


def filled_cache() -> tuple[HybridCache, KVLayout, KVCodec, Reader]:
    layout = KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=4)
    cache = HybridCache(
        CacheConfig(page_size=4, sliding_window=8, full_tokens=64, swa_tokens=64, layout=layout)
    )
    codec = KVCodec(layout, "cpu")
    row = cache.alloc(40)
    codes = prefix_codes("", TOKENS[:40])
    reader = Reader("reader", row, {layer: layer_codes(codes, layer) for layer in (0, 1)})
    for layer in (0, 1):
        cache.pool.write(layer, row, *codec.encode(reader.codes[layer]))
    return cache, layout, codec, reader


def test_right_reads_are_counted_and_none_is_wrong() -> None:
    cache, layout, codec, reader = filled_cache()
    check = KVCheck(cache, layout, codec)
    check.full(reader, 0, 40, "sweep")
    check.window(reader, 32, 40, "window")
    check.full(reader, 5, 5, "empty")
    check.compare(step=1)
    assert (check.reads, check.wrong, check.findings) == (48, 0, [])
    check.compare(step=2)
    assert check.reads == 48


def test_a_wrong_slot_is_named_with_its_reader_and_position() -> None:
    cache, layout, codec, reader = filled_cache()
    other = Reader("other", reader.row[::-1].copy(), reader.codes)
    check = KVCheck(cache, layout, codec)
    check.full(reader, 10, 20, "sweep")
    check.full(other, 12, 15, "newest")
    check.compare(step=3)
    assert (check.reads, check.wrong) == (13, 3)
    first = check.findings[0]
    assert (first.request_id, first.layer, first.position, first.slot, first.step) == (
        "other",
        0,
        12,
        int(other.row[12]),
        3,
    )
    assert "read wrong KV for position 12" in str(first)


def test_a_slot_without_its_swa_peer_is_a_wrong_read_and_its_neighbours_are_still_compared() -> None:
    cache, layout, codec, reader = filled_cache()
    cache.free_swa(reader.row[8:12])
    check = KVCheck(cache, layout, codec)
    check.window(reader, 0, 40, "window")
    check.compare(step=1)
    assert (check.reads, check.wrong) == (40, 4)
    assert [finding.position for finding in check.findings] == [8, 9, 10, 11]


def test_a_row_that_differs_from_the_caches_is_a_wrong_read_to_come() -> None:
    cache, layout, codec, reader = filled_cache()
    check = KVCheck(cache, layout, codec)
    check.own_row(reader, reader.row.copy(), 1)
    assert check.wrong == 0
    moved = reader.row.copy()
    moved[3] += 1
    check.own_row(reader, moved, 1)
    assert check.wrong == 1
    assert "position 3, Full slot" in str(check.findings[0])
