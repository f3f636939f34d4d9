"""The process that writes a journal, its store or its scheduler fails: what is stored is whole, and told."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvledger.core import COMPILED, CacheConfig, HybridCache
from kvledger.core.errors import JournalError
from kvledger.core.events import EventsDropped, NodeTouched, PagesAllocated
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal, number_transactions
from kvledger.journal.apart import ApartRecorder, writer
from kvledger.journal.apart import recorder as recorder_module
from kvledger.journal.apart.board import (
    ASLEEP,
    CLOSED,
    FAILED,
    FLUSHED,
    PHASE,
    RECORDING,
    RING_BYTES,
    WORDS,
    Board,
)
from kvledger.journal.apart.flat import add
from kvledger.journal.apart.frames import BATCH, FLUSH, NUMBER, frame, new_batch, unpack
from kvledger.journal.apart.plans import HEADER, Piece
from kvledger.journal.apart.process import WritingProcess
from kvledger.journal.apart.ring import COUNTERS, PUBLISHED, READ, RingWriter
from kvledger.journal.audit import audit
from kvledger.journal.recorder import STEP_EVENTS
from kvledger.journal.replay import replay
from tests.support.calls_when_pickled import Calls
from tests.support.stored_events import allocated, opened, pages, record
from tests.support.stores import change

PAGE = 4
CONFIG = CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=256, swa_tokens=256)
DEADLINE_SECONDS = 60
"""How long a test waits for another process before it fails; nothing is measured against it."""

BULKY = "load " * (RING_BYTES // 4)
"""Words so long that no ring takes them at once."""


def until(done: Callable[[], bool], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Look again and again, a thousandth of a second apart."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not done():
        assert time.monotonic() < deadline, "it never came"
        meanwhile()
        time.sleep(0.001)


def kill(made: ApartRecorder) -> None:
    os.kill(made.pid, signal.SIGKILL)
    # It is left to the recorder to hear how it ended.
    os.waitid(os.P_PID, made.pid, os.WEXITED | os.WNOWAIT)


def full(made: ApartRecorder) -> bool:
    """Whether the ring has no room for another byte."""
    return made._process._board.counters[PUBLISHED] - made._process._board.counters[READ] == RING_BYTES


def use(cache: HybridCache, times: int = 1) -> None:
    """Allocate and free a page: two transactions of one event each."""
    for _ in range(times):
        cache.free(cache.alloc(PAGE))


def refused(cache: HybridCache, made: ApartRecorder, *, said: str) -> None:
    """Whatever is asked of a recorder that has failed is refused, and the cache stays as it is."""
    digest, last = cache.digest(), made.last_seq
    told = rf"after seq {made.durable_seq} .*{said}"
    for call in (lambda: cache.alloc(PAGE), made.flush, made.wait_until_stored, lambda: use(cache)):
        with pytest.raises(JournalError, match=told):
            call()
    assert (cache.digest(), made.last_seq) == (digest, last)
    cache.check()


def closed_once(made: ApartRecorder, *, said: str) -> None:
    """Its close tells of the failure, and no second one does."""
    with pytest.raises(JournalError, match=said):
        made.close()
    made.close()
    assert made._process._process.returncode is not None
    with pytest.raises(JournalError, match="closed"):
        made.flush()


def sound_end(journal: Journal) -> int:
    """The seq at which the newest journal ends, in which nothing is wrong."""
    reader = journal.reader()
    assert list(journal.verify()) == []
    assert audit(reader, chain=journal.verify()).verdict == "pass"
    return int(reader.head().seq)


def stored_digest(journal: Journal) -> str:
    return replay(journal.reader()).state.digest()


def test_signals_for_the_scheduler_do_not_end_the_process_and_one_that_was_killed_is_told(
    tmp_path: Path,
) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        # What a terminal sends to a group or a session does not reach another one.
        assert os.getsid(made.pid) == os.getpgid(made.pid) == made.pid != os.getsid(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(made.pid, number)
        use(cache, 3)
        made.wait_until_stored()
        stored = cache.digest()
        assert made.durable_seq == 7

        kill(made)
        made.flush()  # Nothing waits, and nothing is lost.
        cache.alloc(PAGE)
        with pytest.raises(JournalError, match=r"after seq 7 .*ended with signal 9"):
            made.flush()
        refused(cache, made, said="ended with signal 9")
        closed_once(made, said=r"after seq 7 .*ended with signal 9")
        assert made.durable_seq == 7 < made.last_seq
        assert sound_end(journal) == 7
        assert stored_digest(journal) == stored


def test_a_step_that_nobody_flushes_finds_out_by_itself(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        made.wait_until_stored()
        kill(made)
        with pytest.raises(JournalError, match=r"after seq 1 .*ended with signal 9"):
            use(cache, STEP_EVENTS)
        assert made.last_seq == 1 + STEP_EVENTS
        refused(cache, made, said="ended with signal 9")
        closed_once(made, said="ended with signal 9")
        assert sound_end(journal) == 1


def test_a_full_ring_makes_flush_wait_and_loses_nothing_and_one_that_nobody_reads_any_more_ends_it(
    tmp_path: Path,
) -> None:
    raised: list[BaseException] = []

    def flush(made: ApartRecorder) -> None:
        try:
            made.flush()
        except JournalError as error:
            raised.append(error)

    def blocked(made: ApartRecorder) -> threading.Thread:
        os.kill(made.pid, signal.SIGSTOP)
        made.append(record(allocated("r", 1), reason=BULKY))
        thread = threading.Thread(target=flush, args=(made,))
        thread.start()
        until(lambda: full(made))
        assert thread.is_alive()
        return thread

    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        made.append(record(opened()))
        made.wait_until_stored()
        thread = blocked(made)
        # What asks for no lock goes on telling.
        assert (made.last_seq, made.durable_seq, made.queued_events) == (2, 1, 1)
        os.kill(made.pid, signal.SIGCONT)
        thread.join(DEADLINE_SECONDS)
        made.wait_until_stored()
        assert (made.last_seq, made.durable_seq, raised) == (2, 2, [])

        thread = blocked(made)
        os.kill(made.pid, signal.SIGKILL)
        thread.join(DEADLINE_SECONDS)
        assert [type(error) for error in raised] == [JournalError]
        assert "after seq 2 " in str(raised[0])
        assert "signal 9" in str(raised[0])
        closed_once(made, said="signal 9")
        assert [one.reason == BULKY for one in journal.reader().transactions()] == [False, True]
        assert journal.reader().head().seq == 2
        assert list(journal.verify()) == []


def remove(path: Path) -> None:
    path.unlink()


def refuse(path: Path) -> None:
    change(
        f"sqlite:///{path}",
        "CREATE TRIGGER full BEFORE INSERT ON events WHEN NEW.seq > 2 "
        "BEGIN SELECT RAISE(ABORT, 'no room'); END",
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program writes, and does not stop."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.mark.parametrize(
    ("fail", "said"),
    [(refuse, "no room"), (remove, "removed or replaced")],
    ids=["refused", "removed"],
)
def test_a_store_that_fails_halts_the_cache(tmp_path: Path, fail: Any, said: str) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        cache.alloc(PAGE)
        made.wait_until_stored()
        stored = cache.digest()
        assert made.durable_seq == 2
        fail(path)
        cache.alloc(PAGE)
        # It is handed over, and the failure is heard of without another call.
        made.flush()
        until(lambda: made._words[PHASE] == FAILED)
        refused(cache, made, said=said)
        closed_once(made, said=said)
        assert made.durable_seq == 2
    if fail is refuse:
        with Journal.open(path, create=False) as journal:
            assert sound_end(journal) == 2
            assert stored_digest(journal) == stored


def test_one_who_waits_for_the_disk_hears_of_a_store_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path, lock_timeout_s=0.05) as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        made.wait_until_stored()
        with locked(path):
            cache.alloc(PAGE)
            with pytest.raises(JournalError, match=r"after seq 1 .*locked"):
                made.wait_until_stored()
            refused(cache, made, said="locked")
        # The lock is gone, and it stays over.
        refused(cache, made, said="locked")
        closed_once(made, said="locked")
        assert sound_end(journal) == 1


def test_degraded_it_names_what_it_dropped_and_goes_on_and_closing_in_an_outage_tells_what_was_lost(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path, lock_timeout_s=0.05) as journal:
        made = journal.record_apart(on_failure="degrade", queue_limit=8)
        cache = HybridCache(CONFIG, sink=made)
        made.wait_until_stored()

        def step() -> None:
            use(cache)
            made.flush()

        with locked(path):
            until(lambda: made.dropped_events > 0, step)
            assert made.degraded
            made.wait_until_stored()  # Not for the store.
            assert (made.durable_seq, made.queued_events) == (1, made.last_seq - 1)
        until(lambda: made.durable_seq == made.last_seq and not made.degraded, made.wait_until_stored)
        step()
        made.wait_until_stored()
        until(lambda: made.durable_seq == made.last_seq, made.wait_until_stored)

        reader = journal.reader()
        gaps = [one.event for one in reader.events() if type(one.event) is EventsDropped]
        dropped = [seq for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)]
        assert len(dropped) == made.dropped_events > 0
        stored = [int(one.seq) for one in reader.events()]
        assert sorted(stored + dropped) == list(range(1, made.last_seq + 1))
        assert reader.head().seq == made.last_seq
        assert stored_digest(journal) == cache.digest()
        verdict = audit(reader, chain=journal.verify())
        assert (verdict.verdict, len(verdict.gaps)) == ("unverified", len(gaps))

        durable = made.durable_seq
        with locked(path):
            use(cache, 3)
            closed_once(made, said="6 events held and 0 given up")
        assert journal.reader().head().seq == durable == made.durable_seq
        assert list(journal.verify()) == []


SCRIPT = """
import os, signal, sys, threading, time, warnings
from kvledger.core import COMPILED, CacheConfig, HybridCache
from kvledger.journal import Journal
from kvledger.journal.apart.board import RING_BYTES
from kvledger.journal.apart.ring import PUBLISHED, READ

