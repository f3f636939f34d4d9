"""Journals written by hand, event by event, from docs/events.md: no cache had a part in them.

The functions build single events with the fields that a story does not care about filled in; `Story`
puts them into transactions, and `filling` fills in the rest; `edited`, `without` and `with_event_before` are
how a test breaks a healthy journal. Sizes are those of `opened`: pages of 4 tokens, a window of 4, 16 Full
and 8 SWA pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    Cause,
    Checkpoint,
    Event,
    Evicted,
    FingerprintReason,
    KvFingerprinted,
    LockAcquired,
    LockReleased,
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    NodeTouched,
    Pages,
    PagesAllocated,
    PagesFreed,
    Pool,
    PrefixInserted,
    PrefixMatched,
    RecoveryMode,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    RollbackCause,
    RolledBack,
    SwaLockReleased,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.audit import Finding, Verdict
from kvledger.journal.records import StoredTransaction, number_transactions
from tests.support.filling import OPEN, SOMEBODY, UNCOUNTED, filled

PAGE = 4
WINDOW = 4
Journal = list[StoredTransaction]


def pages(*numbers: int) -> Pages:
    array = np.array(numbers, np.int32)
    array.setflags(write=False)
    return array


def token_bytes(first: int, count: int) -> bytes:
    return np.arange(first, first + count, dtype="<i4").tobytes()


def request_id(name: str | None) -> RequestId | None:
    return None if name is None else RequestId(name)


def opened(
    *,
    page_size: int = PAGE,
    window: int = WINDOW,
    full: int = 16,
    swa: int = 8,
    recovery: str = "remap",
    config: dict[str, Any] | None = None,
) -> CacheOpened:
    return CacheOpened(page_size, window, full, swa, recovery, config or {})


def fingerprinted(
    node: int,
    reason: FingerprintReason,
    full: Pages,
    *,
    sums: Sequence[int],
    swa: Sequence[int] | None = None,
) -> KvFingerprinted:
    return KvFingerprinted(
        NodeId(node),
        reason,
        full,
        np.array(sums, np.uint64),
        None if swa is None else np.array(swa, np.uint64),
    )


def allocated(
    full: Pages, swa: Pages | None = None, *, owner: str | None = None, row_start: int | None = None
) -> PagesAllocated:
    return PagesAllocated(request_id(owner), full, full if swa is None else swa, row_start)


def freed(
    full: Pages,
    swa: Pages,
    *,
    owner: str | None = None,
    pool: Pool = Pool.BOTH,
    cause: Cause = Cause.CALLER,
) -> PagesFreed:
    return PagesFreed(request_id(owner), pool, cause, full, swa)


def created(
    node: int,
    full: Pages,
    swa: Pages | None,
    *,
    parent: int | None = None,
    start: int = 0,
    stamp: int = OPEN,
    namespace: str = "",
    first_token: int | None = None,
) -> NodeCreated:
    count = len(full) * PAGE
    first = start if first_token is None else first_token
    return NodeCreated(
        NodeId(node),
        None if parent is None else NodeId(parent),
        namespace,
        start,
        token_bytes(first, count),
        full,
        swa,
        stamp,
        SOMEBODY,
        None if swa is None else SOMEBODY,
    )


def inserted(
    length: int,
    *,
    full: Sequence[tuple[int, int]] = (),
    swa: Sequence[tuple[int, int]] = (),
    duplicates: int = 0,
    refused: int = 0,
    request: str | None = None,
    namespace: str = "",
) -> PrefixInserted:
    return PrefixInserted(
        namespace,
        request_id(request),
        length,
        refused,
        OPEN,
        OPEN,
        OPEN,
        tuple(full),
        tuple(swa),
        duplicates,
    )


def matched(
    length: int, node: int | None = None, *, request: str | None = None, namespace: str = ""
) -> PrefixMatched:
    return PrefixMatched(
        namespace, request_id(request), length, length, None if node is None else NodeId(node)
    )


def locked(
    lease: int, node: int | None, length: int, *, request: str | None = None, namespace: str = ""
) -> LockAcquired:
    return LockAcquired(
        LeaseId(lease),
        None if node is None else NodeId(node),
        namespace,
        request_id(request),
        length,
        max(0, length - WINDOW),
        0,
    )


def acquired(
    lease: int,
    node: int | None,
    length: int,
    *,
    window: Sequence[int] = (),
    request: str | None = None,
    namespace: str = "",
) -> tuple[Event, ...]:
    """Match, touch and lock; `window` names the nodes of the SWA lock where that is more than `node`."""
    match = matched(length, node, request=request, namespace=namespace)
    lock = locked(lease, node, length, request=request, namespace=namespace)
    if node is None:
        return match, lock
    return match, touched(*(window or (node,))), lock


def unlocked(
    lease: int,
    node: int | None,
    *,
    request: str | None = None,
    swa_held: bool = True,
    by_reset: bool = False,
) -> LockReleased:
    return LockReleased(
        LeaseId(lease), None if node is None else NodeId(node), request_id(request), swa_held, by_reset
    )


def swa_unlocked(lease: int, node: int, *, request: str | None = None) -> SwaLockReleased:
    return SwaLockReleased(LeaseId(lease), NodeId(node), request_id(request))


def split(node: int, head: int, at: int) -> NodeSplit:
    return NodeSplit(NodeId(node), NodeId(head), at, b"")


def deleted(
    node: int,
    full: Pages,
    swa: Pages | None,
    *,
    parent: int | None = None,
    cause: Cause = Cause.CAPACITY,
    parent_stamp: int | None = None,
) -> NodeDeleted:
    return NodeDeleted(
        NodeId(node), None if parent is None else NodeId(parent), cause, full, swa, parent_stamp
    )


def tombstoned(node: int, full: Pages, swa: Pages) -> SwaTombstoned:
    return SwaTombstoned(NodeId(node), Cause.CAPACITY, full, swa)


def recovered(
    node: int, *, mode: RecoveryMode, node_full: Pages, incoming: Pages, swa: Pages, stamp: int = OPEN
) -> SwaRecovered:
    return SwaRecovered(NodeId(node), mode, node_full, incoming, swa, stamp, SOMEBODY, SOMEBODY)


def evicted(full: int, swa: int) -> Evicted:
    return Evicted(full, swa, full, swa)


def touched(*nodes: int, first_stamp: int = OPEN) -> NodeTouched:
    return NodeTouched(tuple(NodeId(node) for node in nodes), first_stamp)


def request_opened(name: str, lease: int, row: Pages, *, namespace: str = "") -> RequestOpened:
    return RequestOpened(RequestId(name), namespace, OPEN, LeaseId(lease), row)


def row_changed(
    name: str, lease: int | None, row: Pages, *, first_page: int = 0, row_pages: int | None = None
) -> RequestRowChanged:
    length = first_page + len(row) if row_pages is None else row_pages
    return RequestRowChanged(
        RequestId(name), OPEN, None if lease is None else LeaseId(lease), first_page, row, length
    )


def closed(name: str, *, reason: Cause = Cause.FINISH) -> RequestClosed:
    return RequestClosed(RequestId(name), reason)


def rolled_back(
    first: int, end: int, *, cause: RollbackCause = RollbackCause.CALLER, request: str | None = None
) -> RolledBack:
    return RolledBack(first, end, cause, "for the test", request_id(request))


def reset(generation: int) -> CacheReset:
    return CacheReset(generation)


def checkpoint(digest: str, counters: dict[str, int] | None = None) -> Checkpoint:
    return Checkpoint(digest, dict(UNCOUNTED) if counters is None else counters)


class Story:
    """Transactions in the order they are told."""

    def __init__(self, opening: CacheOpened | None = None) -> None:
        self._records: list[TransactionRecord] = []
        self.then("open", opened() if opening is None else opening)

    def then(
        self,
        op: str,
        *events: Event,
        undone: Sequence[int] = (),
        request: str | None = None,
        rolled_back: bool = False,
    ) -> "Story":
        marks = bytearray(len(events))
        for ordinal in undone:
            marks[ordinal] = 1
        reason = "for the test" if rolled_back else ""
        self._records.append(
            TransactionRecord(op, request_id(request), list(events), marks, rolled_back, reason)
        )
        return self

    def journal(self) -> Journal:
        return number_transactions(filled(self._records))


def events_of(journal: Journal, number: int) -> list[Event]:
    """The events of one transaction, to be told again."""
    return [stored.event for stored in journal[number - 1].events]


def seq_of(journal: Journal, kind: type, *, nth: int = 0) -> int:
    """Seq of the `nth` live event of a type."""
    found = [e.seq for t in journal for e in t.events if isinstance(e.event, kind) and not e.undone]
    return found[nth]


def edited(journal: Journal, seq: int, **changes: Any) -> Journal:
    """The journal with fields of the event at `seq` replaced."""
    return _rewritten(journal, seq, lambda event: [replace(event, **changes)])


def without(journal: Journal, seq: int) -> Journal:
    """The journal as if the event at `seq` had never been; what follows moves up."""
    return _rewritten(journal, seq, lambda event: [])


def with_event_before(journal: Journal, seq: int, new: Event) -> Journal:
    """The journal with a live event put before the one at `seq`, in its transaction."""
    records = [_record(transaction) for transaction in _rewritten(journal, seq, lambda event: [new, event])]
    return number_transactions(filled(records))


def with_transaction_after(journal: Journal, number: int, op: str, *events: Event) -> Journal:
    """The journal with a transaction put after transaction `number`."""
    records = [_record(transaction) for transaction in journal]
    records.insert(number, TransactionRecord(op, None, list(events), bytearray(len(events))))
    return number_transactions(filled(records))


def _record(transaction: StoredTransaction) -> TransactionRecord:
    return TransactionRecord(
        transaction.op,
        transaction.request_id,
        [stored.event for stored in transaction.events],
        bytearray(stored.undone for stored in transaction.events),
        transaction.rolled_back,
        transaction.reason,
    )


def _rewritten(journal: Journal, seq: int, rewrite: Callable[[Any], list[Event]]) -> Journal:
    records = []
    for transaction in journal:
        record = _record(transaction)
        for ordinal, stored in enumerate(transaction.events):
            if stored.seq == seq:
                new = rewrite(stored.event)
                record.events[ordinal : ordinal + 1] = new
                record.undone[ordinal : ordinal + 1] = bytes([stored.undone]) * len(new)
        records.append(record)
    return number_transactions(records)


def broken(verdict: Verdict) -> set[str]:
    """Ids of the invariants that failed."""
    return {report.id for report in verdict.invariants if report.status == "failed"}


def first_of(verdict: Verdict, invariant: str) -> Finding:
    """The first finding of one invariant; a test that calls this expects one."""
    found = [finding for finding in verdict.findings if finding.invariant == invariant]
    assert found, f"nothing was found against {invariant}; found were {sorted(broken(verdict))}"
    return found[0]


def of(verdict: Verdict, invariant: str) -> list[Finding]:
    """The findings of one invariant."""
    return [finding for finding in verdict.findings if finding.invariant == invariant]
