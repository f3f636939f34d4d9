"""Pools whose tensors were given back: pages and mapping stay, who asks for KV hears that there is none."""

import numpy as np
import pytest
import torch

from kvledger.core import KVLayout
from kvledger.core.errors import InvalidArgument, KVUnreadable
from tests.support.witness import open_cache

LAYOUT = KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=2)
TOKENS = list(range(6))


@pytest.mark.parametrize("layer", [0, 1])
def test_kv_is_neither_read_nor_written_nor_summed_any_more(layer: int) -> None:
    cache = open_cache(page=2, full=16, swa=16, layout=LAYOUT)[0]
    slots = cache.alloc(4)
    cache.pool.close()
    nothing = torch.zeros(4, 1, 2)
    with pytest.raises(InvalidArgument, match=f"layer {layer} is not in the layout"):
        cache.pool.read(layer, slots)
    with pytest.raises(InvalidArgument, match=f"layer {layer} is not in the layout"):
        cache.pool.write(layer, slots, nothing, nothing)
    with pytest.raises(KVUnreadable, match="given back"):
        cache.pool.fingerprint(np.array([1]))
    cache.pool.close()
    assert not cache.pool.k
    assert not cache.pool.v


def test_a_poisoned_cache_still_moves_pages_and_is_sound() -> None:
    cache = open_cache(page=2, full=16, swa=16, layout=LAYOUT)[0]
    cache.pool.poison()
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    cache.pool.close()
    assert cache.evict(6, 6).full_tokens == 6
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    lease = cache.acquire(TOKENS)
    cache.check()
    cache.release(lease)
    assert cache.sizes().full.held == 0


def test_without_a_layout_there_was_nothing_to_give_back() -> None:
    cache = open_cache(page=2, full=16, swa=16)[0]
    with pytest.raises(InvalidArgument, match="without a layout"):
        cache.pool.fingerprint(np.array([1]))
    cache.pool.close()
    cache.check()
