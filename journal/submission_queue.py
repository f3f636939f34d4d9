"""The bounded queue between a cache's thread and the writer's: what waits, what is stored, who must be woken.

The queue never drops: when it is full, `put` waits. One lock guards all of it; where a method says that the
lock is held, its caller holds it. Single counters may be read without it.
"""

import threading
from collections import deque
from collections.abc import Sequence

from kvledger.core.errors import JournalError
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.outage import take_batch
from kvledger.journal.rows import Submission

BATCH_EVENTS = 4_096
"""Events in one database transaction, unless a single transaction has more: long enough to pay for the
commit, short enough that readers and the process's memory do not notice."""

POLL_SECONDS = 0.25
"""How long what nobody is woken for may wait."""

LINGER_SECONDS = 0.02
"""How long the writer lets a batch fill before it starts, when nobody waits for it."""


class SubmissionQueue:
    """Holds up to `limit` events, or one transaction that has more.

    A `put` wakes the writer where `worth_waking` events wait, else it comes by itself before long: waking it
    for less than it is worth takes time from the cache's thread, since only one of the two can run.

    `accepted` and `settled` count transactions, taken here and done with by the writer; `events` are those in
    between. `last_seq` and `durable_seq` are the seqs of the last event accepted and of the last on disk.
    `failure` ends the recording.
    """

    def __init__(self, limit: int, *, worth_waking: int = 1) -> None:
        self.limit = limit
        self._worth_waking = worth_waking
        self.lock = threading.Lock()
        self.events = 0
        self.accepted = 0
        self.settled = 0
        self.last_seq = 0
        self.durable_seq = 0
        self.stalls = 0
        self.closing = False
        self.retry_due = False
        self.failure: JournalError | None = None
        self._work = threading.Condition(self.lock)
        self._progress = threading.Condition(self.lock)
        self._gates: list[threading.Lock] = []
        self._waiting: deque[Submission] = deque()
        self._newest: TransactionRecord | None = None
        self._wanted = 0
        self._writer_sleeps = False
        self._store_is_away = False

    def refuse_if_over(self) -> None:
        """Raise JournalError when nothing more is taken. The lock is held."""
        if self.failure is not None:
            raise self.raised()
        if self.closing:
            raise JournalError("the recorder is closed")

    def raised(self) -> JournalError:
        """What a call is told of the failure."""
        return JournalError(
            f"recording stopped after seq {self.durable_seq} and stores nothing more: {self.failure}"
        )

    def put(self, item: Submission, *, count: int) -> None:
        """Take a transaction of `count` events, once there is room for it. The lock is held.

        Raises JournalError as `refuse_if_over` does, then also when the recording ended meanwhile.
        """
        if self.events and self.events + count > self.limit:
            self.stalls += 1
        while self.events and self.events + count > self.limit:
            self._wanted = self.accepted
            self._work.notify()
            self._wait_for_room()
            self.refuse_if_over()
        # Nothing is called between these lines: an interrupt finds all of it done, or nothing.
        self._newest = item.record
        self.events += count
        self.accepted += 1
        self.last_seq += count
        self._waiting.append(item)
        if self._writer_sleeps and self.events >= self._worth_waking:
            self._work.notify()

    def _wait_for_room(self) -> None:
        """Wait until the writer has settled or failed. The lock is held, and let go of meanwhile."""
        self._progress.wait()

    def wait_for_all(self) -> None:
        """Wait until all that was accepted is stored, or the store is away. The lock is held.

        Raises JournalError when the writer failed before that.
        """
        accepted = self.accepted
        # An append that is withdrawn meanwhile is not waited for.
        while self.settled < min(accepted, self.accepted) and not self._store_is_away:
            if self.failure is not None:
                raise self.raised()
            self._wanted = max(self._wanted, accepted)
            self._work.notify()
            self._wait_at_a_gate()

    def _wait_at_a_gate(self) -> None:
        """Wait until the writer has settled something. The lock is held, and let go of meanwhile."""
        # A gate of its own: who passes it waits for nothing else.
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        try:
            self.lock.release()
            gate.acquire()
        finally:
            self.lock.acquire()
            if gate in self._gates:
                self._gates.remove(gate)

    def withdraw(self, transaction: TransactionRecord, *, count: int) -> None:
        """Take back a transaction of `count` events whose `append` was interrupted, if it was put here.

        An interrupt reaches the cache as a refusal and it undoes the transaction, which therefore must not be
        stored. If the writer has it already, journal and cache have parted for good, and the recording ends.
        The lock is held.
        """
        if self._newest is not transaction:
            return
        if self._waiting:
            self._waiting.pop()
            self._newest = None
            self.events -= count
            self.accepted -= 1
            self.last_seq -= count
        elif self.failure is None:
            self.failure = JournalError("an append was interrupted while it was being stored")
        self._wanted = min(self._wanted, self.accepted)
        self._progress.notify_all()
        self._open_gates()

    def close(self) -> None:
        """Take nothing more, and let the writer store what waits. The lock is held."""
        self.closing = True
        self._work.notify()

    def take(self) -> list[Submission] | None:
        """Wait for work and take a batch of it; None once the recorder is closing and drained, or has failed.

        The batch is empty when it is only time to try the store again.
        """
        with self.lock:
            # Not sooner: who passes a gate wants the interpreter at once, and here the writer lets go of it.
            self._open_gates()
            while not self._waiting and not self.closing and not self.retry_due:
                self._writer_sleeps = True
                self._work.wait(None if self._worth_waking == 1 else POLL_SECONDS)
                self._writer_sleeps = False
            if self.failure is not None or (self.closing and not self._waiting):
                return None
            hurry = self.closing or self.retry_due or self._wanted > self.settled
            if self.events < BATCH_EVENTS and not hurry:
                self._work.wait(LINGER_SECONDS)
            batch = take_batch(self._waiting, BATCH_EVENTS)
            for _ in batch:
                self._waiting.popleft()
            return batch

    @property
    def idle(self) -> bool:
        """Whether the writer may use its time for something else: nothing waits, and nobody is closing."""
        return not self._waiting and not self.closing

    def settle(self, batch: Sequence[Submission], *, durable_seq: int) -> None:
        """Nobody has to wait for `batch` any more: it is stored, held or given up.

        `take` or `open_gates` comes next, by which those who wait hear of it.
        """
        with self.lock:
            self.settled += len(batch)
            self.events -= sum(len(item.record.events) for item in batch)
            self.durable_seq = durable_seq
            self._progress.notify_all()

    def open_gates(self) -> None:
        """Let whoever waits for the disk look again, before the writer does something else than to take."""
        with self.lock:
            self._open_gates()

    def store_went_away(self) -> None:
        """An outage begins: nobody waits for the disk while it lasts. The lock is held."""
        self._store_is_away = True
        self._open_gates()

    def call_for_retry(self) -> None:
        """Wake the writer to try the store again; from any thread."""
        with self.lock:
            self.retry_due = True
            self._work.notify()

    def store_caught_up(self, *, durable_seq: int) -> None:
        """An outage is over, and all that it held is stored or given up. The lock is held."""
        self._store_is_away = False
        self.durable_seq = durable_seq
        # The events that tell of gaps have taken seqs of their own.
        self.last_seq = durable_seq + self.events
        self._progress.notify_all()
        self._open_gates()

    def fail(self, error: JournalError, *, durable_seq: int) -> None:
        """End the recording; the first failure is the one that is told."""
        with self.lock:
            if self.failure is None:
                self.failure = error
            self.durable_seq = durable_seq
            self._progress.notify_all()
            self._open_gates()

    def _open_gates(self) -> None:
        """Let whoever waits for the disk look again. The lock is held."""
        for gate in self._gates:
            gate.release()
        self._gates.clear()
