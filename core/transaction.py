"""Transactions: every public mutation runs in one, its own or the caller's.

The ledger keeps what the open transaction applied, in order, with what each reverse needs. Rolling back
pops that list down to a mark, so it costs what was changed since, whatever the size of the context.
Events are kept until the outermost transaction ends; then they go to the sink, undone ones marked, and
only after the sink took them do frees take effect, the memory hears of it, and the order of eviction learns.

Ending the outermost transaction: stage (nothing is left to do: events are applied as they come), hand
to the sink (may refuse: all is undone), settle pages, tell the allocator (must not fail). If something fails
past the sink, or in the middle of a change or of its reverse, state, journal and memory may no longer
agree: the ledger then refuses further work, and says why.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable
from types import TracebackType
from typing import Any

from kvledger.core.errors import InvariantViolation, TransactionError, WrongThread
from kvledger.core.events import Event, RollbackCause, RolledBack
from kvledger.core.ids import RequestId
from kvledger.core.learning import learn
from kvledger.core.sinks import EventSink, TransactionRecord, beginnings_of
from kvledger.core.state import CHANGES, REVERSES, CacheState
from kvledger.core.uses import Use

_Undo = tuple[Event | None, Any]
"""An applied event with its token, or None with a callable that puts unjournaled progress back."""

Place = tuple[int, int, int]
"""How many undos and events there are, and the clock."""


class Savepoint:
    """A place in the open transaction that can be rolled back to. Cheap to make."""

    __slots__ = ("clock", "events", "ledger", "serial", "undos")

    def __init__(self, ledger: "Ledger", undos: int, events: int, clock: int, serial: int) -> None:
        self.ledger = ledger
        self.undos = undos
        self.events = events
        self.clock = clock
        self.serial = serial


class Ledger:
    """The open transaction of one cache, and the way in and out of it."""

    __slots__ = (
        "_began",
        "_broken",
        "_dead",
        "_ending",
        "_outermost",
        "_owner",
        "_serial",
        "_undos",
        "_uses",
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
        self._began: Callable[[], None] | None = beginnings_of(sink)
        self.depth = 0
        self.op = ""
        self.request_id: RequestId | None = None
        self.events: list[Event] = []
        self.undone: list[tuple[int, int]] = []
        self._undos: list[_Undo] = []
        self._uses: list[Use] = []
        self._serial = 0
        self._outermost: Savepoint | None = None
        self._dead: list[tuple[int, int]] = []  # serials (after, until] of savepoints rolled back past
        self._ending = False
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
            raise InvariantViolation([("transaction", self._broken)])

    def hand_over(self) -> None:
        """Let the next caller own the cache. Not inside a transaction.

        One that refuses further work is handed over too: whoever comes can look at the evidence.
        """
        self.check_reader()
        if self.depth:
            raise TransactionError("a cache with an open transaction cannot be handed over")
        self._owner = None

    # Inside a transaction.

    def apply(self, event: Event) -> None:
        """Carry out one event and remember how to undo it. The state is torn until that has been kept."""
        state = self.state
        state.torn = True
        self._undos.append((event, CHANGES[type(event)](state, event)))
        self.events.append(event)
        state.torn = False

    def note(self, put_back: Callable[[], None]) -> None:
        """Remember how to put back what no event tells: a request's progress, a choice of pages."""
        if self.depth:
            self._undos.append((None, put_back))

    def use(self, use: Use) -> None:
        """Have the order of eviction learn of a use at the outermost commit, if it is not undone. O(1)."""
        if self.depth and self.state.retention is not None:
            self._uses.append(use)
            self._undos.append((None, self._uses.pop))

    def mark(self) -> Savepoint:
        """A savepoint here."""
        self._serial += 1
        return Savepoint(self, len(self._undos), len(self.events), self.state.clock, self._serial)

    def place(self) -> Place:
        """Where the transaction stands: cheaper than a savepoint, for an operation's own use."""
        return len(self._undos), len(self.events), self.state.clock

    def savepoint_at(self, place: Place, start: Savepoint) -> Savepoint:
        """The savepoint of a place that an operation noted after its `start`, with no mark in between."""
        undos, events, clock = place
        return Savepoint(self, undos, events, clock, start.serial)

    def rollback(
        self, to: Savepoint, cause: RollbackCause, reason: str, request_id: RequestId | None = None
    ) -> None:
        """Undo everything since the savepoint, last first, and journal that it was. O(what changed)."""
        state, undos = self.state, self._undos
        try:
            while len(undos) > to.undos:
                event, token = undos[-1]
                if event is None:
                    token()
                else:
                    state.torn = True
                    REVERSES[type(event)](state, event, token)
                undos.pop()
                state.torn = False
        except BaseException as error:
            self._break("an undone change could not be taken back", error)
            raise
        state.clock = to.clock
        while self._dead and self._dead[-1][0] >= to.serial:
            self._dead.pop()
        self._dead.append((to.serial, self._serial))
        first, end = to.events, len(self.events)
        if end > first:
            self.undone.append((first, end))
            self.events.append(RolledBack(first, end, cause, reason, request_id))

    # Its ends.

    def begin(self, op: str, request_id: RequestId | None) -> Savepoint:
        """Open a transaction, or a savepoint in the one that is open."""
        self.check_writer()
        if self._ending:
            raise TransactionError("the cache cannot be changed while a transaction of it is ending")
        start = self.mark()
        if not self.depth:
            if self._began is not None:
                self._began()
            self.op = op
            self.request_id = request_id
            self._outermost = start
        self.depth += 1
        return start

    def is_current(self, savepoint: Savepoint) -> bool:
        """True if the savepoint was made in the open transaction and has not been rolled back past."""
        outermost = self._outermost
        if savepoint.ledger is not self or outermost is None or savepoint.serial < outermost.serial:
            return False
        at = bisect_left(self._dead, (savepoint.serial, 0)) - 1
        return at < 0 or savepoint.serial > self._dead[at][1]

    def commit(self, start: Savepoint, depth: int) -> None:
        """End a transaction that went well; the outermost one is handed to the sink first."""
        if self.depth != depth:
            self._check_innermost(depth)
        if depth > 1:
            self.depth -= 1
            return
        stored = carried_out = False
        try:
            self._ending = True
            if self.events and self.sink is not None:
                self.sink.append(self._record(rolled_back=False, reason=""))
            stored = True
            self.state.counters.count(self.events)
            changes = self.state.pages.settle()
            if changes is not None:
                self.state.pages.allocator.commit(changes)
            carried_out = True
            # What eviction learns is a guess about the future: whatever happens here, the commit stands.
            if self._uses and self.state.retention is not None:
                learn(self.state.retention, self._uses)
        except BaseException as error:
            if carried_out:
                raise
            if stored:
                self._break("a committed transaction could not be carried out", error)
            else:
                self._undo_all(start, RollbackCause.ERROR, "the sink refused the transaction")
            raise
        finally:
            self._close()

    def abort(self, start: Savepoint, depth: int, error: BaseException, request_id: RequestId | None) -> None:
        """End a transaction that an exception leaves: undo it, and journal it if it had events."""
        self._check_innermost(depth)
        if self.state.torn:
            self._break("a change was cut off in the middle", error)
        reason = _describe(error)
        if depth > 1:
            self.depth -= 1
            self.rollback(start, RollbackCause.ERROR, reason, request_id or self.request_id)
            return
        try:
            self._ending = True
            self._undo_all(start, RollbackCause.ERROR, reason)
            if self.events and self.sink is not None:
                self.sink.append(self._record(rolled_back=True, reason=reason))
            self.state.counters.count(self.events)
        finally:
            self._close()

    def _undo_all(self, start: Savepoint, cause: RollbackCause, reason: str) -> None:
        """Undo the outermost transaction and give the allocator back what was taken in it."""
        self.rollback(start, cause, reason, self.request_id)
        try:
            self.state.pages.abandon()
        except BaseException as error:
            self._break("the memory could not take pages back", error)
            raise

    def _check_innermost(self, depth: int) -> None:
        """Transactions end in the order opposite to their beginning; otherwise all of it is undone."""
        if self.depth == depth:
            return
        if self.depth > depth and self._outermost is not None:
            error = TransactionError("a transaction ended while one inside it was open: all was undone")
            outermost, self.depth = self._outermost, 1
            self.abort(outermost, 1, error, self.request_id)
            raise error
        raise TransactionError("the transaction has ended already")

    def _break(self, what: str, error: BaseException) -> None:
        self._broken = (
            f"{what} ({_describe(error)}); state, journal and memory may no longer agree, "
            f"so the cache refuses further work"
        )

    def _record(self, rolled_back: bool, reason: str) -> TransactionRecord:
        undone = bytearray(len(self.events))
        for first, end in self.undone:
            undone[first:end] = b"\x01" * (end - first)
        return TransactionRecord(self.op, self.request_id, self.events, undone, rolled_back, reason)

    def _close(self) -> None:
        self.depth = 0
        self._ending = False
        self._outermost = None
        self.events = []
        self.undone = []
        self._undos = []
        self._uses = []
        self._dead = []


class Scope:
    """`with Scope(ledger, op):` runs its body as a transaction, or as a savepoint of the open one."""

    __slots__ = ("_ledger", "_op", "depth", "request_id", "start")

    def __init__(self, ledger: Ledger, op: str, request_id: RequestId | None = None) -> None:
        self._ledger = ledger
        self._op = op
        self.request_id = request_id

    def __enter__(self) -> None:
        self.start = self._ledger.begin(self._op, self.request_id)
        self.depth = self._ledger.depth

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._ledger.commit(self.start, self.depth)
        else:
            self._ledger.abort(self.start, self.depth, error, self.request_id)


def _describe(error: BaseException) -> str:
    """An exception in a line, also where it cannot say what it is."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__} (its text could not be had)"
