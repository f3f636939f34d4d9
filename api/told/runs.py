"""Page and slot numbers as runs: what an allocator hands out, and what a person can read."""

import numpy as np

from kvledger.api.schemas.common import Runs
from kvledger.core.events import Pages, WidePages

RUNS_SHOWN = 1_000
"""Runs of one array in an answer: a fragmented row of a million tokens would be megabytes."""

RUNS_READ = 3
"""Runs that a sentence names."""


def runs_of(numbers: Pages | WidePages, *, shown: int = RUNS_SHOWN) -> Runs:
    """`numbers` in their order, as runs of consecutive ones. Cost O(n)."""
    if not numbers.size:
        return Runs(total=0, runs=())
    # Of int32 the step from the last to the first wraps round to 1: it is counted in int64.
    wide = numbers.astype(np.int64, copy=False)
    breaks = np.flatnonzero(wide[1:] != wide[:-1] + 1) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.append(starts, numbers.size))[:shown]
    firsts = numbers[starts[:shown]]
    return Runs(
        total=numbers.size,
        runs=tuple(zip(firsts.tolist(), counts.tolist(), strict=True)),
        omitted=max(0, starts.size - shown),
    )


def read_runs(numbers: Pages | WidePages) -> str:
    """The numbers as a sentence names them: "7", "3-9", "1-4, 9 and 12 more"."""
    told = runs_of(numbers, shown=RUNS_READ)
    words = [str(first) if count == 1 else f"{first}-{first + count - 1}" for first, count in told.runs]
    more = told.total - sum(count for _, count in told.runs)
    return ", ".join(words) + (f" and {more} more" if more else "")
