"""Counts over the transactions of one journal, kept by a listener of its timeline.

What was undone is counted as an event and as undone, and as nothing else. Names of operations are counted
under themselves where they are the cache's own, under "other" where they are a caller's text: labels are few,
and say nothing private.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kvledger.api.told.hiding import KNOWN_OPS
from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    CallIgnored,
    Cause,
    Event,
    EventsDropped,
    KvUnread,
    LockReleased,
    NodeDeleted,
    PagesAllocated,
    PrefixInserted,
    PrefixMatched,
    RecoveryMode,
    RollbackCause,
    RolledBack,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.journal.lookups.history import HEALTHY_ROLLBACKS
from kvledger.journal.records import StoredTransaction

OTHER_OP = "other"

BUCKET_SECONDS = (
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 1.0
)  # fmt: skip
"""Edges of the latency histograms: an operation takes tens of microseconds, milliseconds where it evicts."""

EVICTIONS = (Cause.CAPACITY, Cause.CASCADE)
_EVICTION_ZEROS = {(pool, cause.value): 0 for pool in ("full", "swa") for cause in EVICTIONS}

ANOMALIES = (
    *(f"rollback_{cause.value}" for cause in RollbackCause if cause not in HEALTHY_ROLLBACKS),
    "call_ignored",
    "lock_cut_by_reset",
    "events_dropped",
    "kv_unread",
)
"""Sorts of anomalies, as journal/lookups/history.py tells them apart."""


@dataclass(slots=True)
class Latency:
    """Durations of one operation: `buckets[i]` of at most `BUCKET_SECONDS[i]`, the last one of any length."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_SECONDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BUCKET_SECONDS, seconds)] += 1
        self.seconds += seconds


class Tally:
    """What has happened in one journal so far. `lock` is held while a transaction is counted."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.events: Counter[str] = Counter()
        self.undone = 0
        self.transactions: Counter[tuple[str, str]] = Counter()
        self.latencies: dict[str, Latency] = {}
        self.hit_tokens = 0
        self.full_match_tokens = 0
        self.allocated_tokens: Counter[str] = Counter()
        # What an alert asks for is there from the start: a rate needs a zero to rise from.
        self.evicted_nodes: Counter[tuple[str, str]] = Counter(_EVICTION_ZEROS)
        self.evicted_tokens: Counter[tuple[str, str]] = Counter(_EVICTION_ZEROS)
        self.tombstones: Counter[str] = Counter({Cause.CAPACITY.value: 0})
        self.recoveries: Counter[str] = Counter({mode.value: 0 for mode in RecoveryMode})
        self.rollbacks: Counter[str] = Counter({cause.value: 0 for cause in RollbackCause})
        self.anomalies: Counter[str] = Counter(dict.fromkeys(ANOMALIES, 0))
        self.resets = 0
        self.given_up_events = 0
        self._page_size = 1
        self._inserting: str | None = None

    def learn_page_size(self, page_size: int | None) -> None:
        """Tell how many tokens a page has, where the beginning of the journal, which says so, was pruned."""
        if page_size is not None:
            self._page_size = page_size

    def transaction(self, stored: StoredTransaction) -> None:
        """Count the next transaction."""
        op = stored.op if stored.op in KNOWN_OPS else OTHER_OP
        with self.lock:
            self.transactions[op, "rolled_back" if stored.rolled_back else "committed"] += 1
            if stored.duration_us is not None:
                self.latencies.setdefault(op, Latency()).add(stored.duration_us / 1e6)
            self._inserting = None
            for one in stored.events:
                self.events[one.event.kind] += 1
                self.undone += one.undone
                self._count_event(one.event, undone=one.undone)

    def _count_event(self, event: Event, *, undone: bool) -> None:
        kind = type(event)
        # A rollback stays true when what surrounds it is undone too.
        count = _RECORDS.get(kind)
        if count is not None:
            count(self, event)
        count = None if undone else _FACTS.get(kind)
        if count is not None:
            count(self, event)

    def _opened(self, event: CacheOpened) -> None:
        self._page_size = event.page_size

    def _allocated(self, event: PagesAllocated) -> None:
        owner = "caller" if event.owner is None else "request"
        self.allocated_tokens[owner] += len(event.full_pages) * self._page_size

    def _inserted(self, event: PrefixInserted) -> None:
        self._inserting = event.request_id

    def _matched(self, event: PrefixMatched) -> None:
        # A commit matches what it has just inserted: that is no reuse.
        if event.request_id is None or event.request_id != self._inserting:
            self.hit_tokens += event.length
            self.full_match_tokens += event.full_length
        self._inserting = None

    def _released(self, event: LockReleased) -> None:
        self._inserting = None
        if event.by_reset:
            self.anomalies["lock_cut_by_reset"] += 1

    def _deleted(self, event: NodeDeleted) -> None:
        if event.cause in EVICTIONS:
            self._evicted("full", event.cause, len(event.full_pages))
            if event.swa_pages is not None:
                self._evicted("swa", event.cause, len(event.swa_pages))

    def _tombstoned(self, event: SwaTombstoned) -> None:
        self.tombstones[event.cause.value] += 1
        if event.cause in EVICTIONS:
            self._evicted("swa", event.cause, len(event.swa_pages))

    def _evicted(self, pool: str, cause: Cause, pages: int) -> None:
        self.evicted_nodes[pool, cause.value] += 1
        self.evicted_tokens[pool, cause.value] += pages * self._page_size

    def _recovered(self, event: SwaRecovered) -> None:
        self.recoveries[event.mode.value] += 1

    def _rolled_back(self, event: RolledBack) -> None:
        self.rollbacks[event.cause.value] += 1
        if event.cause not in HEALTHY_ROLLBACKS:
            self.anomalies[f"rollback_{event.cause.value}"] += 1

    def _reset(self, event: CacheReset) -> None:
        self.resets += 1

    def _ignored(self, event: CallIgnored) -> None:
        self.anomalies["call_ignored"] += 1

    def _dropped(self, event: EventsDropped) -> None:
        self.given_up_events += event.last_seq - event.first_seq + 1
        self.anomalies["events_dropped"] += 1

    def _unread(self, event: KvUnread) -> None:
        self.anomalies["kv_unread"] += 1


_FACTS: dict[type, Callable[[Tally, Any], None]] = {
    CacheOpened: Tally._opened,
    PagesAllocated: Tally._allocated,
    PrefixInserted: Tally._inserted,
    PrefixMatched: Tally._matched,
    LockReleased: Tally._released,
    NodeDeleted: Tally._deleted,
    SwaTombstoned: Tally._tombstoned,
    SwaRecovered: Tally._recovered,
    CacheReset: Tally._reset,
    KvUnread: Tally._unread,
}
"""What is counted of events that were kept."""

_RECORDS: dict[type, Callable[[Tally, Any], None]] = {
    RolledBack: Tally._rolled_back,
    CallIgnored: Tally._ignored,
    EventsDropped: Tally._dropped,
}
"""What is counted of events that tell of something, undone or not."""
