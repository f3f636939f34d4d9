"""The recorder loses nothing it accepted, waits rather than drops, and says so when it cannot store."""

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from kvledger.core.errors import JournalError
from kvledger.core.events import Evicted, MappingSet
from kvledger.core.sinks import EventSink
from kvledger.journal import Journal, Recorder, submission_queue
from kvledger.journal.durability import RecorderSettings
from kvledger.journal.rows import Submission, WriterCounters
from tests.support.stored_events import allocated, opened, pages, record, short_story, wide_pages
from tests.support.stores import change, rows


class GatedWriter:
    """Stands for the writer of rows: it says when it has been given a batch and waits for its gate."""

    def __init__(self) -> None:
        self.counters = WriterCounters()
        self.durable_seq = 0
        self.given = threading.Event()
        self.gate = threading.Event()
        self.stored: list[str] = []
        self.error: BaseException | None = None
        self.closed = False

    def store(self, batch: Sequence[Submission]) -> None:
        self.given.set()
        self.gate.wait()
        if self.error is not None:
            raise self.error
        self.stored += [item.record.op for item in batch]
        self.durable_seq += sum(len(item.record.events) for item in batch)

    def probe(self) -> None:
        raise JournalError("nobody asks this writer")

    def resync(self) -> int:
        return 0

    def give_up(self, batch: Sequence[Submission]) -> None:
        raise JournalError("this writer gives nothing up")

    def store_gap(self, time_us: int) -> None:
        raise JournalError("this writer has no gaps")

    def close(self) -> None:
        self.closed = True


def gated(*, durability: Any = "background", queue_limit: int = 100) -> tuple[GatedWriter, Recorder]:
    writer = GatedWriter()
    settings = RecorderSettings(durability=durability, queue_limit=queue_limit)
    return writer, Recorder(writer, settings, journal_id=1)


def one(op: str, events: int = 1) -> Any:
    return record(*[Evicted(0, 0, 0, 0)] * events, op=op)


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


def test_a_recorder_is_an_event_sink(journal: Journal) -> None:
    with journal.record() as made:
        sink: EventSink = made
        sink.append(record(opened()))
    assert made.durable_seq == 1


def test_a_full_queue_makes_append_wait_and_loses_nothing() -> None:
    writer, made = gated(queue_limit=2)
    made.append(one("a"))
    writer.given.wait()
    made.append(one("b"))
    assert (made.queued_events, made.stalls) == (2, 0)

    third = threading.Thread(target=made.append, args=(one("c"),))
    third.start()
    while not made.stalls:
        assert third.is_alive()
        third.join(0.001)
    assert (made.queued_events, made.last_seq) == (2, 2)

    writer.gate.set()
    third.join()
    made.close()
    assert writer.stored == ["a", "b", "c"]
    assert (made.durable_seq, made.queued_events, made.stalls) == (3, 0, 1)


def test_a_transaction_longer_than_the_queue_is_taken_when_the_queue_is_empty() -> None:
    writer, made = gated(queue_limit=2)
    writer.gate.set()
    with made:
        made.append(one("long", events=5))
        made.append(one("longer", events=7))
    assert writer.stored == ["long", "longer"]


def test_durable_seq_follows_the_disk_and_last_seq_the_queue() -> None:
    writer, made = gated()
    made.append(one("a", events=3))
    writer.given.wait()
    assert (made.last_seq, made.durable_seq) == (3, 0)
    writer.gate.set()
    made.flush()
    assert (made.last_seq, made.durable_seq) == (3, 3)
    made.close()


def test_with_durability_commit_a_transaction_is_on_disk_when_append_returns(
    journal: Journal, store: str
) -> None:
    with journal.record(durability="commit") as made:
        for count, transaction in enumerate(short_story(), start=1):
            made.append(transaction)
            assert rows(store, "SELECT count(*) FROM transactions") == [(count,)]
            assert made.durable_seq == made.last_seq


@pytest.mark.parametrize("durability", ["step", "background"])
def test_after_flush_everything_appended_is_on_disk(journal: Journal, store: str, durability: Any) -> None:
    with journal.record(durability=durability) as made:
        for transaction in short_story():
            made.append(transaction)
        made.flush()
        assert rows(store, "SELECT count(*), max(seq) FROM events") == [(8, 8)]
        assert made.durable_seq == 8


def test_close_drains_the_queue_and_can_be_repeated() -> None:
    writer, made = gated()
    made.append(one("a"))
    made.append(one("b"))
    writer.gate.set()
    made.close()
    made.close()
    assert writer.stored == ["a", "b"]
    assert writer.closed


