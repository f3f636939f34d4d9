"""Replay: a pure fold over stored transactions that rebuilds the canonical state at any point.

No clock, no randomness, no cache: undone events are skipped, every other one is checked for fit and
applied. `at = seq` means the last transaction boundary at or before `seq`.

A source that has checkpoints is read from the nearest one on. Where events were dropped nothing is known
until the next checkpoint, and replay resumes there.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kvledger.core.events import CacheOpened, EventsDropped
from kvledger.core.ids import Seq, TxnId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.effects import EFFECTS, end_transaction
from kvledger.journal.fits import ReplayError
from kvledger.journal.records import JournalSource, StoredCheckpoint, StoredTransaction
from kvledger.journal.restore import decode_state
from kvledger.journal.state import State
from kvledger.journal.structure import STRUCTURE, check_opened

STEPS = {kind: (STRUCTURE[kind], effect) for kind, effect in EFFECTS.items()}
"""By event type: how an event that was not undone is checked for fit, and what it does then."""

__all__ = ["Fold", "ReplayError", "Replayed", "gap_in", "replay", "restore"]


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

    @classmethod
    def resume(cls, state: State, *, seq: Seq, transaction: TxnId) -> Self:
        """A fold that goes on from `state`, which it takes over, after this seq and this transaction."""
        fold = cls()
        fold._state = state
        fold.seq = seq
        fold.transaction = transaction
        return fold

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
        self._begin()
        if transaction.number != self.transaction + 1:
            raise ReplayError(
                f"transaction {transaction.number} follows transaction {self.transaction}: one is missing",
                seq=transaction.first_seq,
            )
        gap = gap_in(transaction)
        if gap is not None:
            raise ReplayError(refusal(gap).problem, seq=transaction.first_seq)
        events: Sequence[Any] = transaction.events
        seqs = [stored.seq for stored in events]
        first = self.seq + 1
        sound = len(seqs)
        if seqs != list(range(first, first + sound)):
            sound = next(i for i, seq in enumerate(seqs) if seq != first + i)
        self._steps([stored.event for stored in events[:sound]], [stored.undone for stored in events[:sound]])
        if sound < len(events):
            raise ReplayError(f"it follows seq {self.seq}: the journal has a gap", seq=events[sound].seq)
        self._end()

    def apply_record(self, record: TransactionRecord) -> None:
        """Fold in the next transaction as a sink was given it; it gets the next number and seqs.

        Raises `ReplayError` as `apply`. The cost is that of `apply`.
        """
        self._begin()
        self._steps(record.events, record.undone)
        self._end()

    def _begin(self) -> None:
        if self._broken:
            raise ReplayError("this fold met an error before; start again with a new one")
        self._broken = True

    def _end(self) -> None:
        if self._state is not None:
            end_transaction(self._state)
        self.transaction = TxnId(self.transaction + 1)
        self._broken = False

    def _steps(self, events: Sequence[Any], undone: Sequence[int]) -> None:
        """Fold in events, except those that `undone` marks."""
        state, seq = self._state, int(self.seq)
        try:
            for event, mark in zip(events, undone, strict=True):
                seq += 1
                if mark:
                    self.undone_events += 1
                elif state is None:
                    self._state = state = open_state(event)
                else:
                    step = STEPS.get(type(event))
                    if step is None:
                        raise refusal(event)
                    check, effect = step
                    effect(state, event, check(state, event))
        except ReplayError as error:
            raise ReplayError(
                error.problem, seq=Seq(seq), node=error.node, lease=error.lease, request=error.request
            ) from error
        finally:
            self.events += seq - self.seq
            self.seq = Seq(seq)


def open_state(event: Any) -> State:
    """The empty state after `event`, the first of a journal; `ReplayError` unless it is `cache_opened`."""
    if not isinstance(event, CacheOpened):
        raise ReplayError(f"a journal begins with cache_opened, not with {event.kind}")
    check_opened(event)
    return State(event)


def refusal(event: Any) -> ReplayError:
    """Why `event`, whose type has no effect of its own, cannot be folded."""
    if isinstance(event, CacheOpened):
        return ReplayError("the cache is opened a second time in one journal")
    if isinstance(event, EventsDropped):
        return ReplayError(
            f"events {event.first_seq} to {event.last_seq} were not stored: the state after them is unknown"
        )
    return ReplayError(f"an event of type {type(event).__name__} is not known")


def gap_in(transaction: StoredTransaction) -> EventsDropped | None:
    """The event that begins `transaction` and says that seqs before it were never stored, if any."""
    if transaction.events and isinstance(transaction.events[0].event, EventsDropped):
        return transaction.events[0].event
    return None


def restore(checkpoint: StoredCheckpoint) -> Fold:
    """A fold that goes on from a checkpoint.

    Raises JournalFormatError for a state that cannot be read, `ReplayError` for one that has not the digest
    that the checkpoint names. Cost: O(state).
    """
    state = decode_state(checkpoint.state)
    digest = state.digest()
    if digest != checkpoint.digest:
        raise ReplayError(
            f"the state of the checkpoint has the digest {digest[:16]}..., its row says "
            f"{checkpoint.digest[:16]}...",
            seq=checkpoint.seq,
        )
    return Fold.resume(state, seq=checkpoint.seq, transaction=checkpoint.number)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay ended with: the state, the last seq and transaction in it, and what was read.

    `events` counts those that were folded, after the checkpoint at `checkpoint_seq` (None: from the first).
    """

    state: State
    seq: Seq
    transaction: TxnId
    events: int
    undone_events: int
    checkpoint_seq: Seq | None = None


