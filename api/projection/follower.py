"""The thread that follows a journal: it folds each transaction as it is stored, and lets others hear of it.

It owns the newest state. It reads what it missed from the store, and takes what is stored while it follows
from the recorder's bus where there is one. Where events were dropped, or were pruned before it read them, the
state is not known until it finds a checkpoint behind the gap; listeners hear every stored transaction all the
same.
A journal that does not fold is followed for its listeners alone.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

from kvledger.api.projection.boundaries import Boundaries, Boundary
from kvledger.api.projection.bus import LiveBus
from kvledger.api.projection.pace import Pace
from kvledger.api.projection.snapshots import SNAPSHOT_EVENTS, Snapshots
from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.reader import JournalReader
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import Fold, gap_in, restore

log = logging.getLogger("kvledger.api")

POLL_SECONDS = 0.25
"""How often a growing journal is looked at: nobody sees a tree change faster."""

SLICE_EVENTS = 256
"""Events folded in one go: a few milliseconds, after which a reader of the newest state gets its turn."""

Phase = Literal["loading", "following", "ended", "failed"]


class Listener(Protocol):
    """Hears every stored transaction, in order, each once, in the follower's thread."""

    def transaction(self, stored: StoredTransaction) -> None:
        """The next transaction; undone events are in it, marked."""


