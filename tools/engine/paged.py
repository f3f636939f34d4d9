"""What a model's attention gets in place of its own cache: KV that lies in the pools and nowhere else.

A batch is `requests` rows of `queries` tokens each. The rows read different stretches of KV; each is as wide
as the widest, and what a narrow row lacks repeats a slot of its own behind the mask, so no row ever reads
what belongs to another.

Slots are looked up as an attention kernel would: Full layers by the row, SWA layers by the device's mapping.
A slot without an SWA peer leads to the padding page, which holds NaN in a poisoned pool.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from kvledger.core.device_pools import DevicePools
from kvledger.tools.scheduler.forward import Work


class PagedCache(Cache):
    """The cache of one forward over one batch: writes what the model computed, returns what it may read.

    `window` is how many earlier tokens an SWA layer may read. Also makes the attention masks that belong to
    the stretches, as `masks` has them.
    """

    def __init__(self, pool: DevicePools, batch: Sequence[Work], *, window: int, dtype: torch.dtype) -> None:
        super().__init__(layers=[])
        self._pool = pool
        self._requests = len(batch)
        self._written = np.concatenate([work.job.row[work.start : work.end] for work in batch])
        starts = np.array([work.start for work in batch])
        ends = np.array([work.end for work in batch])
        positions = starts[:, None] + np.arange(int(ends[0] - starts[0]))
        self.positions: torch.Tensor = pool.to_device(positions)
        full, full_positions = _stretches(batch, np.zeros_like(starts), ends)
        near, near_positions = _stretches(batch, np.maximum(starts - window, 0), ends)
        full_slots, near_slots = pool.to_device(full), pool.to_device(near)
        page = pool.page_size
        swa_slots = pool.mapping[near_slots // page].to(torch.int64) * page + near_slots % page
        self._read = {False: full_slots.flatten(), True: swa_slots.flatten()}
        seen = self.positions[:, :, None]
        full_at = pool.to_device(full_positions)[:, None, :]
        near_at = pool.to_device(near_positions)[:, None, :]
        self.masks = {
            "full_attention": _additive(full_at <= seen, dtype),
            "sliding_attention": _additive((near_at <= seen) & (near_at >= seen - window), dtype),
        }

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new KV, each [requests, heads, queries, dim], then return all that the layer may read."""
        pool = self._pool
        pool.write(layer_idx, self._written, _by_slot(key_states), _by_slot(value_states))
        index = self._read[pool.is_swa(layer_idx)]
        k, v = (
            tensors[layer_idx].index_select(0, index).unflatten(0, (self._requests, -1)).transpose(1, 2)
            for tensors in (pool.k, pool.v)
        )
        return k, v


def _stretches(batch: Sequence[Work], starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slots and positions [start, end) of each row, int64[requests, widest].

    Beyond a row's end the slot of its last token is repeated, and the position goes on: no query sees it.
    """
    positions = starts[:, None] + np.arange(int((ends - starts).max()))
    slots = np.stack(
        [work.job.row[np.minimum(row, work.end - 1)] for work, row in zip(batch, positions, strict=True)]
    )
    return slots, positions


def _additive(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to attention scores: [requests, 1, queries, keys]."""
    mask = torch.zeros(allowed.shape, dtype=dtype, device=allowed.device)
    return mask.masked_fill_(~allowed, torch.finfo(dtype).min).unsqueeze(1)


def _by_slot(states: torch.Tensor) -> torch.Tensor:
    """[requests, heads, queries, dim] as the pool has it: [requests * queries, heads, dim]."""
    return states.transpose(1, 2).flatten(0, 1)
