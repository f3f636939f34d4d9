"""The sink that puts a cache's transactions into a journal, off the scheduler's thread.

`append` puts a transaction on a bounded queue (submission_queue.py) and returns; a thread of its own encodes,
hashes and inserts (writer_loop.py). The queue never drops: when it is full, `append` waits. How much a killed
process can lose is its `durability` (durability.py).

A recorder takes one cache: the opening of a second one is refused, and the first goes on.

What becomes of a failure of the store is `on_failure`. With "halt" the next `append`, `flush` or `close`
raises it as JournalError, and nothing is stored after it. With "degrade" recording goes on (outage.py);
meanwhile `flush` does not wait, and `durable_seq` tells what is on disk.
"""

import atexit
import os
import time
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

from sqlalchemy.engine import URL

from kvledger.core.errors import JournalError
from kvledger.core.ids import Seq
from kvledger.core.sinks import TokenForm, TransactionRecord, opens_cache
from kvledger.journal.drain import SigtermDrain
from kvledger.journal.durability import RecorderSettings
from kvledger.journal.followers import Followers
from kvledger.journal.keeper import Keeper
from kvledger.journal.outage import Writer
from kvledger.journal.rows import Follower, Submission, WriterCounters
from kvledger.journal.stored_tokens import StoredTokens
from kvledger.journal.workers import Threads, Workers
from kvledger.journal.writer_loop import WriterLoop

STEP_EVENTS = 512
"""With durability "step" the writer starts before the step's `flush` where the step has so many events."""


class Recorder:
    """An `EventSink` that writes one journal. Made by `Journal.record`; use it as a context manager.

    `flush`, `durable_seq`, `last_seq` and `close` are safe from any thread; `begin_transaction` and
    `append` belong to the cache's.
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
        workers: Workers | None = None,
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
        self._pid = os.getpid()
        self._began_ns: int | None = None
        self._closed = False
        worth_waking = STEP_EVENTS if settings.durability == "step" else 1
        workers = Threads() if workers is None else workers
        self._queue = workers.queue(settings.queue_limit, worth_waking=worth_waking)
        self._loop = WriterLoop(
            writer,
            self._queue,
            tokens=self._tokens,
            keeper=keeper,
            on_failure=settings.on_failure,
            probe=workers.probing,
        )
        self._drain = SigtermDrain(self.flush) if settings.drain_on_sigterm else None
        # Holds off SIGTERM while a call has the lock; costs nothing where nobody asked for it.
        self._undisturbed: AbstractContextManager[None] = self._drain or nullcontext()
        self._thread = workers.writing(self._loop, name=f"kvledger-journal-{journal_id}")
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
        return Seq(self._queue.last_seq)

    @property
    def durable_seq(self) -> Seq:
        """Seq of the last event on disk, 0 before the first; always the end of a transaction."""
        return Seq(self._queue.durable_seq)

    @property
    def queued_events(self) -> int:
        """Events accepted, not yet stored and not given up."""
        outage = self._loop.outage
        return self._queue.events + (0 if outage is None else outage.held_events)

    @property
    def degraded(self) -> bool:
        """Whether the store is failing right now and events are held or given up ("degrade" only)."""
        return self._loop.outage is not None

    @property
    def dropped_events(self) -> int:
        """Events given up because the store failed for too long; 0 with "halt", which stops instead."""
        return self._loop.dropped_events

    @property
    def stalls(self) -> int:
        """How often `append` found the queue full and had to wait for the writer."""
        return self._queue.stalls

    @property
    def counters(self) -> WriterCounters:
        """Events, transactions, bytes and batches stored so far, and the CPU seconds that took."""
        return self._writer.counters

    @property
    def upkeep_problem(self) -> JournalError | None:
        """The last error that came out of the keeper, None before the first."""
        return self._loop.upkeep_problem

    def subscribe(self, follower: Follower) -> None:
        """Let `follower` hear of each batch that is stored from now on, in the writer's thread.

        The records are those that were stored, after the token policy. It must be quick: the writer waits for
        it, and the scheduler for the writer.
        """
        self._followers.subscribe(follower)

    def unsubscribe(self, follower: Follower) -> None:
        """Let `follower` hear nothing more; does nothing for one that is not subscribed."""
        self._followers.unsubscribe(follower)

    @property
    def failure(self) -> JournalError | None:
        """What ended the recording, None while it goes on."""
        return self._queue.failure

    def begin_transaction(self) -> None:
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
        self.append_timed(transaction, time_us=time.time_ns() // 1000, duration_us=duration_us)

    def append_timed(self, transaction: TransactionRecord, *, time_us: int, duration_us: int | None) -> None:
        """As `append`, of a transaction that was handed over at `time_us` (since 1970) and took so long."""
        count = len(transaction.events)
        if os.getpid() != self._pid:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        try:
            if self._drain is None:
                with self._queue.lock:
                    self._accept(transaction, count, time_us, duration_us)
            else:
                with self._drain, self._queue.lock:
                    self._accept(transaction, count, time_us, duration_us)
        except JournalError:
            raise
        except BaseException:
            with self._undisturbed, self._queue.lock:
                self._queue.withdraw(transaction, count=count)
            raise

    def _accept(
        self, transaction: TransactionRecord, count: int, time_us: int, duration_us: int | None
    ) -> None:
        """The rest of `append`, with the lock held."""
        queue = self._queue
        queue.refuse_if_over()
        if not queue.accepted:
            self._tokens.begin(transaction)
        elif opens_cache(transaction):
            raise JournalError("this recorder already records a cache: start another with Journal.record")
        queue.put(Submission(transaction, time_us, duration_us), count=count)
        if self.durability == "commit":
            queue.wait_for_all()

    def flush(self) -> None:
        """Wait until everything that `append` has taken is on disk, or the recorder is degraded.

        Raises JournalError as `append` does.
        """
        if os.getpid() != self._pid:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        with self._undisturbed, self._queue.lock:
            self._queue.wait_for_all()
            if self._queue.failure is not None:
                raise self._queue.raised()

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
            with self._queue.lock:
                if self._closed:
                    return
                self._queue.close()
            self._thread.join()
            with self._queue.lock:
                self._closed = True
        if self._drain is not None:
            self._drain.remove()
        atexit.unregister(self._close_at_exit)
        if self._queue.failure is not None:
            raise self._queue.raised()
        unkept = self._loop.unkept
        if unkept is not None:
            raise JournalError(f"every event is stored, but the journal was not kept up: {unkept}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_at_exit(self) -> None:
        self.close()
