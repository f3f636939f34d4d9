"""credit: the counters of a checkpoint are the sums over all events before it, undone ones included.

Where the events before are not known, after a gap or in a pruned journal, the first checkpoint is taken at
its word and later ones are compared with it.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from kvledger.core.events import (
    CacheReset,
    Checkpoint,
    Evicted,
    RecoveryMode,
    RollbackCause,
    RolledBack,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction

COUNTERS = (
    "anomalies",
    "evicted_full_tokens",
    "evicted_swa_tokens",
    "recoveries",
    "recoveries_locked",
    "resets",
    "rollbacks",
    "skipped",
    "tombstones",
)
"""What every checkpoint counts."""


class Statistics(Check):
    """Adds up all events, and compares at each checkpoint. Cost: one look-up an event."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._sums: Counter[str] = Counter()
        self._known = True
        self.before = {Checkpoint: self._checkpoint}

    def resume(self) -> None:
        """What the events before added up to is not known until a checkpoint tells it."""
        self._known = False

    def _checkpoint(self, event: Checkpoint, subject: None) -> None:
        told = event.counters
        if set(told) != set(COUNTERS):
            self.findings.add(
                "credit", f"a checkpoint counts {', '.join(sorted(told)) or 'nothing'}: not what each counts"
            )
        elif self._known:
            wrong = [name for name in COUNTERS if told[name] != self._sums[name]]
            if wrong:
                counted = ", ".join(f"{name} {told[name]} and not {self._sums[name]}" for name in wrong)
                self.findings.add("credit", f"a checkpoint counts {counted}")
        else:
            self._sums = Counter(told)
            self._known = True

    def ended_by(self) -> Iterable[type]:
        """Whatever a checkpoint counts."""
        return _COUNTED.keys()

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Checkpoints stand in transactions of their own, so that a transaction is counted as a whole."""
        stored: Any
        for stored in transaction.events:
            count = _COUNTED.get(type(stored.event))
            if count is not None:
                count(self._sums, stored.event)


def _evicted(sums: Counter[str], event: Evicted) -> None:
    sums["evicted_full_tokens"] += event.counted_full
    sums["evicted_swa_tokens"] += event.counted_swa


def _tombstoned(sums: Counter[str], event: SwaTombstoned) -> None:
    sums["tombstones"] += 1


def _recovered(sums: Counter[str], event: SwaRecovered) -> None:
    sums["recoveries"] += 1
    sums["recoveries_locked"] += event.mode is RecoveryMode.KEEP_LOCKED_FULL


def _rolled_back(sums: Counter[str], event: RolledBack) -> None:
    sums["rollbacks"] += 1
    sums["anomalies"] += event.cause is RollbackCause.REFUSED
    sums["skipped"] += event.cause is RollbackCause.SKIPPED


def _reset(sums: Counter[str], event: CacheReset) -> None:
    sums["resets"] += 1


_COUNTED: dict[type, Callable[[Counter[str], Any], None]] = {
    Evicted: _evicted,
    SwaTombstoned: _tombstoned,
    SwaRecovered: _recovered,
    RolledBack: _rolled_back,
    CacheReset: _reset,
}
