"""Replay: a pure fold over stored transactions that rebuilds the canonical state at any point.

No clock, no randomness, no cache: undone events are skipped, every other one is checked for fit and
applied. `at = seq` means the last transaction boundary at or before `seq`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kvledger.core.events import CacheOpened, Event, EventsDropped
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.effects import EFFECTS, end_transaction
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import State
from kvledger.journal.structure import STRUCTURE, ReplayError, check_opened

__all__ = ["Fold", "ReplayError", "Replayed", "replay"]


class Fold:
    """A state that stored transactions are applied to, one after another.

    After a `ReplayError` the fold stands in the middle of a transaction and takes no other one.
    """

    def __init__(self) -> None:
        self.seq = Seq(0)
        self.transaction = TxnId(0)
        self.events = 0
        self.undone_events = 0
        self._state: State | None = None
        self._broken = False

    @property
    def state(self) -> State:
        """The state so far; `ReplayError` before the first `cache_opened`."""
        if self._state is None:
            raise ReplayError("nothing is known yet: no cache_opened event has been read")
        return self._state

    def apply(self, transaction: StoredTransaction) -> None:
        """Fold the next transaction in. Cost follows the pages its events name.

        Raises `ReplayError`, with the seq, where numbers or seqs have a gap or an event does not fit.
        """
        if self._broken:
            raise ReplayError("this fold met an error before; start again with a new one")
        self._broken = True
        if transaction.number != self.transaction + 1:
            raise ReplayError(
                f"transaction {transaction.number} follows transaction {self.transaction}: one is missing",
                seq=transaction.first_seq,
            )
        for stored in transaction.events:
            if stored.seq != self.seq + 1:
                raise ReplayError(f"it follows seq {self.seq}: the journal has a gap", seq=stored.seq)
            self.seq = stored.seq
            self.events += 1
            if stored.undone:
                self.undone_events += 1
                continue
            try:
                self._apply_event(stored.event)
            except ReplayError as error:
                raise ReplayError(
                    error.problem,
                    seq=stored.seq,
                    node=error.node,
                    lease=error.lease,
                    request=error.request,
                ) from error
        if self._state is not None:
            end_transaction(self._state)
        self.transaction = transaction.number
        self._broken = False

    def _apply_event(self, event: Event) -> None:
        state = self._state
        if state is None:
            self._state = open_state(event)
            return
        kind = type(event)
        check = STRUCTURE.get(kind)
        if check is None:
            raise refusal(event)
        EFFECTS[kind](state, event, check(state, event))


def open_state(event: Event) -> State:
    """The empty state after `event`, the first of a journal; `ReplayError` unless it is `cache_opened`."""
    if not isinstance(event, CacheOpened):
        raise ReplayError(f"a journal begins with cache_opened, not with {event.kind}")
    check_opened(event)
    return State(event)


def refusal(event: Event) -> ReplayError:
    """Why `event`, whose type has no effect of its own, cannot be folded."""
    if isinstance(event, CacheOpened):
        return ReplayError("the cache is opened a second time in one journal")
    if isinstance(event, EventsDropped):
        return ReplayError(
            f"events {event.first_seq} to {event.last_seq} were not stored: the state after them is unknown"
        )
    return ReplayError(f"an event of type {type(event).__name__} is not known")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay ended with: the state, the last seq and transaction in it, and what was read."""

    state: State
    seq: Seq
    transaction: TxnId
    events: int
    undone_events: int


def replay(transactions: Iterable[StoredTransaction], upto: int | None = None) -> Replayed:
    """The state at the last transaction boundary at or before seq `upto` (None: at the end).

    Raises `ReplayError` where the journal cannot be folded, or holds nothing at or before `upto`.
    Reads no further than it has to. Cost follows the pages named by the events read.
    """
    fold = Fold()
    for transaction in transactions:
        if upto is not None and transaction.last_seq > upto:
            break
        fold.apply(transaction)
    if fold.seq == 0:
        where = "" if upto is None else f" at or before seq {upto}"
        raise ReplayError(f"the journal has no transaction{where}")
    return Replayed(
        state=fold.state,
        seq=fold.seq,
        transaction=fold.transaction,
        events=fold.events,
        undone_events=fold.undone_events,
    )
