"""Transactions: every public mutation runs in one, its own or the caller's.

The ledger keeps what the open transaction applied, in order, with what each reverse needs. Rolling back
pops that list down to a mark, so it costs what was changed since, whatever the size of the context.
Events are kept until the outermost transaction ends; then they go to the sink, undone ones marked, and
only after the sink took them do frees take effect and the memory hears of it.

Ending the outermost transaction: stage (nothing is left to do: events are applied as they come), hand
to the sink (may refuse: all is undone), settle pages, tell the allocator (must not fail: if it does,
host and device no longer agree and the ledger refuses further work).
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kvledger.core.errors import InvariantViolation, TransactionError, WrongThread
from kvledger.core.events import Event, EventSink, RollbackCause, RolledBack, TransactionRecord
from kvledger.core.ids import RequestId
from kvledger.core.state import CacheState

_Undo = tuple[Event | None, Any]
"""An applied event with its token, or None with a callable that puts unjournaled progress back."""


class Savepoint:
    """A place in the open transaction that can be rolled back to. Cheap to make."""

    __slots__ = ("clock", "events", "serial", "undos")

    def __init__(self, undos: int, events: int, clock: int, serial: int) -> None:
        self.undos = undos
        self.events = events
        self.clock = clock
        self.serial = serial


class Ledger:
    """The open transaction of one cache, and the way in and out of it."""

    __slots__ = (
        "_broken",
        "_dead",
        "_first_of_transaction",
        "_owner",
        "_serial",
        "_undos",
        "depth",
        "events",
        "op",
        "request_id",
        "sink",
        "state",
        "undone",
    )

    def __init__(self, state: CacheState, sink: EventSink | None) -> None:
        self.state = state
        self.sink = sink
        self.depth = 0
        self.op = ""
        self.request_id: RequestId | None = None
        self.events: list[Event] = []
        self.undone: list[tuple[int, int]] = []
        self._undos: list[_Undo] = []
        self._serial = 0
        self._first_of_transaction = 0
        self._dead: list[tuple[int, int]] = []
        self._owner: int | None = None
        self._broken = ""

    # Threads.

    def check_reader(self) -> None:
        """Refuse a query from a thread that does not own the cache."""
        if self._owner is not None and self._owner != threading.get_ident():
            raise WrongThread("the cache belongs to another thread; its owner may call hand_over()")

    def check_writer(self) -> None:
        """Refuse a mutation from another thread, and any once the memory failed to commit."""
        ident = threading.get_ident()
        if self._owner != ident:
            if self._owner is not None:
                raise WrongThread("the cache belongs to another thread; its owner may call hand_over()")
            self._owner = ident
        if self._broken:
            raise InvariantViolation([("pool-commit", self._broken)])

    def hand_over(self) -> None:
        """Let the next caller own the cache. Not inside a transaction."""
        self.check_writer()
        if self.depth:
            raise TransactionError("a cache with an open transaction cannot be handed over")
        self._owner = None

    # Inside a transaction.

    def apply(self, event: Event) -> None:
        """Carry out one event and remember how to undo it."""
        token = self.state.apply(event)
        self._undos.append((event, token))
        self.events.append(event)

    def note(self, put_back: Callable[[], None]) -> None:
        """Remember how to put back what no event tells: a request's progress, a choice of pages."""
        if self.depth:
            self._undos.append((None, put_back))

    def mark(self) -> Savepoint:
        """A savepoint here."""
        self._serial += 1
        return Savepoint(len(self._undos), len(self.events), self.state.clock, self._serial)

    def rollback(
        self, to: Savepoint, cause: RollbackCause, reason: str, request_id: RequestId | None = None
    ) -> None:
        """Undo everything since the savepoint, last first, and journal that it was. O(what changed)."""
        state, undos = self.state, self._undos
        while len(undos) > to.undos:
            event, token = undos.pop()
            if event is None:
                token()
            else:
                state.revert(event, token)
        state.clock = to.clock
        self._dead.append((to.serial, self._serial))
        first, end = to.events, len(self.events)
        if end > first:
            self.undone.append((first, end))
            state.counters.rollbacks += 1
            self.events.append(RolledBack(first, end, cause, reason, request_id))

    # Its ends.

    def begin(self, op: str, request_id: RequestId | None) -> Savepoint:
        """Open a transaction, or a savepoint in the one that is open."""
        self.check_writer()
        if not self.depth:
            self.op = op
            self.request_id = request_id
            self._first_of_transaction = self._serial + 1
        self.depth += 1
        return self.mark()

    def is_current(self, savepoint: Savepoint) -> bool:
        """True if the savepoint was made in the open transaction and has not been rolled back past."""
        serial = savepoint.serial
        return (
            self.depth > 0
            and serial >= self._first_of_transaction
            and not any(after < serial <= until for after, until in self._dead)
        )

    def commit(self, start: Savepoint) -> None:
        """End a transaction that went well; the outermost one is handed to the sink first."""
        if self.depth > 1:
            self.depth -= 1
            return
        if self.events and self.sink is not None:
            try:
                self.sink.append(self._record(rolled_back=False, reason=""))
            except BaseException:
                self.rollback(start, RollbackCause.ERROR, "the sink refused the transaction")
                self.state.pages.abandon()
                self._close()
                raise
        changes = self.state.pages.settle()
        self._close()
        if changes is not None:
            try:
                self.state.pages.allocator.commit(changes)
            except BaseException as error:
                self._broken = (
                    f"the memory failed to carry out a committed transaction ({type(error).__name__}: "
                    f"{error}); host and device no longer agree, so the cache refuses further work"
                )
                raise

    def abort(self, start: Savepoint, error: BaseException) -> None:
        """End a transaction that an exception leaves: undo it, and journal it if it had events."""
        reason = f"{type(error).__name__}: {error}"
        self.rollback(start, RollbackCause.ERROR, reason, self.request_id)
        if self.depth > 1:
            self.depth -= 1
            return
        self.state.pages.abandon()
        record = self._record(rolled_back=True, reason=reason) if self.events else None
        self._close()
        if record is not None and self.sink is not None:
            self.sink.append(record)

    def _record(self, rolled_back: bool, reason: str) -> TransactionRecord:
        undone = bytearray(len(self.events))
        for first, end in self.undone:
            undone[first:end] = b"\x01" * (end - first)
        return TransactionRecord(self.op, self.request_id, self.events, undone, rolled_back, reason)

    def _close(self) -> None:
        self.depth = 0
        self.events = []
        self.undone = []
        self._undos = []
        self._dead = []


