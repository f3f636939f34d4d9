"""A real model on the pools, driven by hand or by the reference scheduler, with its logits checked."""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from kvledger.core import CacheConfig, HybridCache
from kvledger.tools.engine.differences import Difference
from kvledger.tools.engine.forward import ModelForward, fit
from kvledger.tools.engine.logits import LogitsCheck, run_alone
from kvledger.tools.engine.models import WINDOW, build_model, layout_by_name
from kvledger.tools.engine.workload import VOCABULARY, ThinnedWorkload
from kvledger.tools.run.presets import ENGINE
from kvledger.tools.run.report import RunReport
from kvledger.tools.run.runner import RunSetup, run_workload
from kvledger.tools.scheduler.forward import Work
from kvledger.tools.scheduler.job import Job, new_job
from kvledger.tools.workload import WorkRequest, builtin_workload
from kvledger.tools.workload.spec import Tokens

NOTHING: Tokens = np.empty(0, dtype=np.int32)


def text(seed: int, length: int) -> Tokens:
    """Random tokens of the small models' vocabulary."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, length).astype(np.int32)


def run_model(
    database: Path,
    *,
    model: str = "gemma3-tiny",
    requests: int = 80,
    page_size: int = ENGINE.page_size,
    window: int = WINDOW,
    swa_tokens: int = ENGINE.swa_tokens,
    locked_recovery: Literal["remap", "skip"] = "remap",
    seed: int = 0,
    device: str = "cpu",
    fingerprints: bool = False,
) -> RunReport:
    """The built-in workload, thinned, through a model; journaled and audited like any run."""
    setup = RunSetup(
        config=CacheConfig(
            page_size=page_size,
            sliding_window=window,
            full_tokens=ENGINE.full_tokens,
            swa_tokens=swa_tokens,
            layout=layout_by_name(model),
            locked_recovery=locked_recovery,
            device=device,
            fingerprints=fingerprints,
        ),
        settings=ENGINE.settings,
        database=str(database),
        name="engine",
        durability="background",
        model=model,
    )
    full = builtin_workload(requests, seed=seed)
    return run_workload(
        setup, ThinnedWorkload(full, keep=ENGINE.keep, hurry=ENGINE.hurry, vocabulary=VOCABULARY)
    )


class EngineByHand:
    """A cache and a model without a scheduler: each request computes when it is told to."""

    def __init__(
        self,
        *,
        model: str = "gemma3-tiny",
        page_size: int = 4,
        window: int = WINDOW,
        cache_window: int | None = None,
        full_tokens: int = 256,
        swa_tokens: int = 256,
    ) -> None:
        self.cache = HybridCache(
            CacheConfig(
                page_size=page_size,
                sliding_window=window if cache_window is None else cache_window,
                full_tokens=full_tokens,
                swa_tokens=swa_tokens,
                layout=layout_by_name(model),
            )
        )
        self.model: Any = build_model(model, window=window)
        self.check = LogitsCheck(run_alone(self.model))
        self.forward = ModelForward(self.cache, fit(self.model, self.cache.config), check=self.check)

    def open(self, name: str, tokens: Tokens) -> Job:
        """A request on its longest reusable prefix."""
        job = new_job(WorkRequest(name, 0, tokens, NOTHING))
        job.request = self.cache.open_request(name, tokens)
        job.reserved = job.computed = job.protected = job.request.prefix_len
        job.row[: job.computed] = job.request.slots
        return job

    def work(self, job: Job, end: int | None = None) -> Work:
        """Slots for the tokens up to `end` (None: all), which are then to be computed."""
        end = len(job.tokens) if end is None else end
        job.live.extend(end - job.reserved)
        job.row[job.reserved : end] = job.live.slots_of(job.reserved, end)
        job.reserved = end
        return Work(job, job.computed, end, publish=False)

    def compute(self, *batch: Work, publish: bool = False) -> None:
        """One forward over the batch; with `publish` each commits what it has."""
        self.forward.run(batch)
        for work in batch:
            work.job.computed = work.end
            work.job.live.computed()
            if publish:
                for start, end in work.job.live.commit().row_changed:
                    work.job.row[start:end] = work.job.live.slots_of(start, end)

    def serve(self, name: str, tokens: Tokens) -> Difference:
        """A request from beginning to end, in one chunk; how far its last logits were off."""
        job = self.open(name, tokens)
        self.compute(self.work(job))
        job.live.slide()
        job.live.finish()
        return self.settle(job)

    def settle(self, job: Job) -> Difference:
        """How far a request's logits were off."""
        self.forward.leave(job)
        return self.check.differences[-1]