def replay(transactions: Iterable[StoredTransaction] | JournalSource, upto: int | None = None) -> Replayed:
    """The state at the last transaction boundary at or before seq `upto` (None: at the end).

    Given a source, it starts from the nearest checkpoint; given transactions alone, from the first of them.
    Raises `ReplayError` where the journal cannot be folded, or holds nothing at or before `upto`, or where
    `upto` lies before what is still there or in a gap. Reads no further than it has to. Cost follows the
    pages named by the events read, and the size of the checkpoint.
    """
    if isinstance(transactions, Iterable):
        fold, start = Fold(), None
        _fold_upto(fold, transactions, upto)
    else:
        fold, start = _fold_source(transactions, upto)
    if fold.seq == 0:
        where = "" if upto is None else f" at or before seq {upto}"
        raise ReplayError(f"the journal has no transaction{where}")
    return Replayed(
        state=fold.state,
        seq=fold.seq,
        transaction=fold.transaction,
        events=fold.events,
        undone_events=fold.undone_events,
        checkpoint_seq=start,
    )


def _fold_upto(fold: Fold, transactions: Iterable[StoredTransaction], upto: int | None) -> None:
    for transaction in transactions:
        if upto is not None and transaction.last_seq > upto:
            _refuse_inside_gap(transaction, upto)
            break
        fold.apply(transaction)


def _refuse_inside_gap(following: StoredTransaction, upto: int) -> None:
    """Raise where `upto` is one of the seqs that `following` says were never stored."""
    gap = gap_in(following)
    if gap is not None and gap.first_seq <= upto:
        raise ReplayError(
            f"events {gap.first_seq} to {gap.last_seq} were not stored: the state in between is unknown",
            seq=Seq(upto),
        )


def _fold_source(source: JournalSource, upto: int | None) -> tuple[Fold, Seq | None]:
    start = source.checkpoint_before(upto)
    if start is None:
        fold = Fold()
        _fold_upto(fold, _from_the_first(source, upto), upto)
    else:
        fold = restore(start)
        _fold_upto(fold, source.transactions(start.number + 1, upto_seq=upto), upto)
    if upto is not None and 0 < fold.seq < upto:
        # The transactions before `upto` are read to their end: only what follows tells of a gap there.
        following = next(source.transactions(fold.transaction + 1), None)
        if following is not None:
            _refuse_inside_gap(following, upto)
    return fold, None if start is None else start.seq


def _from_the_first(source: JournalSource, upto: int | None) -> Iterator[StoredTransaction]:
    first = next(source.transactions(), None)
    if first is not None and first.number != 1:
        where = "its end" if upto is None else f"seq {upto}"
        raise ReplayError(
            f"what is stored begins with transaction {first.number}, seq {first.first_seq}, and no "
            f"checkpoint stands at or before {where}"
        )
    return source.transactions(upto_seq=upto)
