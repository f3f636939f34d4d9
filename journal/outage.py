"""What a recorder that degrades does while its store cannot be written: hold, then give up, and try again.

An outage begins with the batch that could not be stored. Everything that follows is held, in order, as long
as there is room; a store that is back in time gets all of it. Once there is no room everything held is given
up, and so is what follows, until the store takes one `events_dropped` event that names the seqs. A gap is
therefore always one range, from the end of what is stored to the event that tells of it.

A prober in a thread of its own finds out when the store is back, so that the writer goes on taking
transactions and the scheduler never waits for a database that does not answer.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.rows import Submission, WriterCounters

FIRST_RETRY_SECONDS = 0.1
"""Pause before the first probe; each failure doubles it."""

LAST_RETRY_SECONDS = 5.0
"""No pause is longer, so that an operator who has mended the store sees it at once."""


class Writer(Protocol):
    """What stores batches: kvledger.journal.rows.RowWriter."""

    counters: WriterCounters

    @property
    def durable_seq(self) -> int:
        """Seq of the last stored event."""

    def store(self, batch: Sequence[Submission]) -> None:
        """Store all of `batch`, or raise JournalError; `counters` tell how much of it was stored."""

    def probe(self) -> None:
        """Raise JournalError unless the store can be written to."""

    def resync(self) -> int:
        """How many transactions of the batch that failed last are stored after all."""

    def give_up(self, batch: Sequence[Submission]) -> None:
        """Skip the seqs of `batch`."""

    def store_gap(self, time_us: int) -> None:
        """Store the event that names the skipped seqs, if there are any."""

    def close(self) -> None:
        """Give the connection back."""


class Probing(Protocol):
    """What asks whether the store is back, until it is stopped: `Prober`, or a simulation's own."""

    def stop(self) -> None:
        """Ask no more."""


class Outage:
    """One time of failure, on the writer's thread. `back` is called on another one when a retry is due."""

    def __init__(
        self,
        writer: Writer,
        error: JournalError,
        *,
        limit: int,
        back: Callable[[], None],
        probe: "Callable[..., Probing] | None" = None,
    ) -> None:
        self.error = error
        self.held: list[Submission] = []
        self.held_events = 0
        self.given_up_transactions = 0
        self.given_up_events = 0
        self._writer = writer
        self._limit = limit
        self._back = back
        self._probing = Prober if probe is None else probe
        self._attempts = 0
        self._prober: Probing | None = None

    def hold(self, batch: Sequence[Submission]) -> None:
        """Keep `batch` for later, or give it up together with everything held when there is no room."""
        self.held += batch
        self.held_events += _events(batch)
        if self.given_up_transactions or self.held_events > self._limit:
            self.give_up(len(self.held))

    def give_up(self, count: int) -> None:
        """Give up the first `count` transactions that are held."""
        lost, self.held = self.held[:count], self.held[count:]
        self._writer.give_up(lost)
        self.given_up_transactions += len(lost)
        self.given_up_events += _events(lost)
        self.held_events = _events(self.held)

    def wait_for_store(self) -> None:
        """Have `back` called once the store answers again; the pauses grow with each time that failed."""
        self._prober = self._probing(self._writer.probe, self._back, first_attempt=self._attempts)
        self._attempts += 1

    def stop(self) -> None:
        """Probe no more."""
        if self._prober is not None:
            self._prober.stop()
            self._prober = None

    def resume(self, batch_events: int) -> None:
        """Store the gap, if any, and everything held; the outage is over when this returns.

        Raises StoreUnavailable when the store fails again, with what is not stored still held; JournalError
        when the journal is no longer this writer's. What the database will never take is given up.
        """
        self._resync()
        self._writer.store_gap(_now_us())
        while self.held:
            batch = take_batch(self.held, batch_events)
            before = self._writer.counters.transactions
            try:
                self._writer.store(batch)
            except JournalError as error:
                stored = self._writer.counters.transactions - before
                self._forget(stored)
                if isinstance(error, StoreUnavailable):
                    raise
                self.give_up(len(batch) - stored)
                self._resync()
                self._writer.store_gap(_now_us())
            else:
                self._forget(len(batch))

    def _resync(self) -> None:
        before = self._writer.durable_seq
        found = self._writer.resync()
        if found and self.given_up_transactions:
            # The batch whose fate was unknown came first, and is stored: it belongs to no gap.
            self.given_up_transactions -= found
            self.given_up_events -= self._writer.durable_seq - before
        else:
            self._forget(found)

    def _forget(self, count: int) -> None:
        del self.held[:count]
        self.held_events = _events(self.held)


class Prober:
    """Asks again and again, with growing pauses, until the store answers; then says so once and ends."""

    def __init__(self, probe: Callable[[], None], back: Callable[[], None], *, first_attempt: int) -> None:
        self._probe = probe
        self._back = back
        self._attempt = first_attempt
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvledger-journal-probe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; does not wait for a probe that is under way."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(pause_seconds(self._attempt)):
            self._attempt += 1
            try:
                self._probe()
            except JournalError:
                continue
            if not self._stopped.is_set():
                self._back()
            return


def pause_seconds(attempt: int) -> float:
    """The pause before probe number `attempt`, from 0 on."""
    return min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(attempt, 30))


def take_batch(waiting: Iterable[Submission], limit: int) -> list[Submission]:
    """The first of `waiting`, and what follows as long as there are no more than `limit` events in all."""
    batch: list[Submission] = []
    events = 0
    for item in waiting:
        count = len(item.record.events)
        if batch and events + count > limit:
            break
        batch.append(item)
        events += count
    return batch


def _events(batch: Sequence[Submission]) -> int:
    return sum(len(item.record.events) for item in batch)


def _now_us() -> int:
    return time.time_ns() // 1000
