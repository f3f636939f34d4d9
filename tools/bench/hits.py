"""How much of the prompts is found in the cache, for every order of eviction, in the same pools.

A closed loop serves one workload: at most `concurrency` requests run, each publishes its prompt when it is
admitted and the rest when it finishes, the oldest ends first. Two ways of publishing: "keep" gives all SWA
to the tree, "slide" gives back what has left the window before it publishes, with a first commit where
`publish_len` says: at the branch point, or with "lru-2" where the row is likely to be left.
Every ratio stands beside those of a cache without limits and of an oracle (`hits_bounds`), and beside
those of orders that are only simulated (`hits_simulated`).

The order of requests is that of the workload, no clock decides anything: the hits of two runs are equal.
"""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core import CacheConfig, HybridCache, OutOfSlots
from kvledger.core.requests import Request
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.bench.hits_bounds import Bounds, bounds
from kvledger.tools.bench.hits_rows import rows_of
from kvledger.tools.bench.hits_simulated import ORDERS, SimulatedFigure, simulated
from kvledger.tools.progress import Progress
from kvledger.tools.workload import WorkRequest

Publishing = Literal["keep", "slide"]
PUBLISHING: tuple[Publishing, ...] = ("keep", "slide")

Result = TypeVar("Result")


class HitFigure(BaseModel):
    """One run: tokens of prompts that needed no prefill, and what finding them cost the calling thread.

    The ratio is over all prompt tokens, those of refused requests too; the shares are over the references.
    `lost_to_swa` counts tokens whose Full was there without a live window, over all prompt tokens.
    """

    model_config = ConfigDict(frozen=True)

    publishing: Publishing
    eviction: str
    hit_tokens: int
    hit_ratio: float
    share_of_oracle: float
    share_of_unlimited: float
    lost_to_swa: float
    refused: int
    cpu_us_per_request: float


class HitsReport(BaseModel):
    """All figures of one `kvledger bench hits`, and where they come from."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    workload: str
    requests: int
    max_prompt: int
    page_size: int
    window: int
    full_tokens: int
    swa_tokens: int
    concurrency: int
    bounds: Bounds
    unlimited_ratio: float
    oracle_ratio: float
    figures: list[HitFigure]
    simulated: list[SimulatedFigure]


class Loop:
    """Requests through one cache. Counts what they found and the thread's time in cache calls."""

    def __init__(self, cache: HybridCache, *, publishing: Publishing, concurrency: int) -> None:
        self.hit_tokens = 0
        self.lost_tokens = 0
        self.refused = 0
        self.cpu_ns = 0
        self._cache = cache
        self._slides = publishing == "slide"
        self._concurrency = concurrency
        self._running: deque[tuple[Request, WorkRequest]] = deque()

    def run(self, requests: list[WorkRequest], heard: Callable[[int], None]) -> None:
        """Serve all requests to their end."""
        for number, work in enumerate(requests):
            while len(self._running) >= self._concurrency:
                self._finish_oldest()
            request = self._admitted(f"{number}", work)
            if request is None:
                self.refused += 1
            else:
                self._prefill(request, work)
                self._running.append((request, work))
            heard(number + 1)
        while self._running:
            self._finish_oldest()

    def _admitted(self, name: str, work: WorkRequest) -> Request | None:
        """A request with slots for prompt and output; None where it does not fit into the pools alone."""
        total = len(work.prompt) + len(work.output)
        while True:
            request = self._timed(lambda: self._cache.open_request(name, work.prompt, work.namespace))
            prefix, branch = request.prefix_len, request.branch_len
            try:
                self._timed(partial(request.extend, total - request.reserved))
            except OutOfSlots:
                self._timed(request.abort)
                if not self._running:
                    return None
                self._finish_oldest()
                continue
            self.hit_tokens += prefix
            self.lost_tokens += branch - prefix
            return request

    def _prefill(self, request: Request, work: WorkRequest) -> None:
        page = self._cache.config.page_size
        first = request.publish_len
        if self._slides and request.prefix_len < first < len(work.prompt) // page * page:
            self._publish(request, first)
        self._publish(request, len(work.prompt))

    def _publish(self, request: Request, upto: int) -> None:
        self._timed(lambda: request.computed(upto))
        if self._slides:
            self._timed(request.slide)
        self._timed(request.commit)

    def _finish_oldest(self) -> None:
        request, work = self._running.popleft()
        if len(work.output):
            self._timed(lambda: request.append(work.output))
        self._timed(request.computed)
        if self._slides:
            self._timed(request.slide)
        self._timed(request.finish)

    def _timed(self, call: Callable[[], Result]) -> Result:
        start = time.thread_time_ns()
        try:
            return call()
        finally:
            self.cpu_ns += time.thread_time_ns() - start


