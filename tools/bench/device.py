"""How often the cache touches its device: one copy for an acquired prefix, one mapping update for a commit.

A seeded workload is served twice: once step by step under the profiler of torch (`device_steps`), once by the
clock. KV is not written: that would be the engine's own copies.
"""

from collections.abc import Callable

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.errors import InvalidArgument
from kvledger.core.events import SwaRecovered
from kvledger.core.sinks import MemorySink
from kvledger.tools.bench.device_rounds import TO_DEVICE, serve_rounds
from kvledger.tools.bench.device_steps import (
    COPY_ON_HOST,
    COPY_TO_DEVICE,
    UPDATES_ON_DEVICE,
    Profiler,
    Seen,
    Stopwatch,
)
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.progress import Progress
from kvledger.tools.run.runner import one_torch_thread

PAGE_SIZE = 16
WINDOW = 64
FULL_TOKENS = 4_096
SWA_TOKENS = 2_048
"""Small pools, so that the steps that reserve slots also evict."""

LAYOUT = KVLayout(full_layers=(1, 3), swa_layers=(0, 2), kv_heads=1, head_dim=8, dtype="bfloat16")


class StepFigure(BaseModel):
    """One kind of step: how often it was made, what its commits did, and what a call takes.

    `commits` are outermost ones, `changing` those of them after which the mirror was another. `copies` and
    `updates` are what the profiles counted. Microseconds: the thread's CPU time on a processor; on a device
    the wall's, until it has done what it was given.
    """

    model_config = ConfigDict(frozen=True)

    step: str
    calls: int
    commits: int
    changing: int
    updates: int
    copies: int
    median_us: float
    p99_us: float


class DeviceReport(BaseModel):
    """All figures of one `kvledger bench device`, and where they come from.

    `deviations` counts steps with another number than expected: a copy for a prefix, an update for a commit
    that changes the mapping, none for one that does not, and with it one copy on a CUDA device.
    """

    model_config = ConfigDict(frozen=True)

    environment: Environment
    device: str
    device_name: str | None
    cuda_available: bool
    copies_are: str
    updates_are: str
    layout: KVLayout
    page_size: int
    window: int
    rounds: int
    seed: int
    recoveries: int
    prefixes: int
    copies_per_prefix: float
    changing_commits: int
    updates_per_changing_commit: float
    other_commits: int
    updates_per_other_commit: float
    deviations: int
    steps: list[StepFigure]


def bench_device(
    *, rounds: int, seed: int, device: str | None = None, progress: Progress | None = None
) -> DeviceReport:
    """Serve `rounds` of the workload under the profiler, and again by the clock.

    `device`: a processor or a CUDA device in torch's words, None for CUDA where torch sees one. Raises
    InvalidArgument for any other, and where the profiler does not see the device's copies. `progress` hears
    how many rounds are done. Cost: some seconds, and about 50 milliseconds a round.
    """
    there = torch.cuda.is_available()
    device = device or ("cuda" if there else "cpu")

    def heard(before: int) -> Callable[[int], None]:
        return lambda done: None if progress is None else progress("rounds", before + done, 2 * rounds)

    with one_torch_thread():
        sink = MemorySink()
        cache = _cache(device, sink)
        profiler = Profiler(cache, sink)
        serve_rounds(cache, profiler, rounds=rounds, seed=seed, heard=heard(0))
        timed = _cache(device, MemorySink())
        watch = Stopwatch(timed)
        serve_rounds(timed, watch, rounds=rounds, seed=seed, heard=heard(rounds))
    seen, on_device = profiler.seen, profiler.on_device
    prefixes = [one for one in seen if one.step == TO_DEVICE]
    changing = [one for one in seen if one.changed]
    others = [one for one in seen if one.commits and not one.changed]
    return DeviceReport(
        environment=environment(),
        device=device,
        device_name=torch.cuda.get_device_name(cache.pool.device) if on_device else None,
        cuda_available=there,
        copies_are=COPY_TO_DEVICE if on_device else COPY_ON_HOST,
        updates_are=", ".join(UPDATES_ON_DEVICE) if on_device else "updates of the mirror",
        layout=LAYOUT,
        page_size=PAGE_SIZE,
        window=WINDOW,
        rounds=rounds,
        seed=seed,
        recoveries=sum(isinstance(event, SwaRecovered) for one in sink.transactions for event in one.events),
        prefixes=len(prefixes),
        copies_per_prefix=_each(sum(one.copies for one in prefixes), len(prefixes)),
        changing_commits=sum(one.commits for one in changing),
        updates_per_changing_commit=_each(
            sum(one.updates for one in changing), sum(one.commits for one in changing)
        ),
        other_commits=sum(one.commits for one in others),
        updates_per_other_commit=_each(
            sum(one.updates for one in others), sum(one.commits for one in others)
        ),
        deviations=sum(not one.as_expected(on_device=on_device) for one in seen),
        steps=[_figure(step, seen, spent) for step, spent in watch.spent.items()],
    )


def _cache(device: str, sink: MemorySink) -> HybridCache:
    config = CacheConfig(
        page_size=PAGE_SIZE,
        sliding_window=WINDOW,
        full_tokens=FULL_TOKENS,
        swa_tokens=SWA_TOKENS,
        device=device,
        layout=LAYOUT,
    )
    cache = HybridCache(config, sink=sink)
    if cache.pool.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"copies are counted on a processor or a CUDA device, not on {device!r}")
    return cache


def _figure(step: str, seen: list[Seen], spent: list[float]) -> StepFigure:
    mine = [one for one in seen if one.step == step]
    return StepFigure(
        step=step,
        calls=len(mine),
        commits=sum(one.commits for one in mine),
        changing=sum(one.commits for one in mine if one.changed),
        updates=sum(one.updates for one in mine),
        copies=sum(one.copies for one in mine),
        median_us=round(float(np.median(spent)), 1),
        p99_us=round(float(np.percentile(spent, 99)), 1),
    )


def _each(what: int, of: int) -> float:
    return round(what / of, 4) if of else 0.0
