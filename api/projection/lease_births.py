"""When leases began: heard as it is followed, or looked up in the journal, then remembered; it never changes.

A look-up takes nearly a millisecond for each lease, and a busy scheduler gives new ones all the time: what
the follower takes in anyway is noted here as it passes.
"""

import threading
from collections.abc import Sequence

from kvledger.core.events import LockAcquired
from kvledger.core.ids import LeaseId
from kvledger.journal.lookups.holders import Holder, holders
from kvledger.journal.reader import JournalReader
from kvledger.journal.records import StoredTransaction

REMEMBERED = 16_384
"""Leases remembered, some megabytes: more than are held at once by any scheduler."""


class LeaseBirths:
    """Births of the leases of one journal. Safe from any thread."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._known: dict[int, Holder] = {}

    def transaction(self, stored: StoredTransaction) -> None:
        """Note the leases that a transaction gave, as the follower takes it in."""
        born = [
            Holder(
                one.event.lease,
                one.event.node,
                one.event.request_id,
                one.seq,
                stored.number,
                stored.time_us,
            )
            for one in stored.events
            if type(one.event) is LockAcquired and not one.undone
        ]
        if born:
            self._remember(born)

    def of(self, leases: Sequence[LeaseId], *, upto_seq: int) -> tuple[Holder, ...]:
        """The acquisition of each lease, all of them held at `upto_seq`, in their order.

        Cost: a few look-ups for each one that is not remembered.
        """
        with self._lock:
            known = {lease: self._known[lease] for lease in leases if lease in self._known}
        missing = [lease for lease in leases if lease not in known]
        if missing:
            found = holders(self._reader, missing, upto_seq=upto_seq)
            known |= {holder.lease: holder for holder in found}
            self._remember(found)
        return tuple(known[lease] for lease in leases)

    def _remember(self, found: Sequence[Holder]) -> None:
        with self._lock:
            for holder in found:
                self._known[holder.lease] = holder
            # The one noted longest ago goes first.
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]