def eviction_orders() -> tuple[str, ...]:
    """The orders of eviction that a cache can be configured with, the default first."""
    return get_args(CacheConfig.model_fields["eviction"].annotation)


def bench_hits(
    requests: list[WorkRequest],
    *,
    workload: str,
    config: CacheConfig,
    concurrency: int,
    max_prompt: int,
    progress: Progress | None = None,
) -> HitsReport:
    """Serve a workload once for each order of eviction and way of publishing, prompts cut at `max_prompt`.

    Cost: some milliseconds a request and run, the references and each simulated order once.
    """
    work = [_cut(request, max_prompt) for request in requests]
    rows = rows_of(work, page_size=config.page_size)
    sizes: dict[str, int] = {
        "page_size": config.page_size,
        "full_tokens": config.full_tokens,
        "concurrency": concurrency,
    }
    found = bounds(rows, **sizes)
    runs = [(publishing, eviction) for publishing in PUBLISHING for eviction in eviction_orders()]
    figures: list[HitFigure] = []
    for place, (publishing, eviction) in enumerate(runs):
        loop = Loop(HybridCache(_with(config, eviction)), publishing=publishing, concurrency=concurrency)

        def heard(done: int, before: int = place * len(work)) -> None:
            if progress is not None:
                progress("requests", before + done, len(runs) * len(work))

        loop.run(work, heard)
        figures.append(
            HitFigure(
                publishing=publishing,
                eviction=eviction,
                hit_tokens=loop.hit_tokens,
                hit_ratio=_ratio(loop.hit_tokens, found.prompt_tokens),
                share_of_oracle=_ratio(loop.hit_tokens, found.oracle_tokens),
                share_of_unlimited=_ratio(loop.hit_tokens, found.unlimited_tokens),
                lost_to_swa=_ratio(loop.lost_tokens, found.prompt_tokens),
                refused=loop.refused,
                cpu_us_per_request=round(loop.cpu_ns / 1e3 / len(work), 1),
            )
        )
    return HitsReport(
        environment=environment(),
        workload=workload,
        requests=len(work),
        max_prompt=max_prompt,
        page_size=config.page_size,
        window=config.sliding_window,
        full_tokens=config.full_tokens,
        swa_tokens=config.swa_tokens,
        concurrency=concurrency,
        bounds=found,
        unlimited_ratio=_ratio(found.unlimited_tokens, found.prompt_tokens),
        oracle_ratio=_ratio(found.oracle_tokens, found.prompt_tokens),
        figures=figures,
        simulated=[_simulated(order, simulated(rows, order, **sizes), found) for order in ORDERS],
    )


def _simulated(order: str, hit_tokens: int, found: Bounds) -> SimulatedFigure:
    return SimulatedFigure(
        order=order,
        hit_tokens=hit_tokens,
        hit_ratio=_ratio(hit_tokens, found.prompt_tokens),
        share_of_oracle=_ratio(hit_tokens, found.oracle_tokens),
        share_of_unlimited=_ratio(hit_tokens, found.unlimited_tokens),
    )


def _with(config: CacheConfig, eviction: str) -> CacheConfig:
    """The same pools under another order of eviction."""
    fields: dict[str, Any] = config.model_dump()
    return CacheConfig.model_validate({**fields, "eviction": eviction})


def _cut(request: WorkRequest, max_prompt: int) -> WorkRequest:
    if len(request.prompt) <= max_prompt:
        return request
    return WorkRequest(
        request_id=request.request_id,
        arrival_ms=request.arrival_ms,
        prompt=np.ascontiguousarray(request.prompt[:max_prompt]),
        output=request.output,
        namespace=request.namespace,
    )


def _ratio(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0
