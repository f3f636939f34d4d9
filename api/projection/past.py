"""States at past seqs: from whatever stands nearest before them, and a short fold.

A few decoded states are kept, the ones asked for last. A later seq takes the nearest of them along, so that
stepping forward costs only the events in between; going back costs one decoding. One is computed at a time:
more at once would only take turns.
"""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvledger.api.projection.boundaries import Boundary, not_known
from kvledger.api.projection.pace import Pace
from kvledger.api.projection.snapshots import Snapshots
from kvledger.journal.reader import JournalReader
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import Fold, ReplayError, restore
from kvledger.journal.state import State

KEPT_STATES = 4
"""Decoded states kept: two people who step through time, each comparing two seqs. Some tens of megabytes each
at twenty thousand nodes."""

DECODE_EVENTS = 3_000
"""Decoding a snapshot costs about as much as folding so many events does."""

WORTH_KEEPING = 4
"""A state that took this many times as long to fold as a snapshot takes to make is kept as one."""

SPELL_EVENTS = 256
"""Events folded in one spell: a few milliseconds."""


class _Place:
    """A fold that stands at some boundary, what was derived of its state, and how many are looking at it."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.derived: dict[Any, Any] = {}
        self.readers = 0


class Past:
    """Past states of one journal. Safe from any thread; a thread may look at several states at once."""

    def __init__(self, reader: JournalReader, *, snapshots: Snapshots, pace: Pace) -> None:
        self._reader = reader
        self._snapshots = snapshots
        self._pace = pace
        self._lock = threading.RLock()
        self._places: list[_Place] = []

    @contextmanager
    def at(self, boundary: Boundary) -> Iterator[tuple[State, dict[Any, Any]]]:
        """The state at a boundary that is stored, and what was derived of it, for the time of the block.

        Raises a refusal (409) where it is not known, what the store raises, and ReplayError or
        JournalFormatError where the journal does not fold up to there.
        """
        with self._lock, self._collector_at_rest():
            place = self._place(boundary)
            place.readers += 1
            try:
                yield place.fold.state, place.derived
            finally:
                place.readers -= 1

    def _place(self, boundary: Boundary) -> _Place:
        place = self._taken_along(boundary)
        if place is None:
            place = _Place(self._from_stored(boundary))
            began = time.thread_time()
            self._advance(place, boundary)
            if time.thread_time() - began > WORTH_KEEPING * self._snapshots.seconds > 0:
                # Whoever looks here once steps on from here: the way is not gone twice.
                with self._pace.spell():
                    self._snapshots.keep(place.fold)
        self._remember(place)
        return place

    def _taken_along(self, boundary: Boundary) -> _Place | None:
        """A kept place that is there already, or can get there for less than a decoding costs."""
        nearest = None
        for place in self._places:
            if place.fold.transaction == boundary.transaction:
                return place
            if place.fold.transaction < boundary.transaction and not place.readers:
                nearest = place if nearest is None else max(nearest, place, key=_seq)
        if nearest is None:
            return None
        snapshot = self._snapshots.before(boundary.seq)
        if snapshot is not None and snapshot.seq - nearest.fold.seq > DECODE_EVENTS:
            return None
        if snapshot is None and boundary.seq - nearest.fold.seq > DECODE_EVENTS:
            return None
        # While it is on its way it is no place to begin from, and after an error it never is again.
        self._places.remove(nearest)
        try:
            self._advance(nearest, boundary)
        except ReplayError:
            # Events in between were not stored: beyond them there is a checkpoint, or nothing.
            return None
        return nearest

    def _from_stored(self, boundary: Boundary) -> Fold:
        """The nearest fold from a snapshot, a checkpoint of the store, or the beginning."""
        with self._pace.spell():
            snapshot = self._snapshots.before(boundary.seq)
            checkpoint_seq = max(
                (seq for seq in self._reader.checkpoint_seqs() if seq <= boundary.seq), default=None
            )
            if snapshot is not None and (checkpoint_seq is None or snapshot.seq >= checkpoint_seq):
                return snapshot.fold()
            if checkpoint_seq is not None:
                checkpoint = self._reader.checkpoint_before(boundary.seq)
                if checkpoint is not None:
                    return restore(checkpoint)
            return Fold()

    @contextmanager
    def _collector_at_rest(self) -> Iterator[None]:
        """Keep the garbage collector from running in the block, where the process is the service's own.

        A decoding makes a hundred thousand objects that all stay. Looking through them, and through all else
        in the process, while they are made takes longer than making them; what they leave behind is taken
        apart and not waited for.
        """
        if self._pace.share is not None or not gc.isenabled():
            yield
            return
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    def _advance(self, place: _Place, boundary: Boundary) -> None:
        fold = place.fold
        if fold.transaction == boundary.transaction:
            return
        place.derived.clear()
        transactions = self._reader.transactions(fold.transaction + 1, upto_seq=boundary.seq)
        events = SPELL_EVENTS
        while events >= SPELL_EVENTS:
            with self._pace.spell():
                spell: list[StoredTransaction] = []
                events = 0
                for transaction in transactions:
                    if transaction.number > boundary.transaction:
                        break
                    spell.append(transaction)
                    events += len(transaction.events)
                    if events >= SPELL_EVENTS:
                        break
                for transaction in spell:
                    fold.apply(transaction)
        if fold.transaction != boundary.transaction:
            raise not_known(boundary.seq)

    def _remember(self, place: _Place) -> None:
        """Put `place` last, as the latest asked for; where there are too many the first one goes."""
        if place in self._places:
            self._places.remove(place)
        self._places.append(place)
        while len(self._places) > KEPT_STATES:
            oldest = next(one for one in self._places if not one.readers)
            self._places.remove(oldest)
            _take_apart(oldest.fold.state)

    def forget_before(self, seq: int) -> None:
        """Let kept states before `seq` go: what followed them was pruned."""
        with self._lock:
            self._places = [place for place in self._places if place.fold.seq >= seq]


def _take_apart(state: State) -> None:
    """Let go of a state: parents and children name each other, so that it would stay for long."""
    for node in state.nodes.values():
        node.parent = None
        node.children.clear()


def _seq(place: _Place) -> int:
    return place.fold.seq
