"""The sink whose writer is a process: recording takes of the scheduler's process what handing over costs.

A recorder's thread (kvledger.journal.recorder) shares one interpreter with the scheduler, and whoever waits
for it finds cold caches afterwards. Here `flush`, once a step, copies what was recorded into memory of both
processes (ring.py), from where a recorder of the same kind stores it (writer.py). What was handed over
outlives the scheduler's process; it is not on the disk yet. `durable_seq` says what is, and
`wait_until_stored` waits for it.

When the ring is full, `flush` waits: nothing is dropped.
"""

import atexit
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from time import sleep
from types import TracebackType
from typing import Self

from sqlalchemy.engine import URL

from kvledger.core.errors import JournalError
from kvledger.core.ids import Seq
from kvledger.core.sinks import TokenForm, TransactionRecord, opens_cache
from kvledger.journal.apart.board import (
    BATCHES,
    BYTES,
    CPU_NS,
    DEGRADED,
    DROPPED_EVENTS,
    DURABLE_SEQ,
    EVENTS,
    FLUSHED,
    GAPS,
    JOURNAL_ID,
    PHASE,
    RECORDING,
    TRANSACTIONS,
    UNKEPT,
)
from kvledger.journal.apart.flat import add
from kvledger.journal.apart.frames import FLUSH, NUMBER, frame
from kvledger.journal.apart.orders import Orders
from kvledger.journal.apart.process import LOOK_SECONDS, WritingProcess
from kvledger.journal.drain import SigtermDrain
from kvledger.journal.durability import Durability
from kvledger.journal.recorder import STEP_EVENTS
from kvledger.journal.rows import WriterCounters
from kvledger.journal.stored_tokens import StoredTokens


