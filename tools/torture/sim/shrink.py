"""From a seed that fails to a short list of operations that fail in the same way.

Delta debugging (Zeller and Hildebrandt, IEEE Transactions on Software Engineering 28(2), 2002) over the
numbers of the operations: each means something alone, so any of them can be left out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvledger.tools.torture.sim.run import WIND_UP, Failure, Outcome, run_seed
from kvledger.tools.torture.sim.store import Stores

MOST_RUNS = 600
"""A list that is not the shortest is of use, too."""


@dataclass
class Shrunk:
    """The shortest list that was found, and a run of it with its story."""

    only: list[int]
    outcome: Outcome
    runs: int


def shrink(stores: Stores, failure: Failure, count: int, *, most_runs: int = MOST_RUNS) -> Shrunk | None:
    """Leave out what a failure does not need. None where it does not come again.

    Everything is looked at after every operation here, so that the failure may show earlier, and by another
    check, than in the run that found it.
    """
    last = count if failure.operation == WIND_UP else failure.operation + 1
    numbers = list(range(last))
    first = run_seed(stores, failure.seed, count, only=numbers).failure
    runs = 1
    if first is None:
        return None
    check = first.check
    if first.operation != WIND_UP:
        numbers = numbers[: first.operation + 1]

    def fails(subset: Sequence[int]) -> bool:
        nonlocal runs
        if runs >= most_runs:
            return False
        runs += 1
        found = run_seed(stores, failure.seed, count, only=subset).failure
        return found is not None and found.check == check

    only = minimal(numbers, fails)
    return Shrunk(only, run_seed(stores, failure.seed, count, only=only, tell=True), runs + 1)


def minimal(numbers: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """A part of `numbers`, all of which fail, that still fails and of which no single one can be left out."""
    parts = 2
    while len(numbers) > 1:
        size = -(-len(numbers) // parts)
        for start in range(0, len(numbers), size):
            rest = numbers[:start] + numbers[start + size :]
            if rest and fails(rest):
                numbers, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(len(numbers), 2 * parts)
    return numbers
