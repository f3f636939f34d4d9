"""How fast a stored journal is read back, step by step: what each of them costs an event, on one core.

A workload is written once for each page size, or a journal is taken that is there already. Then every round
goes through all of it, three times and once more: batch by batch with rows, decoding and fold timed apart;
streamed, as replay and audit do it, with both timed whole; and along the chain. Only the reading thread's CPU
time counts, so other work on the machine matters less; what it still takes away is the processor's caches,
which is why ratios are of two passes of the same round.

The garbage collector's rounds over what the process had before are not counted: `gc.freeze` leaves it out.
"""

import dataclasses
import gc
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time_ns

import numpy as np
from pydantic import BaseModel, ConfigDict

from kvledger.core.errors import InvalidArgument
from kvledger.journal import Journal, JournalReader
from kvledger.journal.audit import audit
from kvledger.journal.batches import TransactionBatches, assemble
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import Fold
from kvledger.journal.verify import verify_chain
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.bench.recording import Traffic, pages_in, recorded
from kvledger.tools.progress import Progress

PAGE_SIZES = (64, 1)
"""Tokens a page: few pages an event and the price of an event shows, many and that of a page does."""

SLICE_EVENTS = 4_096
"""Streamed events that are timed together."""

WORKS = ("read", "decode", "fold", "replay", "replay + audit", "verify the chain")
"""What is measured: rows out of the database; transactions of rows; the fold of transactions; the three of
them, streamed; the same with every check of the audit; every hash recomputed."""

MEASURE = "replay"
"""The work that the others are compared with."""


class ReplayFigure(BaseModel):
    """What one kind of work costs at one page size. `ratio`: its time over that of `MEASURE`, the median of
    all rounds; microseconds are of one event, over all slices of all rounds."""

    model_config = ConfigDict(frozen=True)

    page_size: int
    work: str
    events_per_second: int
    pages_per_second: int
    median_us: float
    p99_us: float
    ratio: float


class ReplayedJournal(BaseModel):
    """What was read: events, the transactions they stand in, and the pages that they name."""

    model_config = ConfigDict(frozen=True)

    page_size: int
    transactions: int
    events: int
    pages: int