class Scope:
    """`with Scope(ledger, op):` runs its body as a transaction, or as a savepoint of the open one."""

    __slots__ = ("_ledger", "_op", "_request_id", "start")

    def __init__(self, ledger: Ledger, op: str, request_id: RequestId | None = None) -> None:
        self._ledger = ledger
        self._op = op
        self._request_id = request_id

    def __enter__(self) -> None:
        self.start = self._ledger.begin(self._op, self._request_id)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._ledger.commit(self.start)
        else:
            self._ledger.abort(self.start, error)


class Transaction:
    """What `cache.transaction(op)` gives: savepoints and rollback of the caller's own transaction.

    Leaving the block commits, an exception undoes it. Nested blocks are savepoints of the outer one.
    """

    __slots__ = ("_depth", "_ledger", "_scope", "_start", "_state")

    def __init__(self, ledger: Ledger, op: str, request_id: RequestId | None) -> None:
        self._ledger = ledger
        self._scope = Scope(ledger, op, request_id)
        self._state = "new"
        self._depth = 0

    def __enter__(self) -> Self:
        if self._state != "new":
            raise TransactionError("a transaction object is used once")
        self._scope.__enter__()
        self._state = "open"
        self._start = self._scope.start
        self._depth = self._ledger.depth
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "ended"
        self._scope.__exit__(kind, error, trace)

    def savepoint(self) -> Savepoint:
        """A place to come back to. TransactionError when the transaction is not the open one."""
        self._check_open()
        return self._ledger.mark()

    def rollback(self, to: Savepoint | None = None, reason: str = "") -> None:
        """Undo everything since `to`, or since the start; the transaction stays open. O(what changed).

        Raises TransactionError for a savepoint of another transaction or one rolled back past.
        """
        self._check_open()
        target: object = self._start if to is None else to
        if not isinstance(target, Savepoint) or not self._ledger.is_current(target):
            raise TransactionError("that is no savepoint of this transaction, or was rolled back past")
        if target.serial < self._start.serial:
            raise TransactionError("that savepoint was made before this transaction began")
        self._ledger.rollback(target, RollbackCause.CALLER, reason)

    def _check_open(self) -> None:
        self._ledger.check_writer()
        if self._state != "open" or self._ledger.depth != self._depth:
            raise TransactionError("the transaction is not the innermost open one")
