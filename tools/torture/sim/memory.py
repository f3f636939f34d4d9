"""An engine that owns its memory, and can fail to allocate: what a foreign allocator of the cache's is.

Hands out its highest pages first, unlike the cache's own pools, and refuses to be told nonsense.
"""

from collections.abc import Callable

import numpy as np

from kvledger.core import HybridCache
from kvledger.core.events import Pages, WidePages
from kvledger.core.pools import PoolChanges
from kvledger.tools.torture.sim.finding import Finding


class Memory:
    """A `PageAllocator` of plain sets. `before_allocating` may raise."""

    def __init__(
        self,
        *,
        full_pages: int,
        swa_pages: int,
        restores_at_once: bool,
        before_allocating: Callable[[], None],
    ) -> None:
        self.restores_at_once = restores_at_once
        self._totals = (full_pages, swa_pages)
        self._full = set(range(1, full_pages + 1))
        self._swa = set(range(1, swa_pages + 1))
        self._mapping = {0: 0}
        self._before_allocating = before_allocating

    def allocate(self, full: int, swa: int) -> tuple[Pages, Pages] | None:
        """The highest free pages of both pools, or None."""
        self._before_allocating()
        if full > len(self._full) or swa > len(self._swa):
            return None
        return _taken(self._full, full), _taken(self._swa, swa)

    def give_back(self, full: Pages, swa: Pages) -> None:
        """Undo of `allocate`."""
        self._put(full, swa)

    def commit(self, changes: PoolChanges) -> None:
        """Frees and mapping changes."""
        self._put(changes.freed_full, changes.freed_swa)
        self._mapping.update(zip(changes.mapped_full.tolist(), changes.mapped_swa.tolist(), strict=True))

    def available(self) -> tuple[int, int]:
        """Free pages (full, swa)."""
        return len(self._full), len(self._swa)

    def check(self, cache: HybridCache) -> None:
        """Between transactions: free pages and mapping are what the cache says they are. O(pages)."""
        page = cache.config.page_size
        sizes = cache.sizes()
        known = (sizes.full.free // page, sizes.swa.free // page)
        if known != self.available():
            raise Finding("memory", f"{self.available()} pages are free, and the cache counts {known}")
        every = np.arange(1, self._totals[0] + 1)
        peers = (cache.swa_slots(every * page) // page).tolist()
        for number, peer in enumerate(peers, start=1):
            if self._mapping.get(number, 0) != peer:
                raise Finding("memory", f"the cache maps Full page {number} otherwise than it told")

    def _put(self, full: Pages | WidePages, swa: Pages | WidePages) -> None:
        for pages, free in ((full.tolist(), self._full), (swa.tolist(), self._swa)):
            if len(set(pages)) != len(pages) or free.intersection(pages):
                raise Finding("memory", f"pages given back twice: {pages}")
            free.update(pages)


def _taken(free: set[int], count: int) -> Pages:
    taken = sorted(free)[len(free) - count :]
    free.difference_update(taken)
    return np.array(taken, dtype=np.int32)
