"""What looking costs: how fast a past state is answered, and what the scheduler's thread loses meanwhile.

`bench_past` fills a journal, follows it, and asks for the tree at random past seqs through the whole
application, by its ASGI interface: no network is in the figures. `bench_load` runs the reference workload
with no inspector, with one that nobody asks, and with one under load, in turns; each round gives one ratio
for each, so a machine that changes its speed changes both sides. Counted is the wall's time in cache calls.
"""

import asyncio
import dataclasses
import gc
import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.api.app import create_app
from kvledger.api.inspector import SHARE, Inspector
from kvledger.api.library import Library
from kvledger.api.settings import ApiSettings
from kvledger.journal import Journal
from kvledger.journal.durability import Durability
from kvledger.tools.bench.asking import ask
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.bench.load import LoadFigure, under_load
from kvledger.tools.bench.recording import Traffic, serve, traffic
from kvledger.tools.bench.trace import CallMeter
from kvledger.tools.progress import Progress

Way = Literal["off", "attached", "asked"]
WAYS: tuple[Way, ...] = ("off", "attached", "asked")

EVENTS_PER_REQUEST = 40
"""About what a request of the built-in workload comes to: a journal is asked for by its events."""

LARGE_FULL_TOKENS = 2**20
LARGE_SWA_TOKENS = 2**18
"""Pools so large that the tree grows to about ten thousand nodes, instead of the few hundred of the usual
ones: a state that takes something to restore."""


class PastFigure(BaseModel):
    """The tree at random past seqs of a journal that is followed to its end, milliseconds an answer.

    `warm_seconds`: how long following it took. `nodes` are in the tree at its end.
    """

    model_config = ConfigDict(frozen=True)

    events: int
    nodes: int
    snapshots: int
    warm_seconds: float
    questions: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    cpu_median_ms: float
    cpu_p99_ms: float


class LookFigure(BaseModel):
    """The scheduler's thread with or without an inspector: medians over the rounds, ratios over "off"."""

    model_config = ConfigDict(frozen=True)

    way: Way
    wall_seconds: float
    wall_ratio: float
    cpu_seconds: float
    cpu_ratio: float


