"""States kept in memory, so that any past seq is one decoding and a short fold away.

Kept as compressed bytes of the journal's own snapshot layout, never more than a limit of them: when there is
no room, the one whose neighbours stand closest together goes, so that what is left is spread evenly.
"""

import threading
import time
import zlib
from bisect import bisect_right
from dataclasses import dataclass

from kvledger.core.errors import JournalError
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.replay import Fold
from kvledger.journal.restore import decode_state
from kvledger.journal.snapshot import encode_state

SNAPSHOT_EVENTS = 10_000
"""Events between two snapshots: a fold over half of them takes about a tenth of a second."""

SNAPSHOT_BYTES = 256 * 2**20
"""Compressed bytes kept of one journal; a hundred states of twenty thousand nodes take less."""

FASTEST = 1
"""Level of compression: it costs less than encoding does, and takes two thirds away."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A state after transaction `transaction`, whose last event is `seq`."""

    seq: int
    transaction: int
    data: bytes

    def fold(self) -> Fold:
        """A fold that goes on from here. Cost: O(state)."""
        state = decode_state(zlib.decompress(self.data))
        return Fold.resume(state, seq=Seq(self.seq), transaction=TxnId(self.transaction))


class Snapshots:
    """Snapshots of one journal, by seq. Safe from any thread."""

    def __init__(self, *, limit_bytes: int = SNAPSHOT_BYTES) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._kept: list[Snapshot] = []
        self._bytes = 0
        self.seconds = 0.0
        """Processor time that the last one took to make."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Bytes that are kept."""
        return self._bytes

    def keep(self, fold: Fold) -> bool:
        """Keep the state that `fold` stands at; False for one that cannot be encoded. Cost: O(state)."""
        began = time.thread_time()
        try:
            data = zlib.compress(encode_state(fold.state), FASTEST)
        except JournalError:
            # A journal that breaks the rules may lock a node that is gone; it can be folded all the same.
            return False
        self.seconds = time.thread_time() - began
        self._put(Snapshot(fold.seq, fold.transaction, data))
        return True

    def before(self, seq: int) -> Snapshot | None:
        """The last one at or before `seq`."""
        with self._lock:
            place = bisect_right(self._kept, seq, key=_seq)
            return self._kept[place - 1] if place else None

    def forget_before(self, seq: int) -> None:
        """Let those before `seq` go: what followed them was pruned."""
        with self._lock:
            place = bisect_right(self._kept, seq - 1, key=_seq)
            self._bytes -= sum(len(one.data) for one in self._kept[:place])
            del self._kept[:place]

    def _put(self, new: Snapshot) -> None:
        with self._lock:
            place = bisect_right(self._kept, new.seq, key=_seq)
            if place and self._kept[place - 1].seq == new.seq:
                return
            self._kept.insert(place, new)
            self._bytes += len(new.data)
            while self._bytes > self._limit and len(self._kept) > 1:
                self._bytes -= len(self._kept.pop(self._least_missed()).data)

    def _least_missed(self) -> int:
        """The place of the one without which the widest stretch to be folded grows least."""
        kept = self._kept
        if len(kept) == 2:
            return 0
        return min(range(1, len(kept) - 1), key=lambda place: kept[place + 1].seq - kept[place - 1].seq)


def _seq(one: Snapshot) -> int:
    return one.seq
