"""Pools under any layers, slots and tensors: the bytes named are written and read, and no others.

Beside the pools stand plain copies of their tensors. Some two seconds.
"""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core import CacheConfig, CacheError, HybridCache, InvalidArgument, KVLayout
from kvledger.core.device_pools import DevicePools
from tests.property.outside_values import (
    NOTHING,
    Given,
    bounded,
    integers_given,
    numbers_given,
    spelled,
)

PAGE, HEADS, DIM = 4, 2, 3
FULL_LAYER, SWA_LAYER = 1, 0
CONFIG = CacheConfig(
    page_size=PAGE,
    sliding_window=8,
    full_tokens=32,
    swa_tokens=16,
    layout=KVLayout(full_layers=(FULL_LAYER,), swa_layers=(SWA_LAYER,), kv_heads=HEADS, head_dim=DIM),
)

TENSORS: dict[str, Any] = {
    "float32": lambda n: torch.arange(n * HEADS * DIM, dtype=torch.float32).reshape(n, HEADS, DIM),
    "float64": lambda n: torch.full((n, HEADS, DIM), 0.1, dtype=torch.float64),
    "bfloat16": lambda n: torch.full((n, HEADS, DIM), 0.1, dtype=torch.bfloat16),
    "NaN": lambda n: torch.full((n, HEADS, DIM), float("nan")),
    "turned": lambda n: torch.ones((DIM, HEADS, n)).permute(2, 1, 0),
    "spread": lambda n: torch.ones((1, HEADS, DIM)).expand(n, HEADS, DIM),
    "grown": lambda n: torch.ones((n, HEADS, DIM), requires_grad=True),
}
NO_TENSORS: dict[str, Any] = {
    "one more": lambda n: torch.ones((n + 1, HEADS, DIM)),
    "flat": lambda n: torch.ones((n, HEADS * DIM)),
    "integers": lambda n: torch.ones((n, HEADS, DIM), dtype=torch.int64),
    "booleans": lambda n: torch.ones((n, HEADS, DIM), dtype=torch.bool),
    "complex": lambda n: torch.ones((n, HEADS, DIM), dtype=torch.complex64),
    "no data": lambda n: torch.ones((n, HEADS, DIM), device="meta"),
    "array": lambda n: np.ones((n, HEADS, DIM), dtype=np.float32),
    "list": lambda n: [[[1.0] * DIM] * HEADS] * n,
    "number": lambda n: 1.0,
    "None": lambda n: None,
}

ROWS = st.one_of(
    st.lists(st.integers(PAGE, 5 * PAGE), max_size=6),  # a page without a peer and a free one among them
    st.just(list(range(PAGE, 3 * PAGE))),
    st.lists(st.sampled_from([-1, 0, 3, 35, 36, 39, 40, 2**31, 2**62]), min_size=1, max_size=3),
)
LAYER = numbers_given(st.sampled_from([FULL_LAYER, SWA_LAYER]))


class Memory:
    """Pools of which two pages are held, a third has no peer and is held, a fourth is the tree's."""

    def __init__(self) -> None:
        self.cache = cache = HybridCache(CONFIG)
        cache.alloc(2 * PAGE)
        cache.alloc_full_only(PAGE)
        cache.insert(range(PAGE), cache.alloc(PAGE))
        self.pool: DevicePools = cache.pool
        for layer in (FULL_LAYER, SWA_LAYER):
            self.pool.k[layer].fill_(5)
            self.pool.v[layer].fill_(6)

    def everything(self) -> list[torch.Tensor]:
        """Copies of all tensors."""
        pool = self.pool
        return [tensors[layer].clone() for layer in (FULL_LAYER, SWA_LAYER) for tensors in (pool.k, pool.v)]


def same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    """Whether these hold the same bytes, NaN included."""
    return all(
        torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in zip(left, right, strict=True)
    )


@bounded
@given(
    LAYER,
    integers_given(ROWS),
    st.sampled_from(sorted({**TENSORS, **NO_TENSORS})),
    st.sampled_from([*TENSORS]),
)
def test_a_write_reaches_the_slots_it_names_or_none(layer: Given, rows: Given, k: str, v: str) -> None:
    memory = Memory()
    pool, before, digest = memory.pool, memory.everything(), memory.cache.digest()
    count = 4 if rows.means is NOTHING else len(rows.means)
    keys, values = ({**TENSORS, **NO_TENSORS}[name](count) for name in (k, v))
    try:
        pool.write(layer.make(), rows.make(), keys, values)
    except CacheError:
        assert same(memory.everything(), before)
        return
    finally:
        assert memory.cache.digest() == digest
    assert k in TENSORS
    assert layer.means in (FULL_LAYER, SWA_LAYER)
    own = rows.means if layer.means == FULL_LAYER else list(memory.cache.swa_slots(rows.means))
    assert all(PAGE <= slot < 4 * PAGE for slot in rows.means)
    expected = dict(zip(("fk", "fv", "sk", "sv"), before, strict=True))
    for name, tensor in (("k", keys), ("v", values)):
        side = expected[("f" if layer.means == FULL_LAYER else "s") + name]
        for place, slot in enumerate(own):
            side[slot] = tensor.detach()[place].to(side.dtype)
    if len(set(own)) == len(own):
        assert same(memory.everything(), [*expected.values()])
        read = pool.read(layer.means, rows.means)
        assert same([*read], [t.detach().to(torch.float32).contiguous() for t in (keys, values)])


@bounded
@given(LAYER, integers_given(ROWS))
def test_a_read_gives_what_lies_there_or_refuses(layer: Given, rows: Given) -> None:
    memory = Memory()
    before = memory.everything()
    try:
        k, v = memory.pool.read(layer.make(), rows.make())
    except CacheError:
        assert same(memory.everything(), before)
        return
    assert layer.means in (FULL_LAYER, SWA_LAYER)
    assert tuple(k.shape) == tuple(v.shape) == (len(rows.means), HEADS, DIM)
    assert (k == 5).all()
    assert (v == 6).all()


@bounded
@given(LAYER)
def test_a_layer_is_in_one_pool_or_refused(layer: Given) -> None:
    pool = Memory().pool
    try:
        assert pool.is_swa(layer.make()) is (layer.means == SWA_LAYER)
    except InvalidArgument:
        assert layer.means not in (FULL_LAYER, SWA_LAYER) or type(layer.make()) is not int


@bounded
@given(integers_given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)))
def test_what_goes_to_the_device_is_what_was_given(values: Given) -> None:
    pool = Memory().pool
    try:
        moved = pool.to_device(values.make())
    except InvalidArgument:
        assert values.means is NOTHING
        return
    if values.means is NOTHING:
        assert values.name == "two dimensions"  # positions of several requests go there at once
    else:
        assert (moved.dtype, moved.tolist()) == (torch.int64, values.means)


PAGES = st.lists(st.integers(1, 3), max_size=3) | st.sampled_from([[0], [9], [-1], [2**40]])


@bounded
@given(integers_given(PAGES), st.none() | integers_given(PAGES) | spelled(PAGES))
def test_checksums_are_of_pages_of_the_pool_or_refused(pages: Given, beside: Given | None) -> None:
    pool = Memory().pool
    try:
        sums = pool.fingerprint(pages.make(), None if beside is None else beside.make())
    except CacheError:
        return
    assert sums.dtype == np.uint64
    assert sums.shape == (len(pages.means), 2)
    # All bytes of a side are equal here, and so are the sums of it that are there.
    for column in (0, 1):
        assert len({int(value) for value in sums[:, column] if value}) <= 1