class InspectReport(BaseModel):
    """All figures of one `kvledger bench inspect`, and where they come from."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    workload: str
    requests: int
    repeats: int
    rate: float
    share: float | None
    durability: Durability
    past: PastFigure | None
    calls: int
    looks: list[LookFigure]
    loads: list[LoadFigure]


def bench_inspect(
    work: Traffic,
    *,
    events: int,
    questions: int,
    repeats: int,
    rate: float,
    seed: int,
    progress: Progress | None = None,
) -> InspectReport:
    """Both measurements: `events` 0 leaves out the one of the past, `repeats` 0 that of the load."""
    past = None
    if events:
        past = bench_past(events=events, questions=questions, seed=seed, progress=progress)
    return bench_load(work, repeats=repeats, rate=rate, seed=seed, past=past, progress=progress)


def bench_past(*, events: int, questions: int, seed: int, progress: Progress | None = None) -> PastFigure:
    """Ask for the tree at `questions` random seqs of a journal of about `events` events.

    Cost: some minutes for a million events, most of them for making them.
    """
    work = traffic(trace=None, requests=max(1, events // EVENTS_PER_REQUEST), seed=seed)
    large = dataclasses.replace(work.preset, full_tokens=LARGE_FULL_TOKENS, swa_tokens=LARGE_SWA_TOKENS)
    work = dataclasses.replace(work, preset=large)
    with tempfile.TemporaryDirectory(prefix="kvledger-bench-") as folder:
        path = Path(folder) / "past.db"
        with Journal.open(path) as store, store.record(name="past", durability="background") as recorder:
            serve(work, sink=recorder, meter=CallMeter())
        if progress is not None:
            progress("recorded", 1, 3)
        with Journal.open(path, create=False) as store:
            return asyncio.run(_ask_past(store, questions=questions, seed=seed, progress=progress))


async def _ask_past(store: Journal, *, questions: int, seed: int, progress: Progress | None) -> PastFigure:
    library = Library(store)
    settings = ApiSettings(host="127.0.0.1", requests_per_second=1_000_000)
    app = create_app(settings, library)
    opened = library.opened(store.list()[0].id)
    began = time.perf_counter()
    last = int(opened.reader.head().seq)
    while opened.timeline.following.state == "loading":
        await asyncio.to_thread(opened.timeline.wait_beyond, opened.timeline.following.seq, 1.0)
    warm = time.perf_counter() - began
    if progress is not None:
        progress("followed", 2, 3)
    dice = random.Random(seed)
    wall, cpu = np.empty(questions), np.empty(questions)
    address = f"/v1/journals/{opened.id}/tree"
    try:
        nodes = json.loads(await ask(app, address))["nodes_total"]
        for place in range(questions):
            first_row = dice.randrange(1_000)
            asked = {"at": dice.randrange(1, last), "rows": 100, "first_row": first_row}
            began, began_cpu = time.perf_counter(), time.process_time()
            await ask(app, address, asked)
            wall[place] = time.perf_counter() - began
            cpu[place] = time.process_time() - began_cpu
    finally:
        library.close()
    return PastFigure(
        events=last,
        nodes=nodes,
        snapshots=opened.timeline.following.snapshots,
        warm_seconds=round(warm, 2),
        questions=questions,
        median_ms=_percentile(wall, 50),
        p99_ms=_percentile(wall, 99),
        worst_ms=_percentile(wall, 100),
        cpu_median_ms=_percentile(cpu, 50),
        cpu_p99_ms=_percentile(cpu, 99),
    )


def bench_load(
    work: Traffic,
    *,
    repeats: int,
    rate: float,
    seed: int,
    durability: Durability = "step",
    share: float | None = SHARE,
    past: PastFigure | None = None,
    progress: Progress | None = None,
) -> InspectReport:
    """Serve a workload `repeats` times in every way, asked `rate` times a second in the last one."""
    wall, cpu = (np.empty((repeats, len(WAYS))) for _ in range(2))
    loads: list[LoadFigure] = []
    calls = 0
    for round_number in range(repeats):
        # Every other round the other way round: what warms up or cools down falls on both ends.
        for place in range(len(WAYS)) if round_number % 2 == 0 else reversed(range(len(WAYS))):
            meter = CallMeter()
            gc.collect()
            _serve_watched(
                work,
                WAYS[place],
                meter=meter,
                rate=rate,
                seed=seed + round_number,
                durability=durability,
                share=share,
                loads=loads,
            )
            calls = len(meter.calls_ns)
            wall[round_number, place] = meter.wall_ns / 1e9
            cpu[round_number, place] = sum(meter.calls_ns) / 1e9
            if progress is not None:
                done = round_number * len(WAYS) + (place if round_number % 2 == 0 else len(WAYS) - 1 - place)
                progress("runs", done + 1, repeats * len(WAYS))
    return InspectReport(
        environment=environment(),
        workload=work.name,
        requests=len(work.requests),
        repeats=repeats,
        rate=rate,
        share=share,
        durability=durability,
        past=past,
        calls=calls,
        looks=[
            LookFigure(
                way=way,
                wall_seconds=round(float(np.median(wall[:, place])), 4),
                wall_ratio=round(float(np.median(wall[:, place] / wall[:, 0])), 4),
                cpu_seconds=round(float(np.median(cpu[:, place])), 4),
                cpu_ratio=round(float(np.median(cpu[:, place] / cpu[:, 0])), 4),
            )
            for place, way in enumerate(WAYS)
            if repeats
        ],
        loads=loads,
    )


def _serve_watched(
    work: Traffic,
    way: Way,
    *,
    meter: CallMeter,
    rate: float,
    seed: int,
    durability: Durability,
    share: float | None,
    loads: list[LoadFigure],
) -> None:
    with ExitStack() as around:
        folder = around.enter_context(tempfile.TemporaryDirectory(prefix="kvledger-bench-"))
        store = around.enter_context(Journal.open(Path(folder) / "live.db"))
        recorder = around.enter_context(store.record(name="live", durability=durability))
        figures: list[LoadFigure] = []
        if way != "off":
            inspector = around.enter_context(Inspector.attach(recorder, share=share))
            if way == "asked":
                load = under_load(inspector.url, journal=recorder.journal_id, rate=rate, seed=seed)
                figures = around.enter_context(load)
        flush: Callable[[], object] | None = recorder.flush if durability == "step" else None
        serve(work, sink=recorder, meter=meter, flush=flush)
    loads += figures


def _percentile(seconds: "np.ndarray[tuple[int], np.dtype[np.float64]]", percent: float) -> float:
    return round(float(np.percentile(seconds, percent)) * 1e3, 2)
