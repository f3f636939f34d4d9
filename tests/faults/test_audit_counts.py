"""What the verdict counts is what is there, counted by looking at the events one by one. Some two seconds."""

from collections import Counter
from typing import Any

import pytest

from kvledger.core import HybridCache
from kvledger.core.events import (
    CacheReset,
    Checkpoint,
    Evicted,
    LockAcquired,
    LockReleased,
    NodeCreated,
    NodeDeleted,
    PagesAllocated,
    PagesFreed,
    PrefixInserted,
    PrefixMatched,
    RecoveryMode,
    RequestOpened,
    RollbackCause,
    RolledBack,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.sinks import MemorySink
from kvledger.journal.audit import audit
from kvledger.journal.records import StoredTransaction, number_transactions
from tests.planted.evidence import Course
from tests.planted.variant import LIVES, SKIPPING_LIVES

NAMED = {
    PrefixInserted: "inserts",
    PrefixMatched: "matches",
    RequestOpened: "requests",
    SwaRecovered: "recoveries",
    SwaTombstoned: "tombstones",
    Evicted: "evictions",
    CacheReset: "resets",
    Checkpoint: "checkpoints",
    LockAcquired: "locks_followed",
}


def counted(journal: list[StoredTransaction]) -> Counter[str]:
    """The counts of a healthy journal."""
    page = getattr(journal[0].events[0].event, "page_size")  # noqa: B009
    counts: Counter[str] = Counter(transactions=len(journal))
    for transaction in journal:
        counts["transactions_rolled_back"] += transaction.rolled_back
        for stored in transaction.events:
            event: Any = stored.event
            counts["events"] += 1
            if isinstance(event, RolledBack):
                counts["rollbacks"] += 1
                counts["anomalies"] += event.cause is RollbackCause.REFUSED
                counts["skipped"] += event.cause is RollbackCause.SKIPPED
            if stored.undone:
                counts["undone_events"] += 1
                continue
            if type(event) in NAMED:
                counts[NAMED[type(event)]] += 1
            if isinstance(event, PagesAllocated | PagesFreed | NodeCreated | NodeDeleted | SwaTombstoned):
                counts["pages_moved"] += len(event.full_pages)
            elif isinstance(event, SwaRecovered):
                counts["pages_moved"] += 2 * len(event.incoming_full)
                counts["recoveries_under_lock"] += event.mode is RecoveryMode.KEEP_LOCKED_FULL
            elif isinstance(event, LockAcquired):
                counts["pages_followed"] += event.length // page
                counts["locks_open_at_end"] += 1
            elif isinstance(event, LockReleased):
                counts["locks_open_at_end"] -= 1
                counts["locks_cut_by_reset"] += event.by_reset
    counts["checkpoints_reproduced"] = counts["checkpoints"]
    return counts


def _mark(cache: HybridCache) -> None:
    cache.checkpoint()


@pytest.mark.parametrize(
    "course", [*LIVES, *SKIPPING_LIVES[:1]], ids=lambda course: f"{course.page}-{course.locked_recovery}"
)
def test_the_counts_are_those_of_the_events(course: Course) -> None:
    sink = MemorySink()
    cache = HybridCache(course.config(), sink=sink)
    course.drive(cache, lambda: _mark(cache))
    journal = number_transactions(sink.transactions)
    for end in (len(journal) // 3, len(journal) // 2, len(journal)):
        told = audit(journal[:end]).counts.model_dump()
        mixed = told.pop("mixed_nodes_at_end")
        wanted = counted(journal[:end])
        assert {name: count for name, count in told.items() if count} == {
            k: v for k, v in wanted.items() if v
        }
    assert mixed == cache.stats().mixed_nodes
    assert wanted["resets"] > 0
    assert wanted["undone_events"] > 0
