"""The process that is killed: it serves a workload with journaling on, again and again, until the end.

What it knows to be durable stands in memory shared with the one who kills it, which outlives it: a store of
eight aligned bytes is there or it is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvledger.core import HybridCache
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.apart import ApartRecorder
from kvledger.journal.durability import Durability
from kvledger.journal.recorder import Recorder
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.scheduler import Scheduler
from kvledger.tools.scheduler.forward import NoForward
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload import builtin_workload

JOURNAL, ACCEPTED, DURABLE, STEPS, WRITER = range(5)
"""Places in the shared memory: the journal's id, the last seq that `append` accepted, the last seq that was
durable when the recorder said so, how many steps were served, and the process that stores if there is one:
what was handed to it counts as durable."""

PLACES = 5

REQUESTS = 100
"""In one round of the workload; a victim that is left alone serves round after round."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the victim is to do."""

    database: str
    durability: Durability
    seed: int
    apart: bool = False


class WitnessSink:
    """Passes transactions on and notes in `shared` what has been accepted and, with "commit", is durable."""

    def __init__(self, recorder: Recorder | ApartRecorder, shared: Any) -> None:
        self._recorder = recorder
        self._shared = shared
        self._by_append = recorder.durability == "commit"

    def append(self, transaction: TransactionRecord) -> None:
        """Hand the transaction on. It counts as accepted before anybody knows that it was."""
        self._recorder.append(transaction)
        last_seq = self._recorder.last_seq
        self._shared[ACCEPTED] = last_seq
        if self._by_append:
            self._shared[DURABLE] = last_seq


def serve(orders: Orders, shared: Any) -> None:
    """Serve until killed. `shared` has `PLACES` integers of eight bytes."""
    with Journal.open(orders.database) as journal:
        recorder = _recorded(journal, orders)
        if isinstance(recorder, ApartRecorder):
            shared[WRITER] = recorder.pid
        config = BUILTIN.config()
        meter = Meter()
        tap = TapSink(WitnessSink(recorder, shared), meter)
        cache = HybridCache(config, sink=tap)
        shared[JOURNAL] = recorder.journal_id
        watch = Watch(
            None, window=config.sliding_window, page_size=config.page_size, full_pages=config.full_pages
        )
        scheduler = Scheduler(
            cache,
            settings=BUILTIN.settings,
            forward=NoForward(),
            watch=watch,
            tap=tap,
            meter=meter,
            flush=_note_steps(recorder, shared),
        )
        for number in range(orders.seed, orders.seed + 1_000_000):
            scheduler.run(builtin_workload(REQUESTS, seed=number))


def _recorded(journal: Journal, orders: Orders) -> Recorder | ApartRecorder:
    name = f"torture seed {orders.seed}"
    if orders.apart:
        return journal.record_apart(name=name)
    return journal.record(name=name, durability=orders.durability)


def _note_steps(recorder: Recorder | ApartRecorder, shared: Any) -> Callable[[], None]:
    def flush() -> None:
        if recorder.durability == "step":
            accepted = recorder.last_seq
            recorder.flush()
            shared[DURABLE] = accepted
        shared[STEPS] += 1

    return flush
