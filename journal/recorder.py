"""The sink that puts a cache's transactions into a journal, off the scheduler's thread.

`append` puts a transaction on a bounded queue and returns; a writer thread encodes, hashes and inserts. The
queue never drops: when it is full, `append` waits.

How much a killed process can lose is its `durability` (kvledger.journal.durability).

A recorder takes one cache: the opening of a second one is refused, and the first goes on.

What becomes of a failure of the store is `on_failure`. With "halt" the writer keeps what it could not do, the
next `append`, `flush` or `close` raises it as JournalError, and nothing is stored after it. With "degrade"
recording goes on: see kvledger.journal.outage. Meanwhile `flush` does not wait, and `durable_seq` tells what
is on disk.

Checkpoints and exports are not recording, which goes on when one fails: kvledger.journal.keeper says what
then becomes of them. An error that the keeper did not expect is kept in `upkeep_problem`.
"""

import atexit
import logging
import os
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

from sqlalchemy.engine import URL

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.core.ids import Seq
from kvledger.core.sinks import TokenForm, TransactionRecord, opens_cache
from kvledger.journal.drain import SigtermDrain
from kvledger.journal.durability import RecorderSettings
from kvledger.journal.followers import Followers
from kvledger.journal.keeper import Keeper
from kvledger.journal.outage import Outage, Writer, take_batch
from kvledger.journal.rows import Follower, Submission, WriterCounters
from kvledger.journal.stored_tokens import StoredTokens

log = logging.getLogger("kvledger.journal")

BATCH_EVENTS = 4_096
"""Events in one database transaction, unless a single transaction has more: long enough to pay for the
commit, short enough that readers and the process's memory do not notice."""

LINGER_SECONDS = 0.02
"""How long the writer lets a batch fill before it starts, when nobody waits for it."""