def test_a_closed_recorder_takes_nothing(journal: Journal) -> None:
    with journal.record() as made:
        pass
    with pytest.raises(JournalError, match="closed"):
        made.append(one("a"))
    assert made.last_seq == 0


@pytest.mark.parametrize("error", [JournalError("the disk is full"), RuntimeError("the disk is full")])
def test_what_the_writer_could_not_do_is_raised_by_append_flush_and_close(error: Exception) -> None:
    writer, made = gated()
    writer.error = error
    writer.gate.set()
    made.append(one("a"))
    for call in (made.flush, made.flush, lambda: made.append(one("b")), made.close):
        with pytest.raises(JournalError, match="the disk is full"):
            call()
    made.close()
    assert made.durable_seq == 0
    assert made.last_seq == 1


def test_a_writer_that_fails_wakes_an_append_that_waits_for_room() -> None:
    writer, made = gated(queue_limit=1)
    made.append(one("a"))
    writer.given.wait()
    raised: list[BaseException] = []

    def append() -> None:
        try:
            made.append(one("b"))
        except JournalError as error:
            raised.append(error)

    second = threading.Thread(target=append)
    second.start()
    while not made.stalls:
        second.join(0.001)
    writer.error = JournalError("the disk is full")
    writer.gate.set()
    second.join()
    assert len(raised) == 1
    with pytest.raises(JournalError):
        made.close()


def test_with_durability_commit_append_raises_when_its_own_transaction_cannot_be_stored() -> None:
    writer, made = gated(durability="commit")
    writer.error = JournalError("the disk is full")
    writer.gate.set()
    with pytest.raises(JournalError, match="the disk is full"):
        made.append(one("a"))
    with pytest.raises(JournalError):
        made.close()


REFUSE_SEQ_4 = {
    "sqlite": [
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.seq = 4 "
        "BEGIN SELECT RAISE(ABORT, 'no room'); END",
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql "
        "AS $$ BEGIN RAISE EXCEPTION 'no room'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON events "
        "FOR EACH ROW WHEN (NEW.seq = 4) EXECUTE FUNCTION refuse()",
    ],
}


def test_a_database_that_refuses_leaves_no_part_of_a_transaction(journal: Journal, store: str) -> None:
    made = journal.record()
    made.append(record(opened()))
    made.flush()
    change(store, *REFUSE_SEQ_4[store.partition(":")[0].partition("+")[0]])
    made.append(one("a", events=4))
    with pytest.raises(JournalError, match="no room"):
        made.flush()
    with pytest.raises(JournalError):
        made.close()
    assert made.durable_seq == 1
    assert rows(store, "SELECT max(number), (SELECT max(seq) FROM events) FROM transactions") == [(1, 1)]
    assert list(journal.verify()) == []


def test_what_was_accepted_before_an_event_that_cannot_be_stored_is_stored(journal: Journal) -> None:
    made = journal.record()
    bad = record(Evicted(0, 0, 0, 0), MappingSet(wide_pages([2**40]), pages([1])), op="bad")
    for transaction in (record(opened()), one("good"), bad, one("late")):
        made.append(transaction)
    with pytest.raises(JournalError, match="int32"):
        made.flush()
    with pytest.raises(JournalError):
        made.close()
    assert made.durable_seq == 2
    assert [stored.op for stored in journal.reader().transactions()] == ["op", "good"]


def test_a_transaction_without_one_mark_per_event_is_not_stored(journal: Journal) -> None:
    made = journal.record()
    wrong = one("a", events=2)
    wrong.undone = bytearray(1)
    made.append(wrong)
    with pytest.raises(JournalError, match="marks"):
        made.close()


def test_any_reason_can_be_stored(journal: Journal) -> None:
    with journal.record() as made:
        made.append(record(op="a\0", reason="half a pair: \ud800, a zero: \0"))
    (stored,) = journal.reader().transactions()
    assert (stored.op, stored.reason) == ("a\\x00", "half a pair: \\ud800, a zero: \\x00")


