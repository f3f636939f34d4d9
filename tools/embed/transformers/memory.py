"""The KV that the scheduler's model writes and reads: a `PageAllocator` that owns tensors.

Two tensors a layer, `k` and `v`, of `[slots, kv_heads, head_dim]`; page 0 of each pool is padding. What is
free, and which SWA page stands beside a Full page, it learns from the cache at commit, as values. It
never decides who may have a page.
"""

import numpy as np
import numpy.typing as npt
import torch

from kvledger.core import CacheConfig, KVLayout
from kvledger.core.events import Pages
from kvledger.core.free_pages import FreePages
from kvledger.core.kv_checksum import KVChecksum
from kvledger.core.pools import Fingerprints, PoolChanges


class PagedMemory:
    """Full and SWA pools of one model on its device.

    With `poison`, pages are filled with NaN at first and whenever they are freed, so that a read of what is
    nobody's shows in the logits.
    """

    restores_at_once = True

    def __init__(self, config: CacheConfig, layout: KVLayout, *, poison: bool) -> None:
        self.page_size = config.page_size
        self.mapping: npt.NDArray[np.int64] = np.zeros(config.full_pages + 1, dtype=np.int64)
        self.k: dict[int, torch.Tensor] = {}
        self.v: dict[int, torch.Tensor] = {}
        self._poison = poison
        self._layout = layout
        self._free_full = FreePages(config.full_pages)
        self._free_swa = FreePages(config.swa_pages)
        dtype = getattr(torch, layout.dtype)
        self._device = torch.device(config.device)
        elements = config.page_size * layout.kv_heads * layout.head_dim
        self._checksum = KVChecksum(elements, dtype=dtype, device=self._device)
        first = float("nan") if poison else 0.0
        for layers, pages in (
            (layout.full_layers, config.full_pages),
            (layout.swa_layers, config.swa_pages),
        ):
            shape = ((pages + 1) * config.page_size, layout.kv_heads, layout.head_dim)
            for layer in layers:
                self.k[layer] = torch.full(shape, first, dtype=dtype, device=config.device)
                self.v[layer] = torch.full(shape, first, dtype=dtype, device=config.device)

    # PageAllocator

    def allocate(self, full: int, swa: int) -> tuple[Pages, Pages] | None:
        """The lowest free pages of both pools, or None."""
        if full > self._free_full.count or swa > self._free_swa.count:
            return None
        return self._free_full.take(full), self._free_swa.take(swa)

    def give_back(self, full: Pages, swa: Pages) -> None:
        """Undo of `allocate`: nothing was written into them."""
        self._free_full.give(full)
        self._free_swa.give(swa)

    def commit(self, changes: PoolChanges) -> None:
        """Frees and the mapping of one transaction."""
        self._free_full.give(changes.freed_full)
        self._free_swa.give(changes.freed_swa)
        self.mapping[changes.mapped_full] = changes.mapped_swa
        if self._poison:
            self._fill_with_nan(self._layout.full_layers, changes.freed_full)
            self._fill_with_nan(self._layout.swa_layers, changes.freed_swa)

    def available(self) -> tuple[int, int]:
        """Free pages (full, swa)."""
        return self._free_full.count, self._free_swa.count

    # KVFingerprinter

    def fingerprint(self, full: Pages, swa: Pages, /) -> Fingerprints:
        """Checksums of the KV of Full pages, and of the SWA pages beside them: uint64[n, 2]."""
        if self._device.type == "cuda":
            # The scheduler computes on a stream of its own: what it was told to write has to be there.
            torch.cuda.synchronize(self._device)
        there = np.flatnonzero(swa)
        checksums: Fingerprints = np.zeros((len(full), 2), dtype=np.uint64)
        for side, rows, layers, pages in (
            (0, slice(None), self._layout.full_layers, full),
            (1, there, self._layout.swa_layers, swa[there]),
        ):
            tensors = [kv[layer] for layer in sorted(layers) for kv in (self.k, self.v)]
            index = torch.from_numpy(pages.copy()).to(self._device)
            checksums[rows, side] = self._checksum.of(tensors, index)
        return checksums

    # What the model uses.

    def swa_slots(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Where the sliding layers keep Full slots: int64[n], below `page_size` for one that has nothing."""
        pages = slots // self.page_size
        peers: npt.NDArray[np.int64] = self.mapping[pages] * self.page_size + (slots - pages * self.page_size)
        return peers

    def close(self) -> None:
        """Give the tensors back."""
        self.k.clear()
        self.v.clear()

    def _fill_with_nan(self, layers: tuple[int, ...], pages: Pages) -> None:
        if not len(pages):
            return
        rows = pages[:, None] * self.page_size + np.arange(self.page_size)
        for layer in layers if self.k else ():
            index = torch.from_numpy(rows.ravel()).to(self.k[layer].device)
            self.k[layer][index] = float("nan")
            self.v[layer][index] = float("nan")
            if self.k[layer].is_cuda:
                # The scheduler computes on a stream of its own, which does not wait for this one.
                torch.cuda.current_stream(self.k[layer].device).synchronize()