class Recorder:
    """An `EventSink` that writes one journal. Made by `Journal.record`; use it as a context manager.

    `flush`, `durable_seq`, `last_seq` and `close` are safe from any thread; `begin` and `append` belong to
    the cache's.
    """

    def __init__(
        self,
        writer: Writer,
        settings: RecorderSettings,
        *,
        journal_id: int,
        tokens: StoredTokens | None = None,
        keeper: Keeper | None = None,
        followers: Followers | None = None,
        url: URL | None = None,
    ) -> None:
        self.url = url
        """The store that it writes to; None where its writer is none of a store's."""
        self.journal_id = journal_id
        self.settings = settings
        self.durability = settings.durability
        self._writer = writer
        self._tokens = StoredTokens() if tokens is None else tokens
        self.keeper = keeper
        self._followers = Followers() if followers is None else followers
        self.upkeep_problem: JournalError | None = None
        """The last error that came out of the keeper, None before the first."""
        self._unkept: JournalError | None = None
        self._limit = settings.queue_limit
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
        self._began_ns: int | None = None
        self._failure: JournalError | None = None
        self._outage: Outage | None = None
        self._retry_due = False
        self._dropped_before = 0
        self._drain = SigtermDrain(self.flush) if settings.drain_on_sigterm else None
        # Holds off SIGTERM while a call has the lock; costs nothing where nobody asked for it.
        self._undisturbed: AbstractContextManager[None] = self._drain or nullcontext()
        self._thread = threading.Thread(target=self._run, name=f"kvledger-journal-{journal_id}", daemon=True)
        self._thread.start()
        # A daemon thread does not hold up the interpreter's exit; this drains the queue before it dies.
        atexit.register(self._close_at_exit)

    @property
    def token_form(self) -> TokenForm:
        """What of tokens and namespaces is stored: the cache's digests are over the same."""
        return self._tokens.form

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
        """Events accepted, not yet stored and not given up."""
        outage = self._outage
        return self._queued_events + (0 if outage is None else outage.held_events)

    @property
    def degraded(self) -> bool:
        """Whether the store is failing right now and events are held or given up ("degrade" only)."""
        return self._outage is not None

    @property
    def dropped_events(self) -> int:
        """Events given up because the store failed for too long; 0 with "halt", which stops instead."""
        outage = self._outage
        return self._dropped_before + (0 if outage is None else outage.given_up_events)

    @property
    def stalls(self) -> int:
        """How often `append` found the queue full and had to wait for the writer."""
        return self._stalls

    @property
    def counters(self) -> WriterCounters:
        """Events, transactions, bytes and batches stored so far, and the CPU seconds that took."""
        return self._writer.counters

    def subscribe(self, follower: Follower) -> None:
        """Let `follower` hear of each batch that is stored from now on, in the writer's thread.

        The records are those that were stored, after the token policy. It must be quick: the writer waits for
        it, and the scheduler for the writer.
        """
        self._followers.subscribe(follower)

    def unsubscribe(self, follower: Follower) -> None:
        """Let `follower` hear nothing more; does nothing for one that is not subscribed."""
        self._followers.unsubscribe(follower)

    def begin(self) -> None:
        """Note that a transaction begins: the next `append` stores how long it took. Never raises."""
        self._began_ns = time.perf_counter_ns()

    def append(self, transaction: TransactionRecord) -> None:
        """Take one ended transaction; its events' arrays must never change again.

        Waits while the queue is full and, with durability "commit", until the transaction is on disk.
        Raises JournalError when the recorder is closed, has failed, was carried through a fork, or records
        another cache already; the transaction is then not recorded. Cost: about a microsecond, whatever the
        transaction holds.
        """
        began, self._began_ns = self._began_ns, None
        duration_us = None if began is None else (time.perf_counter_ns() - began) // 1000
        count = len(transaction.events)
        if os.getpid() != self._pid:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        if self._drain is None:
            with self._lock:
                self._accept(transaction, count, duration_us)
        else:
            with self._drain, self._lock:
                self._accept(transaction, count, duration_us)

    def _accept(self, transaction: TransactionRecord, count: int, duration_us: int | None) -> None:
        """The rest of `append`, with the lock held."""
        self._refuse_if_over()
        if self._accepted and opens_cache(transaction):
            raise JournalError("this recorder already records a cache: start another with Journal.record")
        if self._queued_events and self._queued_events + count > self._limit:
            self._stalls += 1
        while self._queued_events and self._queued_events + count > self._limit:
            self._wanted = self._accepted
            self._work.notify()
            self._progress.wait()
            self._refuse_if_over()
        if not self._accepted:
            self._tokens.begin(transaction)
        self._queue.append(Submission(transaction, time.time_ns() // 1000, duration_us))
        self._queued_events += count
        self._accepted += 1
        self._last_seq += count
        if self._writer_sleeps:
            self._work.notify()
        if self.durability == "commit":
            self._wait_or_withdraw(count)

    def flush(self) -> None:
        """Wait until everything that `append` has taken is on disk, or the recorder is degraded.

        Raises JournalError as `append` does.
        """
        if os.getpid() != self._pid:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        with self._undisturbed, self._lock:
            self._wait_for(self._accepted)
            if self._failure is not None:
                raise self._raised()

    def close(self) -> None:
        """Write what is queued, stop the writer and give its connection back; a second call does nothing.

        Raises JournalError when the writer has failed, now or before, and nobody was told yet by `close`; a
        degraded recorder tries once more, and raises when the store is still away. Raises JournalError too
        when all is stored but a last checkpoint or export failed.
        """
        if os.getpid() != self._pid:
            self._closed = True
            return
        with self._undisturbed:
            with self._lock:
                if self._closed:
                    return
                self._closing = True
                self._work.notify()
            self._thread.join()
            with self._lock:
                self._closed = True
        if self._drain is not None:
            self._drain.remove()
        atexit.unregister(self._close_at_exit)
        if self._failure is not None:
            raise self._raised()
        if self._unkept is not None:
            raise JournalError(f"every event is stored, but the journal was not kept up: {self._unkept}")

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
        while self._stored < accepted and self._outage is None:
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
                if batch is None:
                    break
                self._write(self._as_stored(batch))
                self._keep_up()
            self._end_outage_at_close()
            if self.keeper is not None and self._failure is None:
                self._finish(self.keeper)
        except JournalError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(JournalError(f"the writer met an error of its own: {error!r}"))
        finally:
            if self._outage is not None:
                self._outage.stop()
            try:
                self._writer.close()
            except JournalError as error:
                self._fail(error)

    def _keep_up(self) -> None:
        """Let the keeper do what it must, and the rest of its work while nobody waits for the writer."""
        keeper = self.keeper
        if keeper is None:
            return
        while keeper.must_work or (keeper.has_work and not self._queue and not self._closing):
            try:
                if not keeper.work(store_is_there=self._outage is None):
                    return
            except Exception as error:
                # Whatever it was, recording goes on; what is due stays so and is tried after a later batch.
                self._note(_upkeep_problem(error))
                return

    def _finish(self, keeper: Keeper) -> None:
        try:
            keeper.finish()
        except Exception as error:
            self._unkept = _upkeep_problem(error)
            self._note(self._unkept)

    def _note(self, problem: JournalError) -> None:
        if str(problem) != str(self.upkeep_problem):
            log.warning("recording goes on, but the journal was not kept up: %s", problem)
        self.upkeep_problem = problem

    def _as_stored(self, batch: list[Submission]) -> list[Submission]:
        """What the token policy keeps of a batch: once for each transaction, in order, stored or not."""
        began = time.thread_time()
        kept = [self._stored_form(item) for item in batch]
        self._writer.counters.cpu_seconds += time.thread_time() - began
        return kept

    def _stored_form(self, item: Submission) -> Submission:
        stored = self._tokens.stored(item.record)
        return item if stored is item.record else item._replace(record=stored)

    def _take(self) -> list[Submission] | None:
        """Wait for work and take a batch of it; None once the recorder is closing and drained.

        The batch is empty when it is only time to try the store again.
        """
        with self._lock:
            while not self._queue and not self._closing and not self._retry_due:
                self._writer_sleeps = True
                self._work.wait()
                self._writer_sleeps = False
            if self._failure is not None or (self._closing and not self._queue):
                return None
            if self._queued_events < BATCH_EVENTS and self._wanted <= self._stored and not self._in_a_hurry():
                self._work.wait(LINGER_SECONDS)
            batch = take_batch(self._queue, BATCH_EVENTS)
            for _ in batch:
                self._queue.popleft()
            return batch

    def _in_a_hurry(self) -> bool:
        return self._closing or self._retry_due

    def _write(self, batch: list[Submission]) -> None:
        """Store a batch; or, in an outage, hold it, and try the store when that is due."""
        if self._outage is None:
            before = self._writer.counters.transactions
            try:
                self._writer.store(batch)
            except JournalError as error:
                if self.settings.on_failure == "halt":
                    try:
                        self._find_out(error)
                    finally:
                        self._settle(batch[: self._writer.counters.transactions - before])
                    raise
                stored = self._writer.counters.transactions - before
                self._settle(batch[:stored])
                self._begin_outage(error, batch[stored:])
            else:
                self._settle(batch)
            return
        self._outage.hold(batch)
        self._settle(batch)
        if self._retry_due and not self._closing:
            self._retry()

    def _find_out(self, error: JournalError) -> None:
        """After a failure that halts: learn whether the batch was stored, its answer lost on the way.

        Raises StoreUnavailable where that cannot be learnt.
        """
        if not isinstance(error, StoreUnavailable):
            return
        try:
            self._writer.resync()
        except JournalError as second:
            raise StoreUnavailable(
                f"{error}; whether the batch that failed was stored is not known: {second}"
            ) from error

    def _begin_outage(self, error: JournalError, batch: list[Submission]) -> None:
        outage = Outage(self._writer, error, limit=self._limit, back=self._store_is_back)
        outage.hold(batch)
        with self._lock:
            self._outage = outage
        self._settle(batch)
        if isinstance(error, StoreUnavailable):
            outage.wait_for_store()
        else:
            # The database is there and will never take this batch: waiting would not help.
            outage.give_up(len(batch))
            self._retry()

    def _store_is_back(self) -> None:
        with self._lock:
            self._retry_due = True
            self._work.notify()

    def _retry(self) -> None:
        """Try to end the outage; what the store refuses again waits for the next time."""
        outage = self._outage
        if outage is None:
            return
        self._retry_due = False
        try:
            outage.resume(BATCH_EVENTS)
        except StoreUnavailable as error:
            outage.error = error
            outage.wait_for_store()
            return
        with self._lock:
            self._outage = None
            self._dropped_before += outage.given_up_events
            self._durable_seq = self._writer.durable_seq
            # The events that tell of gaps have taken seqs of their own.
            self._last_seq = self._durable_seq + self._queued_events
            self._progress.notify_all()

    def _end_outage_at_close(self) -> None:
        if self._failure is None:
            self._retry()
        outage = self._outage
        if outage is not None:
            raise JournalError(
                f"the store did not come back: {outage.held_events} events held and {outage.given_up_events} "
                f"given up were not stored: {outage.error}"
            )

    def _settle(self, batch: list[Submission]) -> None:
        """Nobody has to wait for `batch` any more: it is stored, held or given up."""
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


def _upkeep_problem(error: Exception) -> JournalError:
    if isinstance(error, JournalError):
        return error
    return JournalError(f"checkpoints and exports met an error of their own: {error!r}")
