"""What the benchmarks of the journal are made from: the reference scheduler over a workload, without tensors.

`recorded` serves it once into memory, so that the same transactions can then be written, replayed and audited
as often as a measurement wants, with nothing of the cache in its time.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.events import Event
from kvledger.core.sinks import EventSink, MemorySink, TransactionRecord
from kvledger.tools.run.presets import BUILTIN, TRACE, Preset
from kvledger.tools.scheduler import Scheduler
from kvledger.tools.scheduler.forward import NoForward
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload import Workload, builtin_workload
from kvledger.tools.workload.trace import read_trace


@dataclass(frozen=True, slots=True)
class Traffic:
    """A workload, what it is called, and the sizes of the cache that serves it."""

    name: str
    requests: Workload
    preset: Preset


def traffic(*, trace: Path | None, requests: int, seed: int) -> Traffic:
    """The first `requests` of a Mooncake trace, or of the built-in workload that `seed` names for None."""
    if trace is None:
        return Traffic(f"built-in, seed {seed}", list(builtin_workload(requests, seed=seed)), BUILTIN)
    return Traffic(trace.name, list(read_trace(trace, requests=requests)), TRACE)


def serve(
    work: Traffic, *, sink: EventSink | None, meter: Meter, flush: Callable[[], object] | None = None
) -> None:
    """Serve a workload through a fresh cache that emits to `sink`; `flush` is called at the end of each step.

    Cache calls, `sink.append` included, are sections of `meter`; the time of the flushes is its `journal_ns`.
    """
    preset = work.preset
    config = CacheConfig(
        page_size=preset.page_size,
        sliding_window=preset.window,
        full_tokens=preset.full_tokens,
        swa_tokens=preset.swa_tokens,
    )
    nothing = Watch(
        None, window=config.sliding_window, page_size=config.page_size, full_pages=config.full_pages
    )
    scheduler = Scheduler(
        HybridCache(config, sink=sink),
        settings=preset.settings,
        forward=NoForward(),
        watch=nothing,
        tap=TapSink(None, meter),
        meter=meter,
        flush=_nothing if flush is None else meter.timed_journal(flush),
    )
    scheduler.run(work.requests)


def recorded(work: Traffic) -> list[TransactionRecord]:
    """The transactions of serving a workload once, in order."""
    sink = MemorySink()
    serve(work, sink=sink, meter=Meter())
    return sink.transactions


def pages_named(transactions: Sequence[TransactionRecord]) -> int:
    """How many pages the events name: what a replay has to move."""
    return sum(pages_in(record.events) for record in transactions)


def pages_in(events: Iterable[Event]) -> int:
    """How many pages these events name."""
    return sum(
        value.size
        for event in events
        for value in (getattr(event, field.name) for field in dataclasses.fields(event))
        if isinstance(value, np.ndarray)
    )


def _nothing() -> None:
    """A step that makes nothing durable."""