class ApartRecorder:
    """An `EventSink` that writes one journal through a process of its own. Made by `Journal.record_apart`.

    To be closed, or used as a context manager. `flush`, `wait_until_stored`, `durable_seq`, `last_seq` and
    `close` are safe from any thread; `begin_transaction` and `append` belong to the cache's. None of them
    works inside another one on the same thread, as in a signal's handler or in what pickles a value: it is
    refused with JournalError there.
    """

    durability: Durability = "step"

    def __init__(
        self, orders: Orders, *, url: URL, tokens: StoredTokens, drain_on_sigterm: bool = False
    ) -> None:
        self.url = url
        self._tokens = tokens
        self._lock = threading.RLock()
        # Who has the lock would wait for itself, or see a call half done. `threading.Condition` asks by this
        # private name too. What is public, its `notify(0)`, says no by raising: nine times as long, at each
        # append where the core is not compiled. A note of one's own beside the lock might be left behind by
        # an interrupt, and every later call of that thread would be refused.
        self._is_within: Callable[[], bool] = self._lock._is_owned  # type: ignore[attr-defined]
        self._flushes = 0
        self._opened = False
        self._ending = False
        self._closed = False
        self._process = WritingProcess(orders)
        self._words = self._process.words
        self._batch = self._process.batch
        self.begin_transaction: Callable[[], None] = self._batch.begin
        """Note that a transaction begins: the next `append` stores how long it took. Never raises."""
        self.journal_id = self._words[JOURNAL_ID]
        self._drain = SigtermDrain(self._drained) if drain_on_sigterm else None
        # Holds off SIGTERM while a call has the lock; an interrupt finds the lock given back first.
        self._undisturbed: AbstractContextManager[None] = self._drain or nullcontext()
        atexit.register(self.close)

    @property
    def token_form(self) -> TokenForm:
        """What of tokens and namespaces is stored: the cache's digests are over the same."""
        return self._tokens.form

    @property
    def last_seq(self) -> Seq:
        """Seq of the last event that `append` accepted, 0 before the first."""
        words = self._words
        accepted, durable = self._batch.accepted + words[GAPS], words[DURABLE_SEQ]
        # Schedulers ask this once a step: nothing is called for it.
        last: Seq = accepted if accepted > durable else durable  # type: ignore[assignment]
        return last

    @property
    def durable_seq(self) -> Seq:
        """Seq of the last event on disk, 0 before the first; always the end of a transaction."""
        return Seq(self._words[DURABLE_SEQ])

    @property
    def pid(self) -> int:
        """The process that stores, as the operating system counts."""
        return self._process.pid

    @property
    def queued_events(self) -> int:
        """Events accepted and not on disk, those given up included until the store is back."""
        return max(0, self.last_seq - self.durable_seq)

    @property
    def degraded(self) -> bool:
        """Whether the store is failing right now and events are held or given up ("degrade" only)."""
        return bool(self._words[DEGRADED])

    @property
    def dropped_events(self) -> int:
        """Events given up because the store failed for too long; 0 with "halt", which stops instead."""
        return self._words[DROPPED_EVENTS]

    @property
    def counters(self) -> WriterCounters:
        """Events, transactions, bytes and batches stored so far, and the CPU seconds of the whole process."""
        words = self._words
        return WriterCounters(
            events=words[EVENTS],
            transactions=words[TRANSACTIONS],
            bytes=words[BYTES],
            batches=words[BATCHES],
            cpu_seconds=words[CPU_NS] / 1e9,
        )

    def append(self, transaction: TransactionRecord) -> None:
        """Take one ended transaction; what is long in it must not change before it was handed over.

        Raises JournalError when the recorder is closed, has failed, was carried through a fork, or records
        another cache already, for what cannot be handed over, and inside another call; the transaction is
        then not recorded. Cost: a microsecond and half a one for each event, three for each where the core is
        not compiled; with the first transaction past `STEP_EVENTS` that nobody flushed, that of a `flush`.
        """
        batch = self._batch
        added = batch.added
        try:
            if not batch.add_now(transaction):
                self._append(transaction)
        except BaseException:
            # Whatever it is: a handler that uses the recorder is refused with a JournalError.
            if batch.added == added:
                raise
            try:
                with self._undisturbed, self._lock:
                    self._take_back()
            except BaseException:
                self._process.fail("an append was interrupted, and again while it was taken back")
                raise
            raise

    def _append(self, transaction: TransactionRecord) -> None:
        """The rest of `append` for what is not to be added at once, as the first one is not."""
        time_us, duration_us = self._batch.times()
        self._refuse_if_carried_or_within()
        self._batch.let_go()
        with self._undisturbed, self._lock:
            self._accept(transaction, time_us, duration_us)

    def _accept(self, transaction: TransactionRecord, time_us: int, duration_us: int | None) -> None:
        """The rest of that, with the lock held."""
        self._refuse_if_over()
        batch = self._batch
        if batch.events >= STEP_EVENTS or batch.count >= STEP_EVENTS:
            self._hand_over()
        if not batch.added:
            self._tokens.begin(transaction)
        elif transaction.op == "open" and opens_cache(transaction):
            raise JournalError(
                "this recorder already records a cache: start another with Journal.record_apart"
            )
        add(batch, transaction, time_us, duration_us)
        if not self._opened:
            self._opened = True
            self._process.open(STEP_EVENTS)

    def _take_back(self) -> None:
        """Forget a transaction whose `append` was interrupted: the cache undoes it. The lock is held.

        If it was handed over already, journal and cache have parted for good, and the recording ends.
        """
        if not self._batch.take_back():
            self._process.fail("an append was interrupted while it was handed over")

    def flush(self) -> None:
        """Hand over everything that `append` has taken: it outlives this process from here on.

        Waits while the ring is full. Raises JournalError as `append` does. Cost: one copy of everything, and
        a question to the system whether the process is still there.
        """
        self._refuse_if_carried_or_within()
        with self._undisturbed, self._lock:
            self._refuse_if_over()
            self._hand_over()
        self._batch.let_go()

    def wait_until_stored(self) -> None:
        """`flush`, and wait until all of it is on disk, or the store is failing ("degrade")."""
        self._refuse_if_carried_or_within()
        with self._undisturbed, self._lock:
            self._refuse_if_over()
            self._hand_over()
            self._flushes = wanted = self._flushes + 1
            self._process.write(frame(FLUSH, NUMBER.pack(wanted)))
            self._process.wake()
        self._batch.let_go()
        while self._words[FLUSHED] < wanted:
            self._process.look()
            sleep(LOOK_SECONDS)
            if self._words[FLUSHED] < wanted:
                self._refuse_if_over()

    def close(self) -> None:
        """Hand over what waits, and wait until everything is stored; a second call does nothing.

        Raises JournalError when the recording has failed, and when all is stored but a last checkpoint or
        export failed.
        """
        if self._process.carried:
            self._ending = self._closed = True
            return
        self._refuse_if_carried_or_within()
        with self._undisturbed, self._lock:
            if self._closed:
                return
            # From here on an append waits for the lock.
            self._batch.shut()
            self._process.look()
            if self._process.failure is None:
                with suppress(JournalError):  # It is the process's failure then, which is told below.
                    self._hand_over()
            # An interrupt may end the waiting, and another close takes it up: nothing is taken meanwhile.
            self._ending = True
            self._process.end()
            self._closed = True
        self._batch.let_go()
        atexit.unregister(self.close)
        if self._drain is not None:
            self._drain.remove()
        self._process.look()
        if self._process.failure is not None:
            raise self._raised()
        if self._words[PHASE] == UNKEPT:
            raise JournalError(self._process.text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _drained(self) -> None:
        """At SIGTERM, which may also come while `close` ends."""
        if not self._ending:
            self.wait_until_stored()

    def _refuse_if_carried_or_within(self) -> None:
        if self._process.carried:
            raise JournalError("a recorder does not survive a fork: open the journal anew in the child")
        if self._is_within():
            raise JournalError(
                "the recorder was called from inside another call of it on the same thread: a signal's "
                "handler, a finalizer or what pickles a value cannot use it there"
            )

    def _refuse_if_over(self) -> None:
        if self._ending:
            raise JournalError("the recorder is closed")
        if self._words[PHASE] != RECORDING:
            self._process.look()
        if self._process.failure is not None:
            raise self._raised()

    def _raised(self) -> JournalError:
        """What a call is told of the failure."""
        return JournalError(
            f"recording stopped after seq {self.durable_seq} and stores nothing more: {self._process.failure}"
        )

    def _hand_over(self) -> None:
        """Write one frame of what waits. The lock is held. What cuts it short ends the recording: nothing of
        it is stored then. An interrupt before its first byte leaves all as it was."""
        batch = self._batch
        if batch.write():
            # All of it is there: nothing that happens from here on cuts it short.
            self._process.look_after()
        elif batch.count:
            frames = batch.frames
            try:
                self._process.write(batch.take())
            except BaseException as error:
                interrupted = not isinstance(error, Exception)
                if interrupted and batch.frames == frames:
                    raise
                self._process.fail(f"events could not be handed over: {error!r}")
                if interrupted:
                    raise
                raise self._raised() from error
        if self._process.failure is not None:
            raise self._raised()
