"""Whether a request costs more for what it does not touch: nodes in the tree, pages in the pool, context.

Each figure is made in a cache of its own with no journal. A request is served in a transaction that is undone
afterwards, so that every one meets the same tree; what is timed is the request alone, evictions included, or
in the second table the rollback alone. Thread CPU time.
"""

import gc
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core import CacheConfig, HybridCache
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.progress import Progress
from kvledger.tools.workload.spec import Tokens

PAGE_SIZE = 64
WINDOW = 1_024
PROMPT = 4_096
OUTPUT = 256
CHAIN = 16
"""Nodes of one page each that hang below one another."""

POOL_FACTOR = 10
CONTEXTS = (2_048, 131_072)
VOCABULARY = 128_000
WARM_UP = 10


class ScaleFigure(BaseModel):
    """A request's cost beside so many nodes of a page each, in microseconds; `ratio`: over the first."""

    model_config = ConfigDict(frozen=True)

    nodes: int
    full_tokens: int
    median_us: float
    p99_us: float
    ratio: float


class RollbackFigure(BaseModel):
    """What undoing one decoded page costs under a context of so many tokens, microseconds."""

    model_config = ConfigDict(frozen=True)

    context_tokens: int
    median_us: float
    p99_us: float
    ratio: float


class ScaleReport(BaseModel):
    """All figures of one `kvledger bench scale`, and where they come from."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    seed: int
    repeats: int
    page_size: int
    window: int
    prompt_tokens: int
    requests: list[ScaleFigure]
    rollbacks: list[RollbackFigure]


def bench_scale(*, nodes: int, repeats: int, seed: int, progress: Progress | None = None) -> ScaleReport:
    """Serve the same requests beside 1,000 nodes and up to `nodes`, ten times more at each step.

    Cost: some 50 microseconds and 2 KiB a node; a minute for 1,000,000.
    """
    first = min(1_000, nodes)
    shapes = [(first, 1), (first, POOL_FACTOR)]
    while shapes[-1][0] < nodes:
        shapes.append((min(nodes, shapes[-1][0] * 10), 1))
    total = len(shapes) + len(CONTEXTS)
    served: list[tuple[int, int, list[float]]] = []
    undone: list[tuple[int, list[float]]] = []
    for count, factor in shapes:
        random = np.random.Generator(np.random.PCG64(seed))
        cache = _grown(count, factor, random)
        served.append((count, cache.config.full_tokens, _timed(repeats, partial(_serve, cache, random))))
        if progress is not None:
            progress("figures", len(served), total)
    for context in CONTEXTS:
        undone.append((context, _rollbacks(context, repeats, seed)))
        if progress is not None:
            progress("figures", len(served) + len(undone), total)
    base_request, base_rollback = np.median(served[0][2]), np.median(undone[0][1])
    return ScaleReport(
        environment=environment(),
        seed=seed,
        repeats=repeats,
        page_size=PAGE_SIZE,
        window=WINDOW,
        prompt_tokens=PROMPT,
        requests=[
            ScaleFigure(nodes=count, full_tokens=tokens, **_figures(spent, float(base_request)))
            for count, tokens, spent in served
        ],
        rollbacks=[
            RollbackFigure(context_tokens=context, **_figures(spent, float(base_rollback)))
            for context, spent in undone
        ],
    )


def _grown(nodes: int, factor: int, random: np.random.Generator) -> HybridCache:
    """A cache whose tree has `nodes` nodes of a page each, in a pool `factor` times as large as they need."""
    pages = (nodes + 2 * (PROMPT + OUTPUT) // PAGE_SIZE) * factor
    cache = HybridCache(_config(pages))
    for first in range(0, nodes, CHAIN):
        lease = cache.acquire(_prompt(random, 0))
        for _ in range(min(CHAIN, nodes - first)):
            lease = cache.advance(lease, _prompt(random, PAGE_SIZE), cache.alloc(PAGE_SIZE)).lease
        cache.release(lease)
    return cache


def _config(pages: int) -> CacheConfig:
    return CacheConfig(
        page_size=PAGE_SIZE,
        sliding_window=WINDOW,
        full_tokens=pages * PAGE_SIZE,
        swa_tokens=pages * PAGE_SIZE,
    )


def _prompt(random: np.random.Generator, tokens: int) -> Tokens:
    return random.integers(0, VOCABULARY, size=tokens, dtype=np.int32)


def _serve(cache: HybridCache, random: np.random.Generator) -> int:
    """One request of a scheduler that keeps its own rows; nanoseconds without the undoing at its end."""
    tokens = _prompt(random, PROMPT + OUTPUT)
    with cache.transaction("bench") as transaction:
        started = time.thread_time_ns()
        lease = cache.acquire(tokens[: PROMPT - 1])
        cache.evict(full_tokens=PROMPT + OUTPUT, swa_tokens=PROMPT + OUTPUT)
        slots = cache.alloc(PROMPT + OUTPUT)
        lease = cache.advance(lease, tokens[:PROMPT], slots[:PROMPT]).lease
        cache.insert_after(lease, tokens[PROMPT:], slots[PROMPT:])
        cache.release(lease)
        spent = time.thread_time_ns() - started
        transaction.rollback(reason="every request meets the same tree")
    return spent


def _rollbacks(context: int, repeats: int, seed: int) -> list[float]:
    """Undo one page of decoding, again and again, of a request whose context is locked in the tree."""
    random = np.random.Generator(np.random.PCG64(seed))
    cache = HybridCache(_config(2 * max(CONTEXTS) // PAGE_SIZE))
    request = cache.open_request("bench", _prompt(random, context))
    request.extend(context)
    request.computed()
    request.commit()

    def undo() -> int:
        with cache.transaction("bench") as transaction:
            request.append(_prompt(random, PAGE_SIZE))
            request.extend(PAGE_SIZE)
            request.computed()
            request.commit()
            started = time.thread_time_ns()
            transaction.rollback(reason="measured")
            return time.thread_time_ns() - started

    return _timed(repeats, undo)


def _timed(repeats: int, once: Callable[[], int]) -> list[float]:
    """Microseconds of each repeat; the tree is not walked by the collector of garbage meanwhile."""
    for _ in range(WARM_UP):
        once()
    gc.collect()
    gc.freeze()
    try:
        return [once() / 1e3 for _ in range(repeats)]
    finally:
        gc.unfreeze()


def _figures(spent: list[float], base: float) -> dict[str, float]:
    median = float(np.median(spent))
    return {
        "median_us": round(median, 1),
        "p99_us": round(float(np.percentile(spent, 99)), 1),
        "ratio": round(median / base, 3),
    }
