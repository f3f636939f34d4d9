"""The free pages of one pool: a set that hands out its lowest members.

Which pages `take` returns depends on the set alone, not on the order in which pages came back, so a
rolled-back operation that is tried again gets the same pages. The pages never used are one interval; what
came back stands in ascending runs, each at least twice as long as the next, and what came back since the
last `take` waits as it came: several returns are sorted as one. So there are few runs, a page that comes
back costs O(log n), amortised, and `take` O(pages taken) a run, whatever the size of the pool.
"""

import numpy as np

from kvledger.core.events import Pages

EMPTY: Pages = np.empty(0, dtype=np.int32)
EMPTY.setflags(write=False)


class FreePages:
    """Pages 1 to `total`, all free at first."""

    __slots__ = ("_fresh", "_returned", "_runs", "count")

    def __init__(self, total: int) -> None:
        self._fresh = 1
        self._runs: list[Pages] = []
        self._returned: list[Pages] = []
        self.count = total

    def take(self, n: int) -> Pages:
        """Remove the `n` lowest pages and return them ascending; `n` must not exceed `count`."""
        if self._returned:
            self._sort_in()
        self.count -= n
        runs = self._runs
        if len(runs) == 1:
            used = runs[0][:n]
            self._runs = [runs[0][n:]] if n < len(runs[0]) else []
        elif runs and n:
            used = np.concatenate([run[:n] for run in runs])
            used.sort(kind="stable")
            used = used[:n]
            last = used[-1]
            self._runs = [
                run if run[0] > last else run[np.searchsorted(run, last, side="right") :]
                for run in runs
                if run[-1] > last
            ]
        else:
            used = EMPTY
        missing = n - len(used)
        if not missing:
            return used.copy()
        fresh = np.arange(self._fresh, self._fresh + missing, dtype=np.int32)
        self._fresh += missing
        return np.concatenate((used, fresh)) if len(used) else fresh

    def give(self, pages: Pages) -> None:
        """Put pages back that were taken before; the array must not change any more. O(1)."""
        if len(pages):
            self.count += len(pages)
            self._returned.append(pages)

    def _sort_in(self) -> None:
        """Merge what came back into the runs."""
        returned, runs = self._returned, self._runs
        # They come in few ascending runs, which a stable sort makes use of.
        run = np.sort(returned[0] if len(returned) == 1 else np.concatenate(returned), kind="stable")
        returned.clear()
        while runs and len(runs[-1]) < 2 * len(run):
            run = np.concatenate((runs.pop(), run))
            run.sort(kind="stable")
        runs.append(run)
