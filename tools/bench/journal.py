"""What a journal costs where it is written and where it is read: events a second, bytes an event.

A workload is served once into memory. Its transactions are then written into a fresh store, slice by slice,
each with a flush at its end, and read back for replay and audit. CPU time is the whole process's, all threads
together, so a rate by it is what one core sustains; the wall's is what two threads made of this machine. The
median and the 99th percentile are over all slices of all repeats.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.audit import audit
from kvledger.journal.keeper import DEFAULT_CHECKPOINT_EVENTS
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import replay
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.bench.recording import Traffic, pages_named, recorded
from kvledger.tools.progress import Progress

SLICE_EVENTS = 4_096
"""Events timed together: what the writer stores in one database transaction."""


WORKS = ("write", "write + checkpoints", "replay", "replay + audit", "verify the chain")
"""What is measured. Checkpoints: one at least, and as many as a recorder makes by default, with the fold of
all events: what it has not come to while there was something to store is counted when it closes."""


class RateFigure(BaseModel):
    """How fast one kind of work went through the events, and what an event cost, in microseconds."""

    model_config = ConfigDict(frozen=True)

    work: str
    events_per_cpu_second: int
    events_per_second: int
    pages_per_cpu_second: int
    cpu_median_us: float
    cpu_p99_us: float
    wall_median_us: float
    wall_p99_us: float


class JournalReport(BaseModel):
    """All figures of one `kvledger bench journal`, and where they come from.

    `payload_bytes_per_event` are payloads and blobs, `file_bytes_per_event` the whole database.
    `append_median_us` and `append_p99_us` are what one `append` costs the scheduler's thread, by the wall.
    """

    model_config = ConfigDict(frozen=True)

    environment: Environment
    workload: str
    requests: int
    repeats: int
    transactions: int
    events: int
    pages: int
    payload_bytes_per_event: float
    file_bytes_per_event: float
    append_median_us: float
    append_p99_us: float
    figures: list[RateFigure]


@dataclass(slots=True)
class _Times:
    """Of each slice: its events, and the seconds it took by the process's CPU and by the wall."""

    events: list[int] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    rest_cpu: float = 0.0
    rest_wall: float = 0.0

    def slice(self, events: int, work: Callable[[], object]) -> None:
        """Do `work` on a slice of `events` and keep its times."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.add(events, cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)

    def add(self, events: int, *, cpu: float, wall: float) -> None:
        """Keep the seconds that a slice of `events` took."""
        self.events.append(events)
        self.cpu.append(cpu)
        self.wall.append(wall)

    def rest(self, work: Callable[[], object]) -> None:
        """Do `work` that belongs to no slice: it counts in the rates, not in the median."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        self.rest_cpu += time.process_time() - cpu
        self.rest_wall += time.perf_counter() - wall

    def figure(self, work: str, *, pages_per_event: float) -> RateFigure:
        """What the slices and the rest amount to."""
        events = np.array(self.events, dtype=np.int64)
        cpu, wall = np.array(self.cpu), np.array(self.wall)
        # A last slice of a few events would count as much as a whole one.
        whole = events >= SLICE_EVENTS if (events >= SLICE_EVENTS).any() else events > 0
        cpu_us, wall_us = (cpu / events)[whole] * 1e6, (wall / events)[whole] * 1e6
        rate = events.sum() / (cpu.sum() + self.rest_cpu)
        return RateFigure(
            work=work,
            events_per_cpu_second=round(rate),
            events_per_second=round(events.sum() / (wall.sum() + self.rest_wall)),
            pages_per_cpu_second=round(rate * pages_per_event),
            cpu_median_us=round(float(np.median(cpu_us)), 2),
            cpu_p99_us=round(float(np.percentile(cpu_us, 99)), 2),
            wall_median_us=round(float(np.median(wall_us)), 2),
            wall_p99_us=round(float(np.percentile(wall_us, 99)), 2),
        )


@dataclass(slots=True)
class _Written:
    """What writing leaves besides its times."""

    appends: list[float] = field(default_factory=list)
    payload_bytes: float = 0.0
    file_bytes: float = 0.0


def bench_journal(work: Traffic, *, repeats: int, progress: Progress | None = None) -> JournalReport:
    """Write, replay and audit the journal of a workload `repeats` times.

    `progress` hears how many repeats are done. Cost: some seconds for each repeat and 100,000 events.
    """
    transactions = recorded(work)
    events = sum(len(record.events) for record in transactions)
    pages = pages_named(transactions)
    times = {name: _Times() for name in WORKS}
    written = _Written()
    for done in range(repeats):
        with tempfile.TemporaryDirectory(prefix="kvledger-bench-") as folder:
            with Journal.open(Path(folder) / "checkpoints.db") as journal:
                every = min(events, DEFAULT_CHECKPOINT_EVENTS)
                _write(journal, transactions, times["write + checkpoints"], every=every)
            path = Path(folder) / "events.db"
            with Journal.open(path) as journal:
                _write(journal, transactions, times["write"], every=0, into=written)
                written.file_bytes = path.stat().st_size
                _read(journal, times)
        if progress is not None:
            progress("repeats", done + 1, repeats)
    appends = np.array(written.appends) * 1e6
    return JournalReport(
        environment=environment(),
        workload=work.name,
        requests=len(work.requests),
        repeats=repeats,
        transactions=len(transactions),
        events=events,
        pages=pages,
        payload_bytes_per_event=round(written.payload_bytes / events, 1),
        file_bytes_per_event=round(written.file_bytes / events, 1),
        append_median_us=round(float(np.median(appends)), 2),
        append_p99_us=round(float(np.percentile(appends, 99)), 2),
        figures=[kept.figure(name, pages_per_event=pages / events) for name, kept in times.items()],
    )


def _write(
    journal: Journal,
    transactions: Sequence[TransactionRecord],
    times: _Times,
    *,
    every: int,
    into: _Written | None = None,
) -> None:
    appends: list[float] = []
    with journal.record(name="bench", durability="background", checkpoint_every=every) as recorder:

        def store(records: Sequence[TransactionRecord]) -> None:
            for record in records:
                began = time.perf_counter()
                recorder.append(record)
                appends.append(time.perf_counter() - began)
            recorder.flush()

        for count, records in _slices(transactions):
            times.slice(count, partial(store, records))
        times.rest(recorder.close)
    if into is not None:
        into.appends += appends
        into.payload_bytes = recorder.counters.bytes


def _read(journal: Journal, times: dict[str, _Times]) -> None:
    reader = journal.reader()
    replay(_watched(reader.transactions(), times["replay"]))
    audit(_watched(reader.transactions(), times["replay + audit"]))
    times["verify the chain"].slice(int(reader.head().seq), lambda: list(journal.verify()))


def _watched(transactions: Iterable[StoredTransaction], times: _Times) -> Iterator[StoredTransaction]:
    """Hands transactions on, and keeps how long it took to read and use each slice of them."""
    count = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for transaction in transactions:
        yield transaction
        count += len(transaction.events)
        if count >= SLICE_EVENTS:
            times.add(count, cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)
            count = 0
            wall, cpu = time.perf_counter(), time.process_time()
    if count:
        times.add(count, cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)


def _slices(transactions: Iterable[TransactionRecord]) -> Iterator[tuple[int, list[TransactionRecord]]]:
    """Runs of transactions with at least `SLICE_EVENTS` events, and how many they have."""
    count = 0
    held: list[TransactionRecord] = []
    for transaction in transactions:
        held.append(transaction)
        count += len(transaction.events)
        if count >= SLICE_EVENTS:
            yield count, held
            count, held = 0, []
    if held:
        yield count, held
