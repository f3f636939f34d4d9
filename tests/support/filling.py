"""Fills in what a hand-written story leaves open: stamps, epochs, origins, lengths of inserts, counters.

What a story does say stays as it is. Told after docs/events.md; the audit's own sums are not used.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    Cause,
    Checkpoint,
    Event,
    Evicted,
    NodeCreated,
    NodeSplit,
    NodeTouched,
    Origin,
    PagesFreed,
    PrefixInserted,
    RecoveryMode,
    RequestOpened,
    RequestRowChanged,
    RollbackCause,
    RolledBack,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.sinks import TransactionRecord

OPEN = -1
"""Stands for a stamp, an epoch or a length that a story does not care about."""

SOMEBODY = Origin(None, OPEN)
UNCOUNTED = {"": OPEN}

NOTHING_COUNTED = dict.fromkeys(
    (
        "anomalies",
        "evicted_full_tokens",
        "evicted_swa_tokens",
        "recoveries",
        "recoveries_locked",
        "resets",
        "rollbacks",
        "skipped",
        "tombstones",
    ),
    0,
)


def filled(records: Sequence[TransactionRecord]) -> list[TransactionRecord]:
    """The same transactions with nothing left open."""
    return _Filling().all_of(records)


class _Filling:
    def __init__(self) -> None:
        self.page = 1
        self.stamp = 0
        self.epoch = 0
        self.requests: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.origins: dict[int, Origin] = {}
        self.counters: Counter[str] = Counter(NOTHING_COUNTED)

    def all_of(self, records: Sequence[TransactionRecord]) -> list[TransactionRecord]:
        return [replace(record, events=self.transaction(record)) for record in records]

    def transaction(self, record: TransactionRecord) -> list[Event]:
        events: list[Any] = list(record.events)
        inserting: list[int] = []
        for at, event in enumerate(events):
            events[at] = event = self.stamped(event)
            match event:
                case CacheOpened():
                    self.page = event.page_size
                case NodeCreated() | SwaRecovered():
                    inserting.append(at)
                case PagesFreed() if event.cause is Cause.DUPLICATE:
                    inserting.append(at)
                case PrefixInserted():
                    self.insert(events, at, inserting, record.undone)
                    inserting = []
                case RequestOpened() | RequestRowChanged():
                    events[at] = self.of_request(event)
                case NodeSplit():
                    self.origins[event.head] = self.origins.get(event.node, SOMEBODY)
                case Checkpoint() if event.counters == UNCOUNTED:
                    events[at] = replace(event, counters=dict(self.counters))
            self.count(event)
        for at in inserting:
            events[at] = self.with_origin(events[at], Origin(None, self.epoch + 1))
        self.epoch += bool(inserting)
        return events

    def stamped(self, event: Any) -> Any:
        field = "first_stamp" if isinstance(event, NodeTouched) else "stamp"
        if type(event) not in (NodeTouched, NodeCreated, SwaRecovered):
            return event
        if getattr(event, field) == OPEN:
            event = replace(event, **{field: self.stamp + 1})
        count = len(event.nodes) if isinstance(event, NodeTouched) else 1
        self.stamp = max(self.stamp, getattr(event, field) + count - 1)
        return event

    def of_request(self, event: Any) -> Any:
        name, lease = event.request_id, event.lease
        if isinstance(event, RequestOpened) or (name in self.waiting and lease is not None):
            self.epoch += 1
            self.requests[name] = self.epoch
        (self.waiting.add if lease is None else self.waiting.discard)(name)
        return replace(event, epoch=self.requests.get(name, 0)) if event.epoch == OPEN else event

    def insert(self, events: list[Any], at: int, inserting: list[int], undone: bytearray) -> None:
        told = events[at]
        if told.request_id is None:
            self.epoch += bool(inserting)
            origin = Origin(None, self.epoch)
        else:
            origin = Origin(told.request_id, self.requests.get(told.request_id, 0))
        taken = without_swa = 0
        first_new: int | None = None
        for place in inserting:
            event = events[place] = self.with_origin(events[place], origin)
            if first_new is None and isinstance(event, NodeCreated):
                first_new = event.start
            if undone[place]:
                continue
            pages = event.incoming_full if isinstance(event, SwaRecovered) else event.full_pages
            swa = event.swa_pages
            taken += len(pages)
            without_swa += len(pages) if swa is None else int((swa == 0).sum())
        base = told.protected_len if told.protected_len != OPEN else told.length - taken * self.page
        reached = told.length + told.refused if first_new is None else first_new
        given_back = base + without_swa * self.page if without_swa else 0
        events[at] = replace(
            told,
            protected_len=base,
            prefix_len=reached if told.prefix_len == OPEN else told.prefix_len,
            swa_evicted_len=given_back if told.swa_evicted_len == OPEN else told.swa_evicted_len,
        )

    def with_origin(self, event: Any, origin: Origin) -> Any:
        if isinstance(event, PagesFreed):
            return event
        keeps = isinstance(event, SwaRecovered) and event.mode is RecoveryMode.KEEP_LOCKED_FULL
        full = self.origins.get(event.node, origin) if keeps else origin
        changes = {}
        if event.full_origin is SOMEBODY:
            changes["full_origin"] = full
        if event.swa_origin is SOMEBODY:
            changes["swa_origin"] = origin
        event = replace(event, **changes)
        self.origins[event.node] = event.full_origin
        return event

    def count(self, event: Any) -> None:
        match event:
            case Evicted():
                self.counters["evicted_full_tokens"] += event.counted_full
                self.counters["evicted_swa_tokens"] += event.counted_swa
            case SwaTombstoned():
                self.counters["tombstones"] += 1
            case SwaRecovered():
                self.counters["recoveries"] += 1
                self.counters["recoveries_locked"] += event.mode is RecoveryMode.KEEP_LOCKED_FULL
            case RolledBack():
                self.counters["rollbacks"] += 1
                self.counters["anomalies"] += event.cause is RollbackCause.REFUSED
                self.counters["skipped"] += event.cause is RollbackCause.SKIPPED
            case CacheReset():
                self.counters["resets"] += 1