warnings.simplefilter("ignore")
recorder = Journal.open(sys.argv[1]).record_apart()
cache = HybridCache(
    CacheConfig(page_size=4, sliding_window=8, full_tokens=256, swa_tokens=256), sink=recorder
)
for _ in range(50):
    cache.free(cache.alloc(4))
recorder.flush()
digest = cache.digest()
pid = recorder.pid
os.kill(pid, signal.SIGSTOP)
with cache.transaction("load " * (RING_BYTES // 4)):
    cache.alloc(4)
threading.Thread(target=recorder.flush, daemon=True).start()
counters = recorder._process._board.counters
while counters[PUBLISHED] - counters[READ] < RING_BYTES:
    time.sleep(0.001)
print(pid, digest, recorder.last_seq, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_of_a_frame_that_a_killed_scheduler_did_not_finish_nothing_is_stored_and_all_before_it_is(
    tmp_path: Path,
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run.db")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.wait(DEADLINE_SECONDS) == -signal.SIGKILL
    assert program.stdout is not None
    pid, digest, last = program.stdout.read().split()
    os.kill(int(pid), signal.SIGCONT)
    # The other process has the end of the same pipe until it ends.
    _, said = program.communicate(timeout=DEADLINE_SECONDS)
    assert said == ""
    with Journal.open(tmp_path / "run.db", create=False) as journal:
        assert sound_end(journal) == 101 < int(last)
        assert stored_digest(journal) == digest


class Interrupt(KeyboardInterrupt):
    """Raised by the handler of a signal."""


@contextmanager
def alarms(wanted: Callable[[Any], bool] = lambda frame: True) -> Iterator[None]:
    """SIGALRM interrupts whatever runs, where that is wanted."""

    def interrupt(number: int, frame: Any) -> None:
        if wanted(frame):
            raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def interrupted_once(ready: Callable[[], bool]) -> Iterator[None]:
    """SIGALRM comes to the main thread when something is so, and not before."""

    def interrupt() -> None:
        until(ready)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    yield
    thread.join()


def test_an_interrupt_while_the_ring_is_full_ends_the_recording_before_what_was_cut_off(
    tmp_path: Path,
) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        use(cache, 3)
        made.flush()
        stored = cache.digest()
        os.kill(made.pid, signal.SIGSTOP)
        with cache.transaction(BULKY):
            cache.alloc(PAGE)
        with alarms(), interrupted_once(lambda: full(made)), pytest.raises(Interrupt):
            made.flush()
        os.kill(made.pid, signal.SIGCONT)
        until(lambda: made.durable_seq == 7)
        refused(cache, made, said="could not be handed over: Interrupt")
        closed_once(made, said="could not be handed over: Interrupt")
        assert sound_end(journal) == 7
        assert stored_digest(journal) == stored


def test_an_interrupt_while_a_wish_for_the_disk_is_handed_over_ends_the_recording(tmp_path: Path) -> None:
    """Of a frame that was cut short nothing may follow."""
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        made.wait_until_stored()
        os.kill(made.pid, signal.SIGSTOP)
        ring = made._process._ring
        ring.write([bytes(RING_BYTES - 4)], lambda: None)  # No frame, and nobody reads it.
        with alarms(), interrupted_once(lambda: full(made)), pytest.raises(Interrupt):
            made.wait_until_stored()
        with pytest.raises(JournalError, match="could not be handed over: Interrupt"):
            cache.alloc(PAGE)
        kill(made)
        closed_once(made, said="could not be handed over: Interrupt")


@pytest.mark.parametrize("pause_s", [0.0, 0.003, 0.01, 0.03])
def test_a_pipe_that_others_close_loses_nothing_unseen(tmp_path: Path, pause_s: float) -> None:
    """The process takes the pipe's end for its scheduler's, and ends while that goes on."""
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        use(cache, 50)
        made.flush()
        told = False
        os.close(made._process._pipe)
        time.sleep(pause_s)
        try:
            use(cache)
            made.flush()
            use(cache)
            made.close()
        except JournalError:
            told = True
            with suppress(JournalError):  # It tells once more where a call before it was told.
                made.close()
        assert told or made.durable_seq == made.last_seq
        if not told:
            assert stored_digest(journal) == cache.digest()
        assert sound_end(journal) == made.durable_seq


def test_a_process_that_ends_before_it_has_read_everything_is_told(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        HybridCache(CONFIG, sink=made)
        made.wait_until_stored()
        process = made._process
        os.close(process._pipe)
        until(lambda: made._words[PHASE] == CLOSED)
        process._ring.write([b"nobody reads this"], lambda: None)
        closed_once(made, said="before it had read everything|was not told to")


def test_after_an_interrupted_close_nothing_is_taken_any_more(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        use(cache)
        made.flush()
        os.kill(made.pid, signal.SIGSTOP)
        with alarms(), interrupted_once(lambda: made._ending), pytest.raises(Interrupt):
            made.close()
        digest = cache.digest()
        for phase in (RECORDING, CLOSED):
            until(lambda phase=phase: made._words[PHASE] == phase)  # type: ignore[misc]
            for call in (lambda: cache.alloc(PAGE), made.flush, made.wait_until_stored):
                with pytest.raises(JournalError, match="closed"):
                    call()
            os.kill(made.pid, signal.SIGCONT)
        made.close()
        assert cache.digest() == digest == stored_digest(journal)
        assert sound_end(journal) == made.durable_seq == made.last_seq == 3


@pytest.mark.parametrize("call", ["look_after", "forget"])
def test_the_end_is_written_once_where_an_interrupt_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        made.wait_until_stored()
        published = made._process._board.counters
        before = published[PUBLISHED]
        with monkeypatch.context() as patch:
            patch.setattr(made._process, call, interrupt)
            with pytest.raises(Interrupt):
                made.close()
        assert published[PUBLISHED] == before + HEADER.size
        made.close()
        assert published[PUBLISHED] == before + HEADER.size
        assert cache.digest() == stored_digest(journal)
        assert sound_end(journal) == made.durable_seq == 1


def test_it_asks_for_the_process_without_a_lock_that_an_interrupt_could_leave_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locks(*given: object, **named: object) -> None:
        raise AssertionError("Popen takes its lock")

    for call in ("wait", "poll", "send_signal", "kill"):
        monkeypatch.setattr(subprocess.Popen, call, locks)
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        use(HybridCache(CONFIG, sink=made))
        made.wait_until_stored()
        made._process.look()
        made.close()
        assert sound_end(journal) == made.durable_seq == 3
        (tmp_path / "run.db").unlink()
        with pytest.raises(JournalError, match="no journal can be started"):
            journal.record_apart()


def test_a_process_whose_end_somebody_else_heard_of_is_told_and_not_waited_for(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart()
        cache = HybridCache(CONFIG, sink=made)
        made.wait_until_stored()
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
        cache.alloc(PAGE)
        with pytest.raises(JournalError, match="has ended"):
            made.flush()
        closed_once(made, said="has ended")


@pytest.mark.parametrize("call", ["write", "take"])
def test_an_interrupt_before_the_first_byte_of_a_frame_leaves_it_for_the_next_flush(
    without_a_process: Journal, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    made = without_a_process.record_apart()
    cache = HybridCache(CONFIG, sink=made)
    use(cache)
    with monkeypatch.context() as patch:
        patch.setattr(made, "_batch", InterruptedBefore(made._batch, call))
        with pytest.raises(Interrupt):
            made.flush()
    assert (kept_of(made).stored(), made.last_seq) == ([], 3)
    use(cache)
    made.close()
    assert made.last_seq == 5
    assert kept_digest(made) == cache.digest()


@pytest.mark.compiled
def test_an_interrupt_after_the_last_byte_of_a_frame_that_copied_itself_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    with Journal.open(tmp_path / "run.db") as journal, journal.record_apart() as made:
        cache = HybridCache(CONFIG, sink=made)
        use(cache)
        with monkeypatch.context() as patch:
            patch.setattr(made._process, "look_after", interrupt)
            with pytest.raises(Interrupt):
                made.flush()
        assert (made._batch.count, made._batch.frames) == (0, 1)
        use(cache)
        made.close()
        assert stored_digest(journal) == cache.digest()


def test_an_append_that_is_interrupted_twice_ends_the_recording(
    without_a_process: Journal, disturb: Any
) -> None:
    made = without_a_process.record_apart()
    cache = HybridCache(CONFIG, sink=made)
    before = cache.digest()
    with disturb(made, interrupt) as patch:
        patch.setattr(made, "_take_back", interrupt)
        with pytest.raises(Interrupt):
            cache.alloc(PAGE)
    assert cache.digest() == before
    for call in (lambda: cache.alloc(PAGE), made.flush, made.close):
        with pytest.raises(JournalError, match="again while it was taken back"):
            call()
    assert [one.op for one in kept_of(made).stored()] == []


def test_a_process_that_sleeps_is_woken_once_by_what_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(tmp_path / "run.db") as journal, journal.record_apart() as made:
        calls: list[int] = []
        wake = made._process.wake

        def counted() -> None:
            calls.append(1)
            wake()

        monkeypatch.setattr(made._process, "wake", counted)
        cache = HybridCache(CONFIG, sink=made)
        made.flush()
        until(lambda: bool(made._words[ASLEEP]))
        calls.clear()
        cache.alloc(PAGE)
        made.flush()
        assert len(calls) == 1
        until(lambda: not made._words[ASLEEP])


def test_a_call_wakes_a_process_that_would_sleep_on(monkeypatch: pytest.MonkeyPatch) -> None:
    board, (theirs, ours) = Board(), os.pipe()
    ring = RingWriter(board.ring, board.counters)
    frames = writer._frames(board)
    monkeypatch.setattr(writer, "LOOK_SECONDS", 10 * DEADLINE_SECONDS)
    monkeypatch.setattr(writer, "NAPS", 0)
    standard_input = os.dup(0)
    os.dup2(theirs, 0)

    def call() -> None:
        until(lambda: bool(board.words[ASLEEP]))
        ring.write(frame(FLUSH, NUMBER.pack(1)), lambda: None)
        os.write(ours, b"\0")

    try:
        thread = threading.Thread(target=call)
        thread.start()
        with alarms():
            signal.setitimer(signal.ITIMER_REAL, DEADLINE_SECONDS)
            assert next(frames) == (FLUSH, NUMBER.pack(1))
        thread.join()
        assert not board.words[ASLEEP]
        os.close(ours)
        assert list(frames) == [], "it went on after the pipe's end"
    finally:
        os.dup2(standard_input, 0)
        for file in (standard_input, theirs, board.file):
            os.close(file)


def no_ring() -> tuple[memoryview, memoryview]:
    """A ring that has room for nothing, and its counters."""
    return memoryview(bytearray(1)), memoryview(bytearray(8 * COUNTERS)).cast("q")


class Kept(WritingProcess):
    """Stands for the process: keeps what is written to it, and costs no start."""

    text = ""

    def __init__(self, orders: Any) -> None:
        numbers = memoryview(bytearray(8 * WORDS)).cast("q")
        numbers[PHASE] = RECORDING
        self.words = numbers
        self.batch = new_batch()
        self.failure = None
        self.carried = False
        self.data = bytearray()
        self.ended = 0
        self.answers = True

    def write(self, pieces: Sequence[Piece]) -> None:
        """All of it goes in at once, and who asks for the disk is told that it is there, if it `answers`."""
        data = b"".join(pieces)
        self.data += data
        length, form = HEADER.unpack_from(data)
        if form == FLUSH and self.answers:
            (self.words[FLUSHED],) = NUMBER.unpack_from(data, len(data) - length)

    def open(self, most: int) -> None:
        """There is no ring."""
        words = self.words
        self.batch.open(words[PHASE : PHASE + 1], RECORDING, *no_ring(), most)

    def wake(self) -> None:
        """It never sleeps."""

    def look(self, *, wait_s: float = 0.0) -> None:
        """It goes on."""

    def end(self) -> None:
        """Be counted."""
        self.ended += 1

    def stored(self) -> list[TransactionRecord]:
        """What the frames hold."""
        found, at = list[TransactionRecord](), 0
        while at < len(self.data):
            length, form = HEADER.unpack_from(self.data, at)
            at += HEADER.size + length
            if form == BATCH:
                found += [item.record for item in unpack(bytes(self.data[at - length : at]))]
        return found


class Disturbed:
    """Stands for a batch: adds a transaction, and something happens then."""

    def __init__(self, batch: Any, happens: Callable[[], None]) -> None:
        self._batch = batch
        self._happens = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def add_now(self, *transaction: Any) -> bool:
        """At once."""
        return self._then(self._batch.add_now(*transaction))

    def add(self, *transaction: Any) -> bool:
        """With the lock held."""
        return self._then(self._batch.add(*transaction))

    def _then(self, added: bool) -> bool:
        if added:
            self._happens()
        return added


class InterruptedBefore:
    """Stands for a batch: an interrupt comes before a call of it."""

    def __init__(self, batch: Any, call: str) -> None:
        self._batch = batch
        self._call = call

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            interrupt()
        return getattr(self._batch, name)


def interrupt() -> None:
    raise Interrupt


@pytest.fixture(params=["at once", "with the lock held"])
def disturb(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[ApartRecorder, Callable[[], None]], Any]:
    """Makes something happen in each append, whichever way it goes, until the block ends. Interpreted, both
    are the same one."""

    @contextmanager
    def disturbed(made: ApartRecorder, happens: Callable[[], None]) -> Iterator[pytest.MonkeyPatch]:
        if request.param == "with the lock held":
            made._batch.shut()
        with monkeypatch.context() as patch:
            patch.setattr(made, "_batch", Disturbed(made._batch, happens))
            yield patch

    return disturbed


@pytest.fixture
def without_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """A store whose recordings go nowhere: `Kept` has them."""
    monkeypatch.setattr(recorder_module, "WritingProcess", Kept)
    with Journal.open(tmp_path / "run.db") as journal:
        yield journal


def kept_of(made: ApartRecorder) -> Kept:
    assert isinstance(made._process, Kept)
    return made._process


def kept_digest(made: ApartRecorder) -> str:
    return replay(number_transactions(kept_of(made).stored())).state.digest()


RECORDER_FILE = recorder_module.__file__


def in_the_recorder(frame: Any) -> bool:
    """Whether a frame is, or was called from, one of the recorder's."""
    while frame is not None:
        if frame.f_code.co_filename == RECORDER_FILE:
            return True
        frame = frame.f_back
    return False


@pytest.mark.interpreted
@pytest.mark.parametrize("drained", [False, True])
def test_an_interrupt_anywhere_in_append_or_flush_is_taken_back_or_ends_the_recording(
    without_a_process: Journal, drained: bool
) -> None:
    dice = random.Random(5)
    ended = withdrawn = rounds = 0
    while rounds < 60 or (not (ended and withdrawn) and rounds < 2_000):
        rounds += 1
        made = without_a_process.record_apart(drain_on_sigterm=drained)
        cache = HybridCache(CONFIG, sink=made)

        class Interrupted:
            """A sink that is interrupted while it hands on."""

            def append(self, transaction: TransactionRecord, to: ApartRecorder = made) -> None:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 3e-5))
                to.append(transaction)

        ledger: Any = cache._ledger
        ledger.sink = Interrupted()
        with alarms(in_the_recorder):
            for _ in range(20):
                before = cache.digest()
                try:
                    cache.alloc(PAGE)
                    signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 1e-4))
                    made.flush()
                except Interrupt:
                    withdrawn += cache.digest() == before
                except JournalError:
                    break
            signal.setitimer(signal.ITIMER_REAL, 0)
        if kept_of(made).failure is None:
            made.flush()
            assert kept_digest(made) == cache.digest()
            assert made.last_seq == sum(len(one.events) for one in kept_of(made).stored())
            made.close()
        else:
            ended += 1
            with pytest.raises(JournalError, match="could not be handed over"):
                made.close()
        assert kept_of(made).ended == 1
    assert ended > 0, "no interrupt came while something was handed over: the test would prove little"
    assert withdrawn > 0, "no interrupt came in an append: the test would prove little"


def test_an_append_that_is_interrupted_before_it_was_handed_over_is_withdrawn(
    without_a_process: Journal, disturb: Any
) -> None:
    made = without_a_process.record_apart()
    cache = HybridCache(CONFIG, sink=made)
    before = cache.digest()
    with disturb(made, interrupt), pytest.raises(Interrupt):
        cache.alloc(PAGE)
    assert (cache.digest(), made.last_seq, made._batch.count) == (before, 1, 1)
    use(cache)
    made.close()
    assert [one.op for one in kept_of(made).stored()] == ["open", "alloc", "free"]
    assert kept_digest(made) == cache.digest()


def test_an_append_in_which_a_handler_is_refused_after_it_was_added_is_withdrawn(
    without_a_process: Journal, disturb: Any
) -> None:
    def refuse() -> None:
        raise JournalError("the handler was refused")

    made = without_a_process.record_apart()
    cache = HybridCache(CONFIG, sink=made)
    before = cache.digest()
    with disturb(made, refuse), pytest.raises(JournalError, match="the handler"):
        cache.alloc(PAGE)
    assert (cache.digest(), made.last_seq, made._batch.count) == (before, 1, 1)
    use(cache)
    made.close()
    assert kept_digest(made) == cache.digest()


@pytest.mark.parametrize("call", ["append", "flush", "wait_until_stored", "close"])
def test_a_call_inside_an_append_is_refused_and_the_append_is_whole_or_refused_too(
    without_a_process: Journal, call: str
) -> None:
    made = without_a_process.record_apart()
    made.append(record(opened()))
    given = [record(opened())] if call == "append" else []
    told: list[JournalError] = []

    def within() -> None:
        getattr(made, call)(*given)

    def caught() -> None:
        try:
            within()
        except JournalError as error:
            told.append(error)

    with pytest.raises(JournalError, match="inside another call"):
        made.append(record(NodeTouched((Calls(within),), 1), op="refused"))  # type: ignore[arg-type]
    assert (made.last_seq, made._batch.count) == (1, 1)
    made.append(record(NodeTouched((Calls(caught),), 1), allocated("r", 1), op="whole"))  # type: ignore[arg-type]
    assert [str(error) for error in told] == [str(told[0])]
    assert "inside another call" in str(told[0])
    made.close()
    assert [one.op for one in kept_of(made).stored()] == ["op", "whole"]
    assert made.last_seq == 3


def test_what_runs_at_the_end_of_what_was_handed_over_may_use_the_recorder(tmp_path: Path) -> None:
    wide, ends = np.arange(5_000, dtype=np.int32) * 3, list[int]()
    with Journal.open(tmp_path / "run.db") as journal, journal.record_apart() as made:
        made.append(record(opened()))

        def end(one: object) -> None:
            made.append(record(PagesAllocated(None, wide, wide, None)))
            made.flush()
            ends.append(made.last_seq)

        def watched() -> list[Any]:
            arrays = [wide.copy() for _ in range(8)]
            made.append(record(*(PagesAllocated(None, array, pages([1]), None) for array in arrays)))
            return [weakref.ref(array, end) for array in arrays]

        references = watched()
        assert ends == []
        made.flush()
        assert ends == list(range(10, 10 + len(references)))
        made.wait_until_stored()
        assert made.durable_seq == 17
        assert [len(one.events) for one in journal.reader().transactions()] == [1, 8] + [1] * 8


def test_a_recording_whose_first_transaction_was_refused_or_withdrawn_begins_with_the_next_one(
    without_a_process: Journal,
) -> None:
    made = without_a_process.record_apart()
    with pytest.raises(JournalError, match="cannot be handed"):
        made.append(record(opened(odd=threading.Lock())))
    assert made.last_seq == 0
    made._batch.add(record(opened()), 1, None)
    made._take_back()
    assert (made.last_seq, kept_of(made).failure) == (0, None)
    cache = HybridCache(CONFIG, sink=made)
    use(cache)
    made.close()
    assert [one.op for one in kept_of(made).stored()] == ["open", "alloc", "free"]


def test_who_waits_after_an_interrupted_wait_waits_for_what_came_since(
    without_a_process: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = without_a_process.record_apart()
    kept = kept_of(made)
    kept.answers = False
    write = kept.write

    def interrupted(pieces: Sequence[Piece]) -> None:
        write(pieces)
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(kept, "write", interrupted)
        with pytest.raises(Interrupt):
            made.wait_until_stored()
    kept.words[FLUSHED] = 1  # What was asked for is done; nothing was to be stored.
    HybridCache(CONFIG, sink=made)
    looks = []

    def look(*, wait_s: float = 0.0) -> None:
        looks.append(wait_s)
        kept.words[FLUSHED] = 2

    monkeypatch.setattr(kept, "look", look)
    made.wait_until_stored()
    assert looks, "it did not wait for the transaction"
    made.close()


@pytest.fixture
def interrupting_sigterm() -> Iterator[Any]:
    """SIGTERM raises, as a scheduler's own handler may."""

    def interrupt(number: int, frame: Any) -> None:
        raise Interrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    yield interrupt
    signal.signal(signal.SIGTERM, before)


def test_an_append_that_is_interrupted_once_it_was_handed_over_ends_the_recording(
    without_a_process: Journal, interrupting_sigterm: Any, disturb: Any
) -> None:
    made = without_a_process.record_apart(drain_on_sigterm=True)
    cache = HybridCache(CONFIG, sink=made)
    with disturb(made, lambda: os.kill(os.getpid(), signal.SIGTERM)), pytest.raises(Interrupt):
        cache.alloc(PAGE)
    # The drain has handed it over, and the cache has undone it.
    assert [one.op for one in kept_of(made).stored()] == ["open", "alloc"]
    digest = cache.digest()
    with pytest.raises(JournalError, match="interrupted"):
        cache.alloc(PAGE)
    assert cache.digest() == digest
    with pytest.raises(JournalError, match="interrupted"):
        made.close()


def test_a_close_that_fails_gives_the_signal_back(
    without_a_process: Journal, interrupting_sigterm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = without_a_process.record_apart(drain_on_sigterm=True)
    HybridCache(CONFIG, sink=made)
    assert signal.getsignal(signal.SIGTERM) != interrupting_sigterm

    def broken(pieces: Sequence[Piece]) -> None:
        kept_of(made).fail("the ring is broken")

    monkeypatch.setattr(kept_of(made), "write", broken)
    with pytest.raises(JournalError, match="the ring is broken"):
        made.close()
    assert signal.getsignal(signal.SIGTERM) == interrupting_sigterm
    assert kept_of(made).ended == 1


def test_what_came_between_the_last_look_and_the_schedulers_end_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = iter([1, 2])  # first its own, then nobody's
    monkeypatch.setattr(os, "getppid", lambda: next(parents, 2))
    batch = new_batch()
    add(batch, record(opened()), 1, None)
    last = (BATCH, b"".join(batch.take())[HEADER.size :])
    with Journal.open(tmp_path / "run.db") as journal:
        with journal.record() as recorder:
            frames = iter([(writer.NOTHING, b""), last, (writer.NOTHING, b""), (writer.NOTHING, b"")])
            writer._feed(recorder, frames, writer._Notes(Board(), recorder))
            assert recorder.last_seq == 1
        assert journal.reader().head().seq == 1
    assert list(frames) == [(writer.NOTHING, b"")], "it went on after its scheduler"
