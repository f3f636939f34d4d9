"""A long run at constant live state: does memory stay, and does an operation go on costing the same?

One cache serves conversations that share heads, always as many at a time, with pools that are full after the
first part: everything that is published later takes the place of something older. It is recorded into a
temporary file, with the usual checkpoints: some 130 bytes an operation.

Memory is that of the process with the journal flushed, after the first part, which is the warm-up, and at the
end with garbage collected.
"""

import gc
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel

from kvledger.core import CacheConfig, HybridCache, Request
from kvledger.core.errors import InvalidArgument
from kvledger.journal import Journal
from kvledger.tools.progress import Progress
from kvledger.tools.torture.sim.dice import Dice

PARTS = 10
MOST_GROWTH = 0.05
"""What memory may grow by after the warm-up."""

RUNNING = 8
HEADS = 24
HEAD_TOKENS = 1_024
OWN_TOKENS = 512
DECODED = 24
CONFIG: dict[str, Any] = {
    "page_size": 16,
    "sliding_window": 128,
    "full_tokens": 49_152,
    "swa_tokens": 16_384,
}
"""Full of the prompts of half a minute."""


@dataclass(frozen=True)
class SoakSetup:
    """`operations` are calls of the cache; `journal`: whether they are recorded."""

    operations: int
    seed: int = 0
    eviction: Literal["lru", "lru-2"] = "lru"
    journal: bool = True

    def __post_init__(self) -> None:
        if self.operations < PARTS * 100:
            raise InvalidArgument(f"a soak takes at least {PARTS * 100} operations, not {self.operations}")


class Part(BaseModel):
    """A tenth of the run: `us_per_operation` is CPU time of the cache's thread, `objects` what the garbage
    collector knows of, counted in the first and the last one."""

    operations: int
    us_per_operation: float
    resident_bytes: int
    objects: int | None
    nodes: int


class SoakReport(BaseModel):
    """All tenths, and by how much memory grew after the first."""

    operations: int
    eviction: str
    events: int
    parts: list[Part]
    growth: float
    most_growth: float = MOST_GROWTH

    @property
    def passed(self) -> bool:
        """Whether memory stayed."""
        return self.growth <= self.most_growth


def soak(setup: SoakSetup, *, progress: Progress | None = None) -> SoakReport:
    """Run it. Cost: tens of microseconds an operation, twice that with a journal."""
    config = CacheConfig(**CONFIG, eviction=setup.eviction)
    with ExitStack() as opened:
        recorder = None
        if setup.journal:
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="kvledger-soak-")))
            journal = opened.enter_context(Journal.open(folder / "soak.db"))
            recorder = opened.enter_context(journal.record(name="soak", durability="background"))
        cache = HybridCache(config, sink=recorder)
        crowd = Crowd(cache, Dice(setup.seed))
        parts = []
        for part in range(PARTS):
            goal = setup.operations * (part + 1) // PARTS
            began, first = time.thread_time(), crowd.operations
            crowd.work(goal, lambda done: progress and progress("operations", done, setup.operations))
            spent = time.thread_time() - began
            if recorder is not None:
                recorder.flush()
            objects = live_objects() if part in (0, PARTS - 1) else None
            done = crowd.operations - first
            parts.append(
                Part(
                    operations=done,
                    us_per_operation=round(1e6 * spent / done, 2),
                    resident_bytes=resident_bytes(),
                    objects=objects,
                    nodes=cache.stats().nodes,
                )
            )
        return SoakReport(
            operations=crowd.operations,
            eviction=setup.eviction,
            events=0 if recorder is None else recorder.counters.events,
            parts=parts,
            growth=round(parts[-1].resident_bytes / parts[0].resident_bytes - 1, 4),
        )


class Crowd:
    """Requests that come, decode and go, so many at a time. `operations` counts calls of the cache."""

    def __init__(self, cache: HybridCache, dice: Dice) -> None:
        self.operations = 0
        self._cache = cache
        self._dice = dice
        self._serial = 0
        self._running: deque[tuple[Request, int]] = deque()

    def work(self, goal: int, tell: Callable[[int], object]) -> None:
        """Go on until `goal` operations are done."""
        while self.operations < goal:
            if len(self._running) < RUNNING:
                self._arrive()
                continue
            request, left = self._running.popleft()
            if left:
                self._decode(request)
                self._running.append((request, left - 1))
            else:
                request.finish()
                self.operations += 1
                tell(min(self.operations, goal))

    def _arrive(self) -> None:
        dice = self._dice
        self._serial += 1
        head = np.arange(HEAD_TOKENS, dtype=np.int32) + HEAD_TOKENS * dice.below(HEADS)
        own = np.full(1 + dice.below(OWN_TOKENS), self._serial % 2**31, dtype=np.int32)
        prompt = np.concatenate((head[: 16 * (1 + dice.below(HEAD_TOKENS // 16))], own))
        request = self._cache.open_request(f"r{self._serial}", prompt)
        request.extend(len(prompt) - request.prefix_len)
        request.computed()
        request.commit()
        self.operations += 4
        self._running.append((request, dice.below(2 * DECODED)))

    def _decode(self, request: Request) -> None:
        request.append([self._dice.below(1_000)])
        request.extend(1)
        request.computed()
        request.slide()
        self.operations += 4


def live_objects() -> int:
    """What is left after a garbage collection."""
    gc.collect()
    return len(gc.get_objects())


def resident_bytes() -> int:
    """Resident memory of this process: of Linux, from /proc. InvalidArgument where there is none."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError as error:
        raise InvalidArgument("resident memory is read from /proc, which this system has not") from error
    return pages * os.sysconf("SC_PAGE_SIZE")