class Follower:
    """Follows one journal from the first transaction that is stored. `start` it once, `stop` it once."""

    def __init__(
        self,
        reader: JournalReader,
        *,
        boundaries: Boundaries,
        listeners: Sequence[Listener],
        snapshots: Snapshots,
        pace: Pace,
        bus: LiveBus | None,
        snapshot_events: int = SNAPSHOT_EVENTS,
        poll_seconds: float = POLL_SECONDS,
        told: Callable[[str], str] = str,
    ) -> None:
        self.lock = threading.Lock()
        """Held while the newest state changes; whoever looks at it holds it too."""
        self.phase: Phase = "loading"
        self.problem: str | None = None
        self.heard = Boundary(0, 0, None)
        """The last transaction that was taken in."""
        self.fold: Fold | None = Fold()
        """Stands at `heard`; None while the state there is not known."""
        self.derived: dict[Any, Any] = {}
        self.failed_seq: int | None = None
        """The last seq at which the state is known of a journal that does not fold on."""
        self._reader = reader
        self._boundaries = boundaries
        self._listeners = list(listeners)
        self._snapshots = snapshots
        self._snapshot_events = snapshot_events
        self._slice_events = min(SLICE_EVENTS, snapshot_events)
        self._pace = pace
        self._bus = bus
        self._poll_seconds = poll_seconds
        self._told = told
        self._callbacks: tuple[Callable[[int], None], ...] = ()
        self._grown = threading.Condition()
        self._unknown_from = 0
        self._snapshot_seq = 0
        self._readable = True
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"kvledger-follow-{reader.info.id}", daemon=True
        )

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait for it to have ended."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self.phase != "failed":
            self.phase = "ended"
        with self._grown:
            self._grown.notify_all()

    def look(self) -> None:
        """Look at the journal now rather than at the next poll."""
        self._wake.set()

    def subscribe(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Have `callback` called with the newest seq after each slice, in this thread. Returns its end."""
        with self._grown:
            self._callbacks = (*self._callbacks, callback)

        def unsubscribe() -> None:
            with self._grown:
                self._callbacks = tuple(one for one in self._callbacks if one is not callback)

        return unsubscribe

    def wait_beyond(self, seq: int, timeout: float | None) -> int:
        """Wait until a seq above `seq` was taken in, the time is over or this has ended; the newest seq."""
        with self._grown:
            self._grown.wait_for(lambda: self.heard.seq > seq or self._stopped.is_set(), timeout)
            return self.heard.seq

    def wait_loaded(self, timeout: float | None) -> bool:
        """Wait until the end of the journal was reached once, or the following of it failed or ended."""
        with self._grown:
            return self._grown.wait_for(lambda: self.phase != "loading" or self._stopped.is_set(), timeout)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._catch_up()
                if self.phase == "loading" and not self._stopped.is_set():
                    self.phase = "following"
                if self.phase != "failed":
                    self.problem = None
            except StoreUnavailable as error:
                self.problem = str(error)
            except JournalError as error:
                # A row that cannot be read: nobody can tell what follows it.
                self._readable = False
                self._fail(error)
            except Exception as error:
                log.exception("the follower of journal %s met an error of its own", self._reader.info.id)
                self._readable = False
                self._fail(JournalError(f"the service failed to follow the journal: {error!r}"))
            self._notify()
            self._wake.wait(self._poll_seconds)
            self._wake.clear()

    def _catch_up(self) -> None:
        """Take in all that there is now."""
        if not self._readable:
            return
        arrived, lost = self._bus.take() if self._bus is not None else ([], True)
        fresh = [one for one in arrived if one.number > self.heard.transaction]
        if lost or not fresh or fresh[0].number != self.heard.transaction + 1:
            self._take_in(self._reader.transactions(self.heard.transaction + 1))
            fresh = [one for one in fresh if one.number > self.heard.transaction]
        self._take_in(iter(fresh))
        if not self.heard.transaction:
            self._begin_after_pruning()
        if self.fold is None and self.phase != "failed":
            self._resume()

    def _begin_after_pruning(self) -> None:
        """Where every transaction was pruned there is only the state that they ended in."""
        oldest, newest = self._boundaries.oldest(), self._boundaries.newest()
        if oldest.transaction and oldest == newest:
            with self.lock:
                self.heard, self.fold, self._unknown_from = newest, None, newest.seq

    def _take_in(self, transactions: Iterator[StoredTransaction]) -> None:
        while not self._stopped.is_set():
            with self._pace.spell():
                taken: list[StoredTransaction] = []
                try:
                    self._read_slice(transactions, taken)
                finally:
                    # What was read before a row that cannot be read is sound.
                    if taken:
                        self._take(taken)
                if not taken:
                    return
            self._notify()
            if self.fold is None and self.phase != "failed":
                self._resume()
            self._keep_snapshot()

    def _read_slice(self, transactions: Iterator[StoredTransaction], taken: list[StoredTransaction]) -> None:
        events = 0
        for transaction in transactions:
            taken.append(transaction)
            events += len(transaction.events)
            if events >= self._slice_events:
                return

    def _take(self, slice_: Sequence[StoredTransaction]) -> None:
        with self.lock:
            self.derived = {}
            for transaction in slice_:
                self._fold_in(transaction)
                self.heard = Boundary(
                    max(transaction.last_seq, self.heard.seq), transaction.number, transaction.time_us
                )
        for listener in tuple(self._listeners):
            try:
                for transaction in slice_:
                    listener.transaction(transaction)
            except Exception:
                log.exception("a listener failed and hears nothing more of this journal")
                self._listeners.remove(listener)

    def _fold_in(self, transaction: StoredTransaction) -> None:
        fold = self.fold
        if fold is None:
            return
        if gap_in(transaction) is not None or transaction.number != fold.transaction + 1:
            self.fold = None
            self._unknown_from = transaction.last_seq if gap_in(transaction) else transaction.first_seq - 1
            return
        before = fold.seq
        try:
            fold.apply(transaction)
        except JournalError as error:
            self.failed_seq = before
            self._fail(error)

    def _fail(self, error: JournalError) -> None:
        if self.failed_seq is None:
            self.failed_seq = self.heard.seq
        self.fold = None
        self.phase = "failed"
        self.problem = self._told(str(error))
        log.warning("journal %s does not fold: %s", self._reader.info.id, self.problem)

    def _resume(self) -> None:
        """Go on from a checkpoint behind the gap, if one stands there already."""
        with self._pace.spell():
            checkpoint = self._reader.checkpoint_before(self.heard.seq)
            if (
                checkpoint is None
                or checkpoint.seq < self._unknown_from
                or checkpoint.number > self.heard.transaction
            ):
                return
            try:
                fold = restore(checkpoint)
                for transaction in self._reader.transactions(checkpoint.number + 1):
                    if transaction.number > self.heard.transaction:
                        break
                    if gap_in(transaction) is not None:
                        self._unknown_from = transaction.last_seq
                        return
                    fold.apply(transaction)
            except StoreUnavailable:
                raise
            except JournalError as error:
                self.failed_seq = checkpoint.seq
                self._fail(error)
                return
            if fold.transaction != self.heard.transaction:
                return
        with self.lock:
            self.fold = fold
            self.derived = {}
        self._snapshot_seq = -self._snapshot_events
        self._keep_snapshot()

    def _keep_snapshot(self) -> None:
        """Keep a snapshot where it is time. Only this thread changes the state: it reads without a lock."""
        fold = self.fold
        if fold is None or fold.transaction == 0 or fold.seq - self._snapshot_seq < self._snapshot_events:
            return
        with self._pace.spell():
            self._snapshots.keep(fold)
        self._snapshot_seq = fold.seq

    def _notify(self) -> None:
        seq = self.heard.seq
        with self._grown:
            self._grown.notify_all()
        for callback in self._callbacks:
            callback(seq)
