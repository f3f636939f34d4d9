"""The live bus: what a recorder in this process has stored, without reading it back from the store.

It never blocks and never grows: when the follower does not keep up it is emptied, says so, and the follower
reads from the store what it missed. It is called in the writer's thread, after the commit, with the records
that were stored; what it costs there is one append.
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

from kvledger.core.ids import Seq, TxnId
from kvledger.journal.records import StoredEvent, StoredTransaction
from kvledger.journal.rows import Submission

BUS_EVENTS = 65_536
"""Events that may wait for the follower: some seconds of a busy scheduler, about 60 MB at the worst."""


class LiveBus:
    """Batches on their way from a recorder's writer to one follower."""

    def __init__(self, *, limit: int = BUS_EVENTS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._batches: deque[tuple[Sequence[Submission], int, int, int]] = deque()
        self._events = 0
        self._overflowed = False

    def stored(self, batch: Sequence[Submission], *, number: int, seq: int, link: bytes) -> None:
        """Take a batch whose last transaction is `number` and whose last event is `seq`. O(transactions)."""
        events = sum(len(item.record.events) for item in batch)
        with self._lock:
            if self._events + events > self._limit:
                self._batches.clear()
                self._events = 0
                self._overflowed = True
                return
            self._batches.append((batch, number, seq, events))
            self._events += events

    def dropped(self, batch: Sequence[Submission]) -> None:
        """Nothing: what was given up is named by an event that is stored later."""

    def take(self) -> tuple[list[StoredTransaction], bool]:
        """What has come since the last time, in order, and whether something before it was thrown away."""
        with self._lock:
            batches, self._batches = self._batches, deque()
            overflowed, self._overflowed = self._overflowed, False
            self._events = 0
        transactions: list[StoredTransaction] = []
        for batch, number, seq, events in batches:
            transactions += _numbered(batch, number, seq - events)
        return transactions, overflowed


def _numbered(batch: Sequence[Submission], last_number: int, seq: int) -> Iterator[StoredTransaction]:
    """The transactions of a batch with the numbers and seqs that they were stored under, after `seq`."""
    for number, item in enumerate(batch, start=last_number - len(batch) + 1):
        record = item.record
        yield StoredTransaction(
            number=TxnId(number),
            op=record.op,
            request_id=record.request_id,
            rolled_back=record.rolled_back,
            reason=record.reason,
            time_us=item.time_us,
            first_seq=Seq(seq + 1),
            events=tuple(
                StoredEvent(Seq(place), bool(undone), event)
                for place, event, undone in zip(count(seq + 1), record.events, record.undone, strict=False)
            ),
            duration_us=item.duration_us,
        )
        seq += len(record.events)
