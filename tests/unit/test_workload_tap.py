"""The tap between cache and recorder: passes everything on, remembers recoveries that really happened."""

import numpy as np
import pytest

from kvledger.core.errors import JournalError
from kvledger.core.events import CacheReset, Event, Origin, RecoveryMode, SwaRecovered
from kvledger.core.ids import NodeId, RequestId
from kvledger.core.sinks import MemorySink, TransactionRecord
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink


def recovery(*, node_full: list[int], incoming: list[int]) -> SwaRecovered:
    origin = Origin(RequestId("r"), 1)
    pages = np.array(incoming, dtype=np.int32)
    return SwaRecovered(
        NodeId(1),
        RecoveryMode.KEEP_LOCKED_FULL,
        np.array(node_full, dtype=np.int32),
        pages,
        pages,
        1,
        origin,
        origin,
    )


def transaction(*events: Event, undone: bytes | None = None) -> TransactionRecord:
    marks = bytearray(len(events)) if undone is None else bytearray(undone)
    return TransactionRecord("commit", RequestId("r"), list(events), marks)


class RefusingSink:
    def append(self, transaction: TransactionRecord) -> None:
        raise JournalError("full")


def test_transactions_are_passed_on_unchanged_and_counted() -> None:
    inner = MemorySink()
    tap = TapSink(inner, Meter())
    record = transaction(CacheReset(1), CacheReset(2), undone=b"\1\0")
    tap.append(record)
    assert inner.transactions == [record]
    assert (tap.transactions, tap.events) == (1, 2)
    assert tap.take_recovered() is None


def test_pages_of_a_recovery_are_told_once_both_old_and_incoming() -> None:
    tap = TapSink(None, Meter())
    tap.append(transaction(recovery(node_full=[4, 5], incoming=[8, 9])))
    tap.append(transaction(recovery(node_full=[6], incoming=[7])))
    pages = tap.take_recovered()
    assert pages is not None
    assert sorted(pages.tolist()) == [4, 5, 6, 7, 8, 9]
    assert tap.take_recovered() is None


def test_a_recovery_that_was_undone_or_refused_never_happened() -> None:
    tap = TapSink(None, Meter())
    tap.append(transaction(recovery(node_full=[4], incoming=[8]), undone=b"\1"))
    assert tap.take_recovered() is None
    refusing = TapSink(RefusingSink(), Meter())
    with pytest.raises(JournalError):
        refusing.append(transaction(recovery(node_full=[4], incoming=[8])))
    assert refusing.take_recovered() is None
    assert (refusing.transactions, refusing.events) == (0, 0)


def test_a_sinks_time_is_the_journals_and_not_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 100, 400, 1_000])
    monkeypatch.setattr("time.thread_time_ns", lambda: next(ticks))
    meter = Meter()
    tap = TapSink(MemorySink(), meter)
    with meter:
        tap.append(transaction(CacheReset(1)))
    assert meter.journal_seconds == 300 / 1e9
    assert meter.cache_seconds == 700 / 1e9


def test_a_beginning_is_passed_on_to_a_sink_that_wants_to_hear_of_it() -> None:
    class Listener(MemorySink):
        begun = 0

        def begin_transaction(self) -> None:
            self.begun += 1

    inner = Listener()
    for sink in (TapSink(inner, Meter()), TapSink(MemorySink(), Meter()), TapSink(None, Meter())):
        sink.begin_transaction()
    assert inner.begun == 1
