"""What many seeds amount to: counts of what was done, injected and seen, and every failure with its command.

No time, no name of a machine and no order of chance is in it: the same seeds give the same summary.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from kvledger.tools.torture.sim.run import Outcome
from kvledger.tools.torture.sim.setting import Setting
from kvledger.tools.torture.sim.shrink import Shrunk

FAULT = "fault: "


class Step(BaseModel):
    """One operation of a shrunk list, and what it did."""

    number: int
    kind: str
    did: list[str]


class FailureReport(BaseModel):
    """A seed that failed."""

    seed: int
    operation: int
    kind: str
    check: str
    sentence: str
    setting: str
    command: str
    only: list[int]
    runs_to_shrink: int
    steps: list[Step]


class SimulationSummary(BaseModel):
    """All seeds together. `digest` is over what every seed stored in its journals."""

    first_seed: int
    seeds: int
    operations_per_seed: int
    operations: int
    idle_operations: int
    by_kind: dict[str, int]
    faults: dict[str, int]
    observed: dict[str, int]
    digest: str
    failures: list[FailureReport]

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.failures


def command(seed: int, count: int, only: Iterable[int] = ()) -> str:
    """What repeats a run."""
    numbers = ",".join(map(str, only))
    return f"kvledger torture sim --seed {seed} --ops {count}" + (f" --only {numbers}" if numbers else "")


def failure_report(outcome: Outcome, count: int, shrunk: Shrunk | None, only: Sequence[int]) -> FailureReport:
    """A failure in the words of its shrunk list, or in its own where there is none; `only` repeats it."""
    told = outcome if shrunk is None else shrunk.outcome
    failure = told.failure or outcome.failure
    if failure is None:
        raise ValueError("this run did not fail")
    return FailureReport(
        seed=outcome.seed,
        operation=failure.operation,
        kind=failure.kind,
        check=failure.check,
        sentence=failure.sentence,
        setting=Setting.drawn(outcome.seed).told(),
        command=command(outcome.seed, count, only),
        only=list(only),
        runs_to_shrink=0 if shrunk is None else shrunk.runs,
        steps=[Step(number=number, kind=kind, did=did) for number, kind, did in told.story],
    )


class Adding:
    """Outcomes, added up as they come, in the order of their seeds."""

    def __init__(self, first_seed: int, count: int) -> None:
        self._first_seed = first_seed
        self._count = count
        self._seeds = 0
        self._idle = 0
        self._kinds: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._failures: list[FailureReport] = []

    def add(self, outcome: Outcome, failure: FailureReport | None) -> None:
        """One more seed."""
        self._seeds += 1
        self._kinds += outcome.operations
        self._idle += outcome.idle.total()
        self._tally += outcome.tally
        self._digest.update(outcome.digest.encode())
        if failure is not None:
            self._failures.append(failure)

    def summary(self) -> SimulationSummary:
        """All of it."""
        tally = sorted(self._tally.items())
        return SimulationSummary(
            first_seed=self._first_seed,
            seeds=self._seeds,
            operations_per_seed=self._count,
            operations=self._kinds.total(),
            idle_operations=self._idle,
            by_kind=dict(sorted(self._kinds.items())),
            faults={name.removeprefix(FAULT): times for name, times in tally if name.startswith(FAULT)},
            observed={name: times for name, times in tally if not name.startswith(FAULT)},
            digest=self._digest.hexdigest(),
            failures=self._failures,
        )
