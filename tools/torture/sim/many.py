"""Many seeds, one after another or shared between processes; the summary is the same."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context

from kvledger.tools.progress import Progress
from kvledger.tools.torture.sim.run import Outcome, run_seed
from kvledger.tools.torture.sim.shrink import shrink
from kvledger.tools.torture.sim.store import stores
from kvledger.tools.torture.sim.summary import Adding, SimulationSummary, failure_report

SEEDS_AT_ONCE = 5
"""What a process takes from the pile: seconds of work, so that the bar moves."""

MOST_SHRUNK = 3
"""So many failures are shrunk; where there are more they are mostly the same one."""


def simulate(
    seeds: range,
    count: int,
    *,
    only: Sequence[int] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> SimulationSummary:
    """Run `count` operations of each seed, `only` those where some are named; shrink what fails first."""
    adding = Adding(seeds.start, count)
    shrunk = 0
    for done, outcome in enumerate(_outcomes(seeds, count, only=only, jobs=jobs), start=1):
        report = None
        if outcome.failure is not None:
            shorter = None
            if only is None and shrunk < MOST_SHRUNK:
                with stores() as folder:
                    shorter = shrink(folder, outcome.failure, count)
                shrunk += 1
            numbers = only if only is not None else [] if shorter is None else shorter.only
            report = failure_report(outcome, count, shorter, numbers)
        adding.add(outcome, report)
        if progress is not None:
            progress("seeds", done, len(seeds))
    return adding.summary()


def _outcomes(seeds: range, count: int, *, only: Sequence[int] | None, jobs: int) -> Iterator[Outcome]:
    piles = [seeds[at : at + SEEDS_AT_ONCE] for at in range(0, len(seeds), SEEDS_AT_ONCE)]
    if jobs == 1:
        for pile in piles:
            yield from _pile(pile, count, only)
        return
    # A fork would carry over whatever threads torch has started.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for outcomes in pool.map(_pile, piles, repeat(count), repeat(only)):
            yield from outcomes


def _pile(seeds: range, count: int, only: Sequence[int] | None) -> list[Outcome]:
    """Some seeds, with a folder of their own."""
    with stores() as folder:
        return [run_seed(folder, seed, count, only=only, tell=only is not None) for seed in seeds]
