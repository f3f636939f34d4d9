"""The sink that puts a cache's transactions into a journal, off the scheduler's thread.

`append` puts a transaction on a bounded queue and returns; a writer thread encodes, hashes and inserts. The
queue never drops: when it is full, `append` waits. What the writer cannot do is kept and raised as
JournalError by the next `append`, `flush` or `close`, and nothing is stored after it.

How much a killed process can lose is the `durability`:

    commit       nothing that `append` returned from: it waits for the disk
    step         what came after the last `flush()`, which the scheduler calls once a step
    background   what the writer had not reached yet
"""

import atexit
import os
import threading
import time
from collections import deque
from types import TracebackType
from typing import Literal, Self

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.core.events import TransactionRecord
from kvledger.core.ids import Seq
from kvledger.journal.rows import RowWriter, Submission, WriterCounters

Durability = Literal["commit", "step", "background"]

DEFAULT_QUEUE_EVENTS = 65_536
"""Events that may wait for the writer: less than a second of its work, some tens of megabytes."""

BATCH_EVENTS = 4_096
"""Events in one database transaction, unless a single transaction has more: long enough to pay for the
commit, short enough that readers and the process's memory do not notice."""

LINGER_SECONDS = 0.02
"""How long the writer lets a batch fill before it starts, when nobody waits for it."""


