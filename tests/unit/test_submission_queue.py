"""When the writer is woken, and who is let go when it has stored something."""

import threading

import pytest

from kvledger.core.errors import JournalError
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.rows import Submission
from kvledger.journal.submission_queue import SubmissionQueue


def put(queue: SubmissionQueue, events: int = 1) -> TransactionRecord:
    record = TransactionRecord("a", None, [], bytearray(events))
    with queue.lock:
        queue.put(Submission(record, 0), count=events)
    return record


def wakings(queue: SubmissionQueue, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events waited each time that a sleeping writer was woken."""
    woken: list[int] = []
    monkeypatch.setattr(queue, "_writer_sleeps", True)
    monkeypatch.setattr(queue._work, "notify", lambda: woken.append(queue.events))
    return woken


def test_a_put_wakes_the_writer_only_for_as_much_as_it_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = SubmissionQueue(100, worth_waking=4)
    woken = wakings(queue, monkeypatch)
    put(queue)
    put(queue, events=2)
    assert woken == []
    put(queue)
    assert woken == [4]


def test_by_itself_any_put_wakes_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = SubmissionQueue(100)
    woken = wakings(queue, monkeypatch)
    put(queue)
    assert woken == [1]


def test_what_nobody_is_woken_for_is_taken_before_long(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = SubmissionQueue(100, worth_waking=4)
    waited: list[float | None] = []

    def pass_time(timeout: float | None = None) -> bool:
        waited.append(timeout)
        queue.put(Submission(TransactionRecord("a", None, [], bytearray(1)), 0), count=1)
        return False

    monkeypatch.setattr(queue._work, "wait", pass_time)
    batch = queue.take()
    assert batch is not None
    assert len(batch) >= 1
    assert waited[0] is not None


@pytest.mark.parametrize("end", ["settled", "failed", "away"])
def test_whoever_waits_for_the_disk_is_let_go_when_it_is_settled_or_over(end: str) -> None:
    queue = SubmissionQueue(100)
    put(queue)
    reached = threading.Event()
    passed: list[str] = []

    def wait() -> None:
        with queue.lock:
            reached.set()
            try:
                queue.wait_for_all()
                passed.append("passed")
            except Exception as error:
                passed.append(type(error).__name__)

    waiter = threading.Thread(target=wait)
    waiter.start()
    reached.wait()
    if end == "settled":
        batch = queue.take()
        assert batch is not None
        queue.settle(batch, durable_seq=1)
    elif end == "failed":
        queue.fail(JournalError("the disk is gone"), durable_seq=0)
    else:
        with queue.lock:
            queue.store_went_away()
    waiter.join()
    assert passed == ["JournalError" if end == "failed" else "passed"]


def test_whoever_waits_for_an_append_that_is_withdrawn_is_let_go() -> None:
    queue = SubmissionQueue(100)
    waits = threading.Event()
    waiter = threading.Thread(target=lambda: held(queue, waits))
    transaction = put(queue)
    waiter.start()
    waits.wait()
    with queue.lock:
        queue.withdraw(transaction, count=1)
    waiter.join()
    assert (queue.accepted, queue.events) == (0, 0)


def held(queue: SubmissionQueue, waits: threading.Event) -> None:
    """Wait for all that was accepted; `waits` is set once the lock is taken for it."""
    with queue.lock:
        waits.set()
        queue.wait_for_all()
