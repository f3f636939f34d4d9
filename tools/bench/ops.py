"""What one operation costs the scheduler's thread, in thread CPU time, with journaling off and on.

Each operation is repeated on a fresh, seeded prompt. Only the calls themselves are timed: what has to
be there before, and is taken away afterwards, is not. With journaling on, the recorder's writer works in
its own thread, whose time is not the scheduler's.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.sinks import EventSink
from kvledger.journal import Journal
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.progress import Progress
from kvledger.tools.workload.spec import Tokens

PAGE_SIZES = (1, 64)
LENGTHS = (2_048, 8_192)
REQUEST_TOKENS = 12_288
WINDOW = 1_024
POOL_PROMPTS = 8
"""The pools hold this many of the longest prompt, so a fresh request has to evict from the ninth on."""

VOCABULARY = 128_000
WARM_UP = 10


class OpFigure(BaseModel):
    """One operation's cost in microseconds of thread CPU time."""

    model_config = ConfigDict(frozen=True)

    operation: str
    page_size: int
    tokens: int
    journaling: bool
    median_us: float
    p99_us: float


class OpsReport(BaseModel):
    """All figures of one `kvledger bench ops`, and where they come from."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    seed: int
    repeats: int
    window: int
    figures: list[OpFigure]


@dataclass(slots=True)
class _Bench:
    """A cache, a source of prompts, and a clock that the operations start and stop."""

    cache: HybridCache
    random: np.random.Generator
    tokens: int
    started: int = 0
    spent: int = 0

    def prompt(self) -> Tokens:
        return self.random.integers(0, VOCABULARY, size=self.tokens, dtype=np.int32)

    def insert(self, prompt: Tokens) -> None:
        self.cache.insert(prompt, self.cache.alloc(len(prompt)))

    def clear(self) -> None:
        self.cache.evict(full_tokens=self.cache.sizes().full.total)

    @contextmanager
    def clock(self) -> Iterator[None]:
        started = time.thread_time_ns()
        yield
        self.spent = time.thread_time_ns() - started


def _match(bench: _Bench) -> None:
    prompt = bench.prompt()
    bench.insert(prompt)
    with bench.clock():
        bench.cache.match_prefix(prompt)
    bench.clear()


def _acquire_release(bench: _Bench) -> None:
    prompt = bench.prompt()
    bench.insert(prompt)
    with bench.clock():
        bench.cache.release(bench.cache.acquire(prompt))
    bench.clear()


def _alloc(bench: _Bench) -> None:
    with bench.clock():
        slots = bench.cache.alloc(bench.tokens)
    bench.cache.free(slots)


def _insert(bench: _Bench) -> None:
    prompt = bench.prompt()
    slots = bench.cache.alloc(bench.tokens)
    with bench.clock():
        bench.cache.insert(prompt, slots)
    bench.clear()


def _evict(bench: _Bench) -> None:
    bench.insert(bench.prompt())
    with bench.clock():
        bench.cache.evict(full_tokens=bench.tokens)


def _commit(bench: _Bench) -> None:
    request = bench.cache.open_request("bench", bench.prompt())
    request.extend(bench.tokens)
    request.computed()
    with bench.clock():
        request.commit()
    request.abort()
    bench.clear()


def _whole_request(bench: _Bench) -> None:
    prompt = bench.prompt()
    with bench.clock():
        request = bench.cache.open_request("bench", prompt)
        request.extend(bench.tokens)
        request.computed()
        request.commit()
        request.finish()


OPERATIONS: dict[str, Callable[[_Bench], None]] = {
    "match": _match,
    "acquire + release": _acquire_release,
    "alloc": _alloc,
    "insert": _insert,
    "evict": _evict,
    "commit": _commit,
}


def bench_ops(*, repeats: int, seed: int, progress: Progress | None = None) -> OpsReport:
    """Measure every operation at every page size and length, journaling off and on.

    `progress` hears how many figures there are so far.
    """
    figures: list[OpFigure] = []
    total = 2 * len(PAGE_SIZES) * sum(1 for _ in _cases())
    for page_size in PAGE_SIZES:
        for journaling in (False, True):
            for name, tokens, operation in _cases():
                figures.append(_measure(name, operation, tokens, page_size, journaling, repeats, seed))
                if progress is not None:
                    progress("figures", len(figures), total)
    return OpsReport(environment=environment(), seed=seed, repeats=repeats, window=WINDOW, figures=figures)


def _cases() -> Iterator[tuple[str, int, Callable[[_Bench], None]]]:
    for tokens in LENGTHS:
        for name, operation in OPERATIONS.items():
            yield name, tokens, operation
    yield "whole request", REQUEST_TOKENS, _whole_request


def _measure(
    name: str,
    operation: Callable[[_Bench], None],
    tokens: int,
    page_size: int,
    journaling: bool,
    repeats: int,
    seed: int,
) -> OpFigure:
    with _sink(journaling) as sink:
        pool = POOL_PROMPTS * REQUEST_TOKENS
        config = CacheConfig(page_size=page_size, sliding_window=WINDOW, full_tokens=pool, swa_tokens=pool)
        bench = _Bench(HybridCache(config, sink=sink), np.random.Generator(np.random.PCG64(seed)), tokens)
        spent = np.empty(repeats)
        for round_number in range(-WARM_UP, repeats):
            operation(bench)
            if round_number >= 0:
                spent[round_number] = bench.spent / 1e3
    return OpFigure(
        operation=name,
        page_size=page_size,
        tokens=tokens,
        journaling=journaling,
        median_us=round(float(np.median(spent)), 1),
        p99_us=round(float(np.percentile(spent, 99)), 1),
    )


@contextmanager
def _sink(journaling: bool) -> Iterator[EventSink | None]:
    """A recorder into a file of its own, or nothing."""
    if not journaling:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="kvledger-bench-") as folder,
        Journal.open(Path(folder) / "bench.db", create=True) as journal,
        journal.record(name="bench", durability="background") as recorder,
    ):
        yield recorder