class Recorder:
    """An `EventSink` that writes one journal. Made by `Journal.record`; use it as a context manager.

    `flush`, `durable_seq`, `last_seq` and `close` are safe from any thread; `append` belongs to the cache's.
    """

    def __init__(
        self, writer: RowWriter, *, journal_id: int, durability: Durability, queue_limit: int
    ) -> None:
        if queue_limit < 1:
            raise InvalidArgument(f"queue_limit must be at least 1 event, not {queue_limit}")
        self.journal_id = journal_id
        self.durability = durability
        self._writer = writer
        self._limit = queue_limit
        self._pid = os.getpid()
        lock = threading.Lock()
        self._lock = lock
        self._work = threading.Condition(lock)
        self._progress = threading.Condition(lock)
        self._queue: deque[Submission] = deque()
        self._queued_events = 0
        self._accepted = 0
        self._stored = 0
        self._last_seq = 0
        self._durable_seq = 0
        self._wanted = 0
        self._writer_sleeps = False
        self._closing = False
        self._closed = False
        self._stalls = 0
        self._failure: JournalError | None = None
        self._thread = threading.Thread(target=self._run, name=f"kvledger-journal-{journal_id}", daemon=True)
        self._thread.start()
        # A daemon thread does not hold up the interpreter's exit; this drains the queue before it dies.
        atexit.register(self._close_at_exit)

    @property
    def last_seq(self) -> Seq:
        """Seq of the last event that `append` accepted, 0 before the first."""
        return Seq(self._last_seq)

    @property
    def durable_seq(self) -> Seq:
        """Seq of the last event on disk, 0 before the first; always the end of a transaction."""
        return Seq(self._durable_seq)

    @property
    def queued_events(self) -> int:
        """Events accepted and not yet stored."""
        return self._queued_events

    @property
    def stalls(self) -> int:
        """How often `append` found the queue full and had to wait for the writer."""
        return self._stalls

    @property
    def counters(self) -> WriterCounters:
        """Events, transactions, bytes and batches stored so far, and the CPU seconds that took."""
        return self._writer.counters

    def append(self, transaction: TransactionRecord) -> None:
        """Take one ended transaction; its events' arrays must never change again.

        Waits while the queue is full and, with durability "commit", until the transaction is on disk.
        Raises JournalError when the recorder is closed, has failed, or was carried through a fork; the
        transaction is then not recorded. Cost: about a microsecond, whatever the transaction holds.
        """
        count = len(transaction.events)
        if os.getpid() != self._pid:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        with self._lock:
            self._refuse_if_over()
            if self._queued_events and self._queued_events + count > self._limit:
                self._stalls += 1
            while self._queued_events and self._queued_events + count > self._limit:
                self._wanted = self._accepted
                self._work.notify()
                self._progress.wait()
                self._refuse_if_over()
            self._queue.append(Submission(transaction, time.time_ns() // 1000))
            self._queued_events += count
            self._accepted += 1
            self._last_seq += count
            if self._writer_sleeps:
                self._work.notify()
            if self.durability == "commit":
                self._wait_or_withdraw(count)

    def flush(self) -> None:
        """Wait until everything that `append` has taken is on disk. Raises JournalError as `append` does."""
        if os.getpid() != self._pid:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        with self._lock:
            self._wait_for(self._accepted)
            if self._failure is not None:
                raise self._raised()

    def close(self) -> None:
        """Write what is queued, stop the writer and give its connection back; a second call does nothing.

        Raises JournalError when the writer has failed, now or before, and nobody was told yet by `close`.
        """
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._lock:
            if self._closed:
                return
            self._closing = True
            self._work.notify()
        self._thread.join()
        with self._lock:
            self._closed = True
        atexit.unregister(self._close_at_exit)
        if self._failure is not None:
            raise self._raised()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        self.close()

    def _refuse_if_over(self) -> None:
        if self._failure is not None:
            raise self._raised()
        if self._closing:
            raise JournalError("the recorder is closed")

    def _raised(self) -> JournalError:
        return JournalError(
            f"recording stopped after seq {self._durable_seq} and stores nothing more: {self._failure}"
        )

    def _wait_for(self, accepted: int) -> None:
        """Wait, holding the lock, until the first `accepted` transactions are stored or the writer failed."""
        while self._stored < accepted:
            if self._failure is not None:
                raise self._raised()
            self._wanted = max(self._wanted, accepted)
            self._work.notify()
            self._progress.wait()

    def _wait_or_withdraw(self, count: int) -> None:
        try:
            self._wait_for(self._accepted)
        except JournalError:
            raise
        except BaseException:
            # An interrupt reaches the cache as a refusal and it undoes the transaction, which therefore
            # must not be stored. If the writer has it already, journal and cache have parted for good.
            if self._queue:
                self._queue.pop()
                self._queued_events -= count
                self._accepted -= 1
                self._last_seq -= count
            else:
                self._failure = JournalError("an append was interrupted while it was being stored")
            raise

    def _run(self) -> None:
        """The writer's thread: take a batch, store it, say so; until closed and drained, or failed."""
        try:
            while True:
                batch = self._take()
                if not batch:
                    break
                self._writer.store(batch)
                self._done(batch)
        except JournalError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(JournalError(f"the writer met an error of its own: {error!r}"))
        finally:
            try:
                self._writer.close()
            except JournalError as error:
                self._fail(error)

    def _take(self) -> list[Submission]:
        """Wait for work and take a batch of it; empty once the recorder is closing and drained."""
        with self._lock:
            while not self._queue and not self._closing:
                self._writer_sleeps = True
                self._work.wait()
                self._writer_sleeps = False
            if self._failure is not None:
                return []
            if self._queued_events < BATCH_EVENTS and self._wanted <= self._stored and not self._closing:
                self._work.wait(LINGER_SECONDS)
            batch: list[Submission] = []
            events = 0
            while self._queue:
                count = len(self._queue[0].record.events)
                if batch and events + count > BATCH_EVENTS:
                    break
                batch.append(self._queue.popleft())
                events += count
            return batch

    def _done(self, batch: list[Submission]) -> None:
        with self._lock:
            self._stored += len(batch)
            self._queued_events -= sum(len(item.record.events) for item in batch)
            self._durable_seq = self._writer.durable_seq
            self._progress.notify_all()

    def _fail(self, error: JournalError) -> None:
        with self._lock:
            if self._failure is None:
                self._failure = error
            self._durable_seq = self._writer.durable_seq
            self._progress.notify_all()
