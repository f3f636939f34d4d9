"""When leases began: looked up in the journal once each, then remembered, for it never changes."""

import threading
from collections.abc import Sequence

from kvledger.core.ids import LeaseId
from kvledger.journal.lookups.holders import Holder, holders
from kvledger.journal.reader import JournalReader

REMEMBERED = 16_384
"""Leases remembered, some megabytes: more than are held at once by any scheduler."""


class LeaseBirths:
    """Births of the leases of one journal. Safe from any thread."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._known: dict[int, Holder] = {}

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
            with self._lock:
                if len(self._known) + len(found) > REMEMBERED:
                    self._known.clear()
                self._known |= {holder.lease: holder for holder in found}
        return tuple(known[lease] for lease in leases)