class ReplayReport(BaseModel):
    """All figures of one `kvledger bench replay`, and where they come from."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    source: str
    repeats: int
    journals: list[ReplayedJournal]
    figures: list[ReplayFigure]


class _Times:
    """Of one kind of work: the events of each slice and its nanoseconds, round by round."""

    def __init__(self) -> None:
        self.events: list[int] = []
        self.spent: list[int] = []
        self.rounds: list[int] = []

    def begin(self) -> None:
        self.rounds.append(0)

    def add(self, events: int, spent: int) -> None:
        self.events.append(events)
        self.spent.append(spent)
        self.rounds[-1] += spent

    def per_event_us(self) -> tuple[float, float]:
        """Median and 99th percentile over slices; a last slice of a few events is left out."""
        events = np.array(self.events)
        whole = 2 * events >= events.max()
        each = np.array(self.spent)[whole] / events[whole] / 1e3
        return round(float(np.median(each)), 2), round(float(np.percentile(each, 99)), 2)


def bench_replay(
    work: Traffic, *, repeats: int, page_sizes: Iterable[int] = PAGE_SIZES, progress: Progress | None = None
) -> ReplayReport:
    """Measure the journals of a workload, one for each page size; `progress` hears which rounds are done."""
    sizes = tuple(page_sizes)
    journals, figures = [], []
    for place, page_size in enumerate(sizes):
        preset = dataclasses.replace(work.preset, page_size=page_size)
        with _written(dataclasses.replace(work, preset=preset)) as reader:

            def told(done: int, place: int = place) -> None:
                if progress is not None:
                    progress("rounds", place * repeats + done, len(sizes) * repeats)

            journal, found = _measured(reader, repeats=repeats, told=told)
            journals.append(journal)
            figures += found
    return _report(work.name, repeats, journals, figures)


def bench_stored_replay(
    reader: JournalReader, *, source: str, repeats: int, progress: Progress | None = None
) -> ReplayReport:
    """Measure a journal that is there, which `source` names; it has to be there from its first event on."""

    def told(done: int) -> None:
        if progress is not None:
            progress("rounds", done, repeats)

    if reader.head().seq == 0 or reader.beginning().seq != 1:
        raise InvalidArgument(f"{source} has no events, or not its first ones: nothing to replay")
    journal, figures = _measured(reader, repeats=repeats, told=told)
    return _report(source, repeats, [journal], figures)


def _report(
    source: str, repeats: int, journals: list[ReplayedJournal], figures: list[ReplayFigure]
) -> ReplayReport:
    return ReplayReport(
        environment=environment(), source=source, repeats=repeats, journals=journals, figures=figures
    )


@contextmanager
def _written(work: Traffic) -> Iterator[JournalReader]:
    """A fresh journal of a workload, without full states: every replay of it begins at the first event."""
    transactions = recorded(work)
    with (
        tempfile.TemporaryDirectory(prefix="kvledger-bench-") as folder,
        Journal.open(Path(folder) / "events.db") as journal,
    ):
        with journal.record(name="bench", durability="background", checkpoint_every=0) as recorder:
            for record in transactions:
                recorder.append(record)
        del transactions
        yield journal.reader()


def _measured(
    reader: JournalReader, *, repeats: int, told: Callable[[int], None]
) -> tuple[ReplayedJournal, list[ReplayFigure]]:
    times = {name: _Times() for name in WORKS}
    journal = _described(reader)
    for done in range(repeats):
        for kept in times.values():
            kept.begin()
        for measure in (_in_steps, _streamed, _audited, _verified):
            with _nothing_older_collected():
                measure(reader, times)
        told(done + 1)
    figures = [_figure(journal, name, times) for name in WORKS]
    return journal, figures


def _described(reader: JournalReader) -> ReplayedJournal:
    transactions = pages = 0
    fold = Fold()
    for transaction in reader.transactions():
        transactions += 1
        pages += pages_in(stored.event for stored in transaction.events)
        fold.apply(transaction)
    return ReplayedJournal(
        page_size=fold.state.page_size, transactions=transactions, events=int(fold.seq), pages=pages
    )


def _figure(journal: ReplayedJournal, name: str, times: dict[str, _Times]) -> ReplayFigure:
    kept = times[name]
    median, p99 = kept.per_event_us()
    rate = 1e9 * sum(kept.events) / max(1, sum(kept.spent))
    ratios = np.array(kept.rounds) / np.maximum(1, times[MEASURE].rounds)
    return ReplayFigure(
        page_size=journal.page_size,
        work=name,
        events_per_second=round(rate),
        pages_per_second=round(rate * journal.pages / journal.events),
        median_us=median,
        p99_us=p99,
        ratio=round(float(np.median(ratios)), 3),
    )


@contextmanager
def _nothing_older_collected() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _in_steps(reader: JournalReader, times: dict[str, _Times]) -> None:
    fold = Fold()
    began = thread_time_ns()
    for heads, rows in TransactionBatches(reader.engine, reader.info.id).rows():
        read = thread_time_ns()
        transactions = list(assemble(heads, rows))
        decoded = thread_time_ns()
        for transaction in transactions:
            fold.apply(transaction)
        folded = thread_time_ns()
        if rows:
            times["read"].add(len(rows), read - began)
            times["decode"].add(len(rows), decoded - read)
            times["fold"].add(len(rows), folded - decoded)
        began = thread_time_ns()


def _streamed(reader: JournalReader, times: dict[str, _Times]) -> None:
    fold = Fold()
    for transaction in _watched(reader.transactions(), times["replay"]):
        fold.apply(transaction)


def _audited(reader: JournalReader, times: dict[str, _Times]) -> None:
    audit(_watched(reader.transactions(), times["replay + audit"]))


def _verified(reader: JournalReader, times: dict[str, _Times]) -> None:
    began = thread_time_ns()
    for _ in verify_chain(reader.engine, reader.info.id):
        pass
    times["verify the chain"].add(int(reader.head().seq), thread_time_ns() - began)


def _watched(transactions: Iterable[StoredTransaction], times: _Times) -> Iterator[StoredTransaction]:
    """Hands transactions on, and keeps how long it took to read and use each slice of them."""
    count = 0
    began = thread_time_ns()
    for transaction in transactions:
        yield transaction
        count += len(transaction.events)
        if count >= SLICE_EVENTS:
            times.add(count, thread_time_ns() - began)
            count = 0
            began = thread_time_ns()
    if count:
        times.add(count, thread_time_ns() - began)
