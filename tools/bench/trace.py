"""What journaling costs the scheduler's thread: a workload served with the journal off and on, in turns.

Each round gives one ratio for each way of recording, so that a machine that changes its speed changes both
sides of it; the report has the median over the rounds. The cost counted is that of the cache calls, with the
sink's `append` in them. What the flush at the end of each step takes is told apart: most of it is waiting.
Both together are what journaling costs the scheduler's thread. What it costs the machine is the CPU time of
the whole process, the writer's thread included, until the recorder is closed and all is stored.

Four ways are compared with no journal: "memory" keeps the transactions in a list, "background" lets the
writer's thread work whenever it can, "step" has it done with each step at its end, and "apart" hands each
step to a process of its own, whose start is not counted.
"""

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core.sinks import EventSink, MemorySink
from kvledger.journal import Journal
from kvledger.journal.apart import ApartRecorder
from kvledger.journal.recorder import Recorder
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.bench.recording import Traffic, serve
from kvledger.tools.progress import Progress
from kvledger.tools.scheduler.meter import Meter

Journaling = Literal["off", "memory", "background", "step", "apart"]
WAYS: tuple[Journaling, ...] = ("off", "memory", "background", "step", "apart")


class WayFigure(BaseModel):
    """The scheduler's thread under one way of journaling: medians over the runs.

    `cpu_seconds` and `wall_seconds` are of all cache calls, `cpu_median_us` and `cpu_p99_us` of one.
    The ratios are over the run without a journal in the same round. `flush_cpu_seconds`: beside the calls.
    `thread_us_per_request` are calls and flushes. `process_us_per_request` is the CPU time of all threads,
    that of the process that stores included, from the first request until the recorder is closed: the
    reference scheduler's own work is in it, with and without a journal.
    """

    model_config = ConfigDict(frozen=True)

    journaling: Journaling
    cpu_seconds: float
    cpu_median_us: float
    cpu_p99_us: float
    cpu_ratio: float
    wall_seconds: float
    wall_ratio: float
    flush_cpu_seconds: float
    thread_us_per_request: float
    thread_ratio: float
    process_us_per_request: float
    process_ratio: float


class TraceReport(BaseModel):
    """All figures of one `kvledger bench trace`, and where they come from."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    workload: str
    requests: int
    repeats: int
    calls: int
    events: int
    figures: list[WayFigure]


class CallMeter(Meter):
    """Keeps the time of each section, by the thread's CPU and by the wall."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_ns: list[int] = []
        self.wall_ns = 0
        self._wall_start = 0
        self._before = 0

    def __enter__(self) -> None:
        self._wall_start = time.perf_counter_ns()
        self._before = self.section_ns
        super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.calls_ns.append(self.section_ns - self._before)
        self.wall_ns += time.perf_counter_ns() - self._wall_start


def bench_trace(work: Traffic, *, repeats: int, progress: Progress | None = None) -> TraceReport:
    """Serve a workload `repeats` times in every way. `progress` hears how many runs are done.

    Cost: as many runs as ways and repeats, some seconds each for a thousand requests.
    """
    cpu, wall, flushed, process, median, p99 = (np.empty((repeats, len(WAYS))) for _ in range(6))
    events = calls = 0
    for round_number in range(repeats):
        for place, way in enumerate(WAYS):
            meter = CallMeter()
            with _sink(way) as sink:
                # What an earlier run left behind is not this one's to clean up.
                gc.collect()
                recorder = sink if isinstance(sink, Recorder | ApartRecorder) else None
                flush = recorder.flush if recorder is not None and way in ("step", "apart") else None
                began = _process_seconds(recorder)
                serve(work, sink=sink, meter=meter, flush=flush)
                if recorder is not None:
                    # What the writer has left to do is part of the cost.
                    recorder.close()
                process[round_number, place] = _process_seconds(recorder) - began
            if isinstance(sink, MemorySink):
                events = sum(len(record.events) for record in sink.transactions)
            spent = np.array(meter.calls_ns)
            calls = spent.size
            cpu[round_number, place] = spent.sum() / 1e9
            median[round_number, place], p99[round_number, place] = np.percentile(spent, (50, 99)) / 1e3
            wall[round_number, place] = meter.wall_ns / 1e9
            flushed[round_number, place] = meter.journal_seconds
            if progress is not None:
                progress("runs", round_number * len(WAYS) + place + 1, repeats * len(WAYS))
    thread, each = cpu + flushed, 1e6 / len(work.requests)
    return TraceReport(
        environment=environment(),
        workload=work.name,
        requests=len(work.requests),
        repeats=repeats,
        calls=calls,
        events=events,
        figures=[
            WayFigure(
                journaling=way,
                cpu_seconds=_median(cpu[:, place], 4),
                cpu_median_us=_median(median[:, place], 2),
                cpu_p99_us=_median(p99[:, place], 2),
                cpu_ratio=_median(cpu[:, place] / cpu[:, 0], 4),
                wall_seconds=_median(wall[:, place], 4),
                wall_ratio=_median(wall[:, place] / wall[:, 0], 4),
                flush_cpu_seconds=_median(flushed[:, place], 4),
                thread_us_per_request=_median(thread[:, place] * each, 1),
                thread_ratio=_median(thread[:, place] / thread[:, 0], 4),
                process_us_per_request=_median(process[:, place] * each, 1),
                process_ratio=_median(process[:, place] / process[:, 0], 4),
            )
            for place, way in enumerate(WAYS)
        ],
    )


def _process_seconds(recorder: Recorder | ApartRecorder | None) -> float:
    """CPU time of this process, and of the one that stores where there is one."""
    apart = recorder.counters.cpu_seconds if isinstance(recorder, ApartRecorder) else 0.0
    return time.process_time_ns() / 1e9 + apart


def _median(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", digits: int) -> float:
    return round(float(np.median(values)), digits)


@contextmanager
def _sink(way: Journaling) -> Iterator[EventSink | None]:
    """Where the events of one run go; a journal into a file of its own."""
    if way == "off":
        yield None
    elif way == "memory":
        yield MemorySink()
    else:
        with (
            tempfile.TemporaryDirectory(prefix="kvledger-bench-") as folder,
            Journal.open(Path(folder) / "bench.db", create=True) as journal,
            _recorded(journal, way) as recorder,
        ):
            yield recorder


def _recorded(journal: Journal, way: Literal["background", "step", "apart"]) -> Recorder | ApartRecorder:
    if way == "apart":
        return journal.record_apart(name="bench")
    return journal.record(name="bench", durability=way)