def test_an_interrupted_append_that_the_writer_has_not_seen_is_withdrawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer, made = gated(durability="commit")
    writer.gate.set()

    def interrupt() -> None:
        raise KeyboardInterrupt

    # The lock is held from the queue to the wait, so the writer cannot have seen the transaction.
    with monkeypatch.context() as patch:
        patch.setattr(made._queue, "_wait_at_a_gate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.append(one("a"))
    assert (made.last_seq, made.queued_events) == (0, 0)
    made.append(one("b"))
    made.close()
    assert writer.stored == ["b"]


def test_an_interrupted_append_that_is_being_stored_ends_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer, made = gated(durability="commit")
    wait = made._queue._progress.wait

    def interrupt() -> None:
        while not writer.given.is_set():
            wait(0.001)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(made._queue, "_wait_at_a_gate", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.append(one("a"))
    writer.gate.set()
    with pytest.raises(JournalError, match="interrupted"):
        made.append(one("b"))
    with pytest.raises(JournalError, match="interrupted"):
        made.close()


@pytest.mark.parametrize("seen", [False, True], ids=["waiting", "with the writer"])
@pytest.mark.parametrize("durability", ["background", "step"])
def test_an_append_that_is_interrupted_once_it_was_taken_is_not_stored_or_ends_the_recording(
    durability: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, made = gated(durability=durability)
    queue, put = made._queue, made._queue.put

    def interrupted(*args: Any, **named: Any) -> None:
        put(*args, **named)
        while seen and not writer.given.is_set():
            queue._wanted = queue.accepted
            queue._work.notify()
            queue._progress.wait(0.001)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(queue, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.append(one("a"))
    writer.gate.set()
    if seen:
        with pytest.raises(JournalError, match="interrupted"):
            made.append(one("b"))
        with pytest.raises(JournalError, match="interrupted"):
            made.close()
    else:
        assert (made.last_seq, made.queued_events) == (0, 0)
        made.append(one("b"))
        made.close()
        assert writer.stored == ["b"]


def test_transactions_are_stored_in_batches_and_none_is_divided(
    journal: Journal, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission_queue, "BATCH_EVENTS", 4)
    with journal.record(durability="background") as made:
        for events in (3, 2, 9, 1, 1, 0, 1, 1):
            made.append(one("a", events=events))
    assert made.counters.transactions == 8
    assert made.counters.events == 18
    assert made.counters.batches >= 4
    assert rows(store, "SELECT count(*), max(seq) FROM events") == [(18, 18)]


def test_the_counters_tell_what_was_stored(journal: Journal, store: str) -> None:
    with journal.record() as made:
        for transaction in short_story():
            made.append(transaction)
    (stored,) = rows(
        store, "SELECT count(*), CAST(sum(length(payload) + length(blob)) AS BIGINT) AS bytes FROM events"
    )
    assert (made.counters.events, made.counters.bytes) == stored
    assert made.counters.transactions == 6
    assert made.counters.cpu_seconds > 0


def test_two_recorders_in_one_store_keep_their_journals_apart(journal: Journal) -> None:
    with journal.record(name="a") as first, journal.record(name="b") as second:
        for number in range(1, 40):
            first.append(record(allocated("a", number)))
            second.append(record(allocated("b", number)))
    for name in ("a", "b"):
        read = journal.reader(name)
        assert [one.first_seq for one in read.transactions()] == list(range(1, 40))
        assert {event.event.owner for event in read.events()} == {name}  # type: ignore[union-attr]
        assert list(journal.verify(name)) == []


SCRIPT = """
import os, signal, sys, warnings
from kvledger.core.errors import JournalError
from kvledger.core.events import Evicted
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal

warnings.simplefilter("ignore")
recorder = Journal.open(sys.argv[1]).record(durability=sys.argv[2])

def append():
    recorder.append(TransactionRecord("op", None, [Evicted(0, 0, 0, 0)], bytearray(1)))

"""


def run(store: str, durability: str, body: str) -> int:
    """Run a program of its own that records; its exit status."""
    return subprocess.run([sys.executable, "-c", SCRIPT + body, store, durability], check=False).returncode


def test_a_program_that_ends_without_closing_loses_nothing(store: str) -> None:
    assert run(store, "background", "for _ in range(500): append()") == 0
    assert rows(store, "SELECT count(*), max(seq) FROM events") == [(500, 500)]


@pytest.mark.parametrize(("durability", "flush"), [("commit", ""), ("step", "recorder.flush()")])
def test_a_killed_program_loses_nothing_that_was_durable(store: str, durability: str, flush: str) -> None:
    body = f"for _ in range(20): append()\n{flush}\nos.kill(os.getpid(), signal.SIGKILL)"
    assert run(store, durability, body) == -9
    with Journal.open(store, create=False) as journal:
        assert journal.reader().head().seq == 20
        assert list(journal.verify()) == []


def test_a_recorder_carried_through_a_fork_refuses_and_the_parent_goes_on(store: str) -> None:
    body = """
append()
child = os.fork()
if child == 0:
    for call in (append, recorder.flush):
        try:
            call()
        except JournalError as error:
            if "fork" not in str(error):
                os._exit(3)
        else:
            os._exit(4)
    recorder.close()
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
append()
recorder.close()
sys.exit(status)
"""
    assert run(store, "step", body) == 0
    assert rows(store, "SELECT count(*) FROM events") == [(2,)]
