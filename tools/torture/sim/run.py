"""One seed from its first operation to its last, and what came of it."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kvledger.core import page_arrays, page_table
from kvledger.core.errors import CacheError
from kvledger.journal import Journal
from kvledger.tools.torture.sim.checks import Checks
from kvledger.tools.torture.sim.finding import Finding
from kvledger.tools.torture.sim.ground import Abandoned
from kvledger.tools.torture.sim.operations import Operation, draw
from kvledger.tools.torture.sim.recording import stored_digest
from kvledger.tools.torture.sim.setting import Setting
from kvledger.tools.torture.sim.store import Stores

WIND_UP = -1
"""Stands for the end of a run, which is no operation."""


@dataclass
class Failure:
    """Where a run failed, and of what."""

    seed: int
    operation: int
    kind: str
    check: str
    sentence: str


@dataclass
class Outcome:
    """What a run did. `story` has the operations and what each did in words, where it was asked for."""

    seed: int
    operations: Counter[str] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    failure: Failure | None = None
    story: list[tuple[int, str, list[str]]] = field(default_factory=list)


class World(Checks):
    """A seed's world, and how an operation is carried out in it."""

    walks_always = False
    """Whether everything is looked at after every operation: slow, and exact about where it went wrong."""

    def perform(self, operation: Operation) -> bool:
        """Do it, then check. Returns whether it found something to work on."""
        self.begin_operation(operation.number, operation.fault)
        step: Callable[..., bool] = getattr(self, operation.kind)
        try:
            done = step(operation.dice())
        except Abandoned:
            done = True
        if self.recording.failed:
            self.restart_after_failure()
        self.check_operation()
        if self.walks_always or operation.number % self.setting.walk_every == 0:
            self.walk()
        return done


LOOKED_AT_AS_RUNS = 2
"""Pages from which on rows are looked at as runs in every other seed: the pools here hold no long ones."""


@contextmanager
def _short_runs(seed: int) -> Iterator[None]:
    """An odd seed's core takes its ways for long rows inside the block, unless it is compiled."""
    modules: tuple[Any, ...] = (page_arrays, page_table)
    usual = page_arrays.RUN_PAGES
    for module in modules:
        module.RUN_PAGES = LOOKED_AT_AS_RUNS if seed % 2 else usual
    try:
        yield
    finally:
        for module in modules:
            module.RUN_PAGES = usual


def run_seed(
    stores: Stores, seed: int, count: int, *, only: Sequence[int] | None = None, tell: bool = False
) -> Outcome:
    """Run the first `count` operations of a seed, or of those the numbers in `only`.

    With `only`, everything is looked at after every operation. `tell` keeps the story of what each one did.
    """
    setting = Setting.drawn(seed)
    operations = draw(setting, count)
    if only is not None:
        wanted = set(only)
        operations = [operation for operation in operations if operation.number in wanted]
    outcome = Outcome(seed)
    with (
        _quiet(),
        _short_runs(seed),
        stores.one() as store,
        Journal.open(store.path, create=False) as journal,
    ):
        at = Operation(seed, WIND_UP, "beginning", None)
        world = None
        try:
            world = World(setting, journal, store)
            world.walks_always = only is not None
            for operation in operations:
                at = operation
                done = world.perform(operation)
                outcome.operations[operation.kind] += 1
                outcome.idle[operation.kind] += not done
                if tell:
                    outcome.story.append((operation.number, operation.kind, list(world.said)))
            at = Operation(seed, WIND_UP, "end", None)
            world.wind_up()
            outcome.digest = stored_digest(store, setting)
        except Exception as error:
            outcome.failure = _failure(seed, at, error)
            if world is not None:
                if tell:
                    outcome.story.append((at.number, at.kind, list(world.said)))
                world.abandon()
        if world is not None:
            outcome.tally.update(world.tally)
    return outcome


def _failure(seed: int, at: Operation, error: Exception) -> Failure:
    check, sentence = type(error).__name__, str(error)
    if isinstance(error, Finding):
        check, sentence = error.check, error.sentence
    elif not isinstance(error, CacheError):
        sentence = f"{sentence} ({_place(error)})"
    return Failure(seed, at.number, at.kind, check, " ".join(sentence.split()))


def _place(error: Exception) -> str:
    """Where an exception came from: the innermost frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "nowhere" if trace is None else f"{trace.tb_frame.f_code.co_name}, line {trace.tb_lineno}"


@contextmanager
def _quiet() -> Iterator[None]:
    """What the journal logs of a failing store is meant, here."""
    log = logging.getLogger("kvledger.journal")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before
