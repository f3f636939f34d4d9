"""The free pages of one pool: a set that hands out its lowest members.

Which pages `take` returns depends on the set alone, not on the order in which pages came back, so a
rolled-back operation that is tried again gets the same pages. Three parts, all ascending: pages never
used (one interval, no memory), a large sorted array consumed from its front, and a small sorted
array of what came back lately, merged into the large one when it has grown to a part of it. `take`
and `give` cost O(pages moved), amortised, whatever the size of the pool.
"""

import numpy as np

from kvledger.core.events import Pages

MERGE_FLOOR = 4096
"""Below this many lately returned pages a merge into the large array is not worth its copy."""

MERGE_SHARE = 8
"""Merge when the lately returned pages are one part in this many of the large array."""

EMPTY: Pages = np.empty(0, dtype=np.int64)
EMPTY.setflags(write=False)


class FreePages:
    """Pages 1 to `total`, all free at first."""

    __slots__ = ("_end", "_fresh", "_large", "_pending", "_small", "count")

    def __init__(self, total: int) -> None:
        self._fresh = 1
        self._end = total + 1
        self._large: Pages = EMPTY
        self._small: Pages = EMPTY
        self._pending: list[Pages] = []
        self.count = total

    def take(self, n: int) -> Pages:
        """Remove the `n` lowest pages and return them ascending; `n` must not exceed `count`."""
        if self._pending:
            self._absorb()
        self.count -= n
        large, small = self._large, self._small
        if not len(small):
            used = large[:n]
            self._large = large[n:]
        elif not len(large):
            used = small[:n]
            self._small = small[n:]
        else:
            candidates = np.concatenate((large[:n], small[:n]))
            candidates.sort(kind="stable")
            used = candidates[:n]
            from_small = int(np.searchsorted(small, used[-1], side="right")) if len(used) else 0
            self._small = small[from_small:]
            self._large = large[len(used) - from_small :]
        missing = n - len(used)
        if not missing:
            return used.copy()
        fresh = np.arange(self._fresh, self._fresh + missing, dtype=np.int64)
        self._fresh += missing
        return np.concatenate((used, fresh)) if len(used) else fresh

    def give(self, pages: Pages) -> None:
        """Put pages back that were taken before."""
        if len(pages):
            self._pending.append(pages)
            self.count += len(pages)

    def snapshot(self) -> Pages:
        """All free pages, ascending: int64[count]. O(count)."""
        parts = [self._large, self._small, *self._pending]
        parts.append(np.arange(self._fresh, self._end, dtype=np.int64))
        out = np.concatenate(parts)
        out.sort()
        return out

    def _absorb(self) -> None:
        """Sort what came back into the small array, and that into the large one when it has grown."""
        small = np.concatenate((self._small, *self._pending))
        small.sort(kind="stable")
        self._pending.clear()
        if len(small) > MERGE_FLOOR and len(small) * MERGE_SHARE > len(self._large):
            large = np.concatenate((self._large, small))
            large.sort(kind="stable")
            self._large = large
            small = EMPTY
        self._small = small
