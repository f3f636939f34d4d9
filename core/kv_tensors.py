"""The KV of one pool on its device: `k` and `v` of all its layers, in one block of memory.

The block is `[2 * layers, slots, kv_heads, head_dim]`, layers in rising order, `k` before `v`; what an engine
gets are the parts of it, one tensor each. So whatever is done to pages of the whole pool is one call. Page 0
is padding. Which page belongs to whom nobody here knows.
"""

from collections.abc import Iterable

import torch

from kvledger.core.config import KVLayout


class KVTensors:
    """Tensors of `pages` pages and the padding page, zeros at first."""

    def __init__(
        self,
        layers: Iterable[int],
        *,
        layout: KVLayout,
        pages: int,
        page_size: int,
        device: torch.device,
    ) -> None:
        self.layers = tuple(sorted(layers))
        self.page_size = page_size
        self.block = torch.zeros(
            (2 * len(self.layers), (pages + 1) * page_size, layout.kv_heads, layout.head_dim),
            dtype=getattr(torch, layout.dtype),
            device=device,
        )
        self.k = {layer: self.block[2 * at] for at, layer in enumerate(self.layers)}
        self.v = {layer: self.block[2 * at + 1] for at, layer in enumerate(self.layers)}

    def fill_with_nan(self, pages: torch.Tensor) -> None:
        """Make every number of `pages` (int64[n], on the device) no number. O(their bytes)."""
        tensors, slots, *shape = self.block.shape
        self.block.view(tensors, slots // self.page_size, self.page_size, *shape)[:, pages] = float("nan")
