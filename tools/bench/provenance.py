"""What a remapped node costs in accuracy: its Full and its SWA were computed by different requests.

A real model serves the built-in workload, thinned for it, twice per dtype: as it is, and with a namespace for
each request, so that nothing is shared. Each request's logits are compared with those of the same model, in
the same dtype, run alone and without a cache. Requests that read a mixed node in some forward stand apart
from those that never did, and beside what they themselves come to where nothing is shared: batches and
chunks of other shapes round otherwise, with or without a cache. Whoever read no more of a mixed node than
its Full KV, because its SWA lay behind the window, read one request's KV after all: those that read its SWA
too are counted once more by themselves.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core import CacheConfig, HybridCache
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.engine.differences import Difference, total
from kvledger.tools.engine.forward import ModelForward, fit
from kvledger.tools.engine.hybrid import DType
from kvledger.tools.engine.logits import LogitsCheck, run_alone
from kvledger.tools.engine.models import build_model, layout_by_name
from kvledger.tools.engine.workload import VOCABULARY, ThinnedWorkload
from kvledger.tools.progress import Progress
from kvledger.tools.run.presets import ENGINE
from kvledger.tools.run.runner import one_torch_thread
from kvledger.tools.scheduler import Scheduler
from kvledger.tools.scheduler.forward import Work
from kvledger.tools.scheduler.job import Job
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload import Workload, WorkRequest, builtin_workload

DTYPES: tuple[DType, ...] = ("float32", "bfloat16")

MIXED = "mixed nodes"
IN_WINDOW = "of these, SWA of them"
OTHERS = "no mixed node"
UNSHARED = "the first, nothing shared"


class ProvenanceFigure(BaseModel):
    """Absolute differences of logits over all sampled positions of some requests.

    `differing` requests are off at all, by however little.
    """

    model_config = ConfigDict(frozen=True)

    dtype: str
    read: str
    requests: int
    differing: int
    positions: int
    largest: float | None
    mean: float | None
    nans: int


class ProvenanceReport(BaseModel):
    """Per dtype: requests that read mixed nodes, those of them that read SWA there, those that read none, and
    the first with nothing shared."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    transformers: str
    model: str
    seed: int
    requests: int
    page_size: int
    window: int
    recoveries_locked: int
    figures: list[ProvenanceFigure]


class MixedReads:
    """A forward that notes which requests read KV of a mixed node, and passes everything on.

    `readers` read Full KV of one, and `window_readers` of them its SWA KV as well, which nobody does once the
    node lies behind the window before what is computed.
    """

    def __init__(self, cache: HybridCache, inner: ModelForward) -> None:
        self._cache = cache
        self._inner = inner
        self.readers: set[str] = set()
        self.window_readers: set[str] = set()

    def prepare(self, job: Job) -> None:
        """Passed on."""
        self._inner.prepare(job)

    def run(self, batch: Sequence[Work]) -> None:
        """Look at what lies in each row, then compute. O(nodes + slots of the batch)."""
        page, window = self._cache.config.page_size, self._cache.config.sliding_window
        mixed = np.zeros(self._cache.config.full_pages + 1, dtype=bool)
        for node in self._cache.nodes():
            if node.swa_slots is not None and node.full_origin != node.swa_origin:
                mixed[node.full_slots // page] = True
        for work in batch:
            touched = mixed[work.job.row[: work.end] // page]
            if touched.any():
                self.readers.add(work.job.name)
            if touched[max(0, work.start - window) :].any():
                self.window_readers.add(work.job.name)
        self._inner.run(batch)

    def leave(self, job: Job) -> None:
        """Passed on."""
        self._inner.leave(job)


def bench_provenance(
    *, model: str, requests: int, seed: int, progress: Progress | None = None
) -> ProvenanceReport:
    """Serve the workload twice in each dtype and compare. What the cache decides depends on neither dtype."""
    figures: list[ProvenanceFigure] = []
    locked = 0
    with one_torch_thread():
        for dtype in DTYPES:
            workload = ThinnedWorkload(
                builtin_workload(requests, seed=seed),
                keep=ENGINE.keep,
                hurry=ENGINE.hurry,
                vocabulary=VOCABULARY,
            )
            shared = _served(model, dtype, workload, progress)
            apart = _served(model, dtype, _Apart(workload), progress)
            locked = shared.recoveries_locked
            everybody = {one.request_id for one in shared.differences}
            for read, served, whose in (
                (MIXED, shared, shared.readers),
                (IN_WINDOW, shared, shared.window_readers),
                (OTHERS, shared, everybody - shared.readers),
                (UNSHARED, apart, shared.readers),
            ):
                chosen = [one for one in served.differences if one.request_id in whose]
                figures.append(_figure(dtype, read, chosen))
    return ProvenanceReport(
        environment=environment(),
        transformers=version("transformers"),
        model=model,
        seed=seed,
        requests=requests,
        page_size=ENGINE.page_size,
        window=ENGINE.window,
        recoveries_locked=locked,
        figures=figures,
    )


@dataclass(frozen=True, slots=True)
class _Apart:
    """A workload whose requests have nothing in common: each in a namespace of its own."""

    together: Workload

    def __len__(self) -> int:
        return len(self.together)

    def __iter__(self) -> Iterator[WorkRequest]:
        return (replace(request, namespace=request.request_id) for request in self.together)


@dataclass(frozen=True, slots=True)
class _Served:
    differences: Sequence[Difference]
    readers: set[str]
    window_readers: set[str]
    recoveries_locked: int


def _served(name: str, dtype: DType, workload: Workload, progress: Progress | None) -> _Served:
    config = CacheConfig(
        page_size=ENGINE.page_size,
        sliding_window=ENGINE.window,
        full_tokens=ENGINE.full_tokens,
        swa_tokens=ENGINE.swa_tokens,
        layout=layout_by_name(name, dtype=dtype),
    )
    cache = HybridCache(config)
    model = build_model(name, window=ENGINE.window, dtype=dtype)
    # No difference is too large here: they are what is asked for.
    check = LogitsCheck(run_alone(model), bar=math.inf)
    forward = MixedReads(cache, ModelForward(cache, fit(model, config), check=check))
    meter = Meter()
    scheduler = Scheduler(
        cache,
        settings=ENGINE.settings,
        forward=forward,
        watch=Watch(
            None, window=config.sliding_window, page_size=config.page_size, full_pages=config.full_pages
        ),
        tap=TapSink(None, meter),
        meter=meter,
        flush=lambda: None,
    )
    scheduler.run(workload, progress=progress)
    return _Served(
        check.differences, forward.readers, forward.window_readers, cache.stats().recoveries_locked
    )


def _figure(dtype: str, read: str, chosen: Sequence[Difference]) -> ProvenanceFigure:
    summed = total(chosen)
    compared = summed.positions > summed.nans
    return ProvenanceFigure(
        dtype=dtype,
        read=read,
        requests=summed.requests,
        differing=sum(1 for one in chosen if one.largest > 0 or one.nans),
        positions=summed.positions,
        largest=summed.largest if compared else None,
        mean=summed.mean if compared else None,
        nans=summed.nans,
    )
