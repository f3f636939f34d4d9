"""The live bus hands on what was stored under the numbers it was stored under, and never holds anybody up."""

import pytest

from kvledger.api.projection import LiveBus
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.records import StoredTransaction
from kvledger.journal.rows import Submission
from tests.support.recorded_run import small_run


def facts(transaction: StoredTransaction) -> tuple[object, ...]:
    return (
        transaction.number,
        transaction.op,
        transaction.request_id,
        transaction.rolled_back,
        transaction.reason,
        transaction.time_us,
        transaction.duration_us,
        transaction.first_seq,
        [(event.seq, event.undone, event.event.kind) for event in transaction.events],
    )


@pytest.mark.parametrize("how", [{}, {"tokens": "hash", "key": b"k" * 16}, {"tokens": "none"}])
def test_what_it_hands_on_is_what_the_store_holds(store: str, how: dict[str, object]) -> None:
    bus = LiveBus()
    with Journal.open(store) as journal:
        with journal.record(**how) as recorder:  # type: ignore[arg-type]
            recorder.subscribe(bus)
            for count, record in enumerate(small_run(20)):
                recorder.begin_transaction()
                recorder.append(record)
                if count % 7 == 0:
                    recorder.flush()
        taken, lost = bus.take()
        stored = list(journal.reader().transactions())
    assert not lost
    assert [facts(one) for one in taken] == [facts(one) for one in stored]
    for one, other in zip(taken, stored, strict=True):
        for ours, theirs in zip(one.events, other.events, strict=True):
            assert getattr(ours.event, "tokens", None) == getattr(theirs.event, "tokens", None)
            assert getattr(ours.event, "namespace", None) == getattr(theirs.event, "namespace", None)


def batch(events: int) -> list[Submission]:
    record = TransactionRecord("op", None, list(small_run(5)[0].events) * events, bytearray(events))
    return [Submission(record, 0)]


def test_a_full_bus_is_emptied_and_says_so_once() -> None:
    bus = LiveBus(limit=3)
    bus.stored(batch(2), number=1, seq=2, link=b"")
    bus.stored(batch(2), number=2, seq=4, link=b"")
    assert bus.take() == ([], True)
    bus.stored(batch(1), number=3, seq=5, link=b"")
    taken, lost = bus.take()
    assert ([one.number for one in taken], [one.first_seq for one in taken], lost) == ([3], [5], False)


class Failing:
    """A subscriber with a fault."""

    def __init__(self) -> None:
        self.heard = 0

    def stored(self, batch: object, *, number: int, seq: int, link: bytes) -> None:
        self.heard += 1
        raise ZeroDivisionError

    def dropped(self, batch: object) -> None:
        raise ZeroDivisionError


def test_a_subscriber_that_fails_is_left_out_and_recording_goes_on(store: str) -> None:
    failing, bus = Failing(), LiveBus()
    with Journal.open(store) as journal:
        with journal.record(checkpoint_every=50) as recorder:
            recorder.subscribe(failing)
            recorder.subscribe(bus)
            for record in small_run(20):
                recorder.append(record)
                recorder.flush()
        assert failing.heard == 1
        assert [one.number for one in bus.take()[0]] == list(range(1, len(small_run(20)) + 1))
        assert recorder.keeper is not None
        assert recorder.keeper.problem is None
        assert journal.reader().checkpoint_seqs()


def test_who_unsubscribed_hears_nothing_more(store: str) -> None:
    bus = LiveBus()
    with Journal.open(store) as journal, journal.record() as recorder:
        recorder.subscribe(bus)
        recorder.append(small_run(5)[0])
        recorder.flush()
        recorder.unsubscribe(bus)
        recorder.unsubscribe(bus)
        recorder.append(small_run(5)[1])
        recorder.flush()
        assert [one.number for one in bus.take()[0]] == [1]
