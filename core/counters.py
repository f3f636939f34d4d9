"""Statistics since the cache was opened: counted from the events when their transaction has been handed over.

So they say what the journal says, undone events included (what happened, happened), and an audit can add
them up again. Only `hit_tokens` is not in the events: how much of a match is new is the request's own affair.
"""

from collections.abc import Callable
from typing import Any, Final

from kvledger.core.events import (
    CacheReset,
    Evicted,
    RecoveryMode,
    RollbackCause,
    RolledBack,
    SwaRecovered,
    SwaTombstoned,
)


class Counters:
    """Counts of one cache; never rolled back. Evictions are tokens."""

    __slots__ = (
        "anomalies",
        "evicted_full_tokens",
        "evicted_swa_tokens",
        "hit_tokens",
        "recoveries",
        "recoveries_locked",
        "resets",
        "rollbacks",
        "skipped",
        "tombstones",
    )

    def __init__(self) -> None:
        self.hit_tokens = 0
        self.evicted_full_tokens = 0
        self.evicted_swa_tokens = 0
        self.tombstones = 0
        self.recoveries = 0
        self.recoveries_locked = 0
        self.rollbacks = 0
        self.anomalies = 0
        self.skipped = 0
        self.resets = 0

    def count(self, events: list[Any]) -> None:
        """Add what one ended transaction holds. O(events)."""
        for event in events:
            counted = _COUNTED.get(type(event))
            if counted is not None:
                counted(self, event)

    def journaled(self) -> dict[str, int]:
        """What a checkpoint carries: all that the events tell."""
        return {
            "anomalies": self.anomalies,
            "evicted_full_tokens": self.evicted_full_tokens,
            "evicted_swa_tokens": self.evicted_swa_tokens,
            "recoveries": self.recoveries,
            "recoveries_locked": self.recoveries_locked,
            "resets": self.resets,
            "rollbacks": self.rollbacks,
            "skipped": self.skipped,
            "tombstones": self.tombstones,
        }


def _evicted(counters: Counters, event: Evicted) -> None:
    counters.evicted_full_tokens += event.counted_full
    counters.evicted_swa_tokens += event.counted_swa


def _tombstoned(counters: Counters, event: SwaTombstoned) -> None:
    counters.tombstones += 1


def _recovered(counters: Counters, event: SwaRecovered) -> None:
    counters.recoveries += 1
    if event.mode is RecoveryMode.KEEP_LOCKED_FULL:
        counters.recoveries_locked += 1


def _rolled_back(counters: Counters, event: RolledBack) -> None:
    counters.rollbacks += 1
    if event.cause is RollbackCause.REFUSED:
        counters.anomalies += 1
    elif event.cause is RollbackCause.SKIPPED:
        counters.skipped += 1


def _reset(counters: Counters, event: CacheReset) -> None:
    counters.resets += 1


_COUNTED: Final[dict[type, Callable[[Counters, Any], None]]] = {
    Evicted: _evicted,
    SwaTombstoned: _tombstoned,
    SwaRecovered: _recovered,
    RolledBack: _rolled_back,
    CacheReset: _reset,
}
