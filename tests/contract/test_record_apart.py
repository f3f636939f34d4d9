"""A journal that a process of its own writes is the one that a thread of the scheduler would have written."""

import gc
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

import pytest

from kvledger.api import Inspector
from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.core.events import EVENTS, Evicted
from kvledger.core.sinks import BeginningListener, EventSink
from kvledger.journal import Journal, interpreter
from kvledger.journal.apart import process
from kvledger.journal.audit import audit
from kvledger.journal.export import ExportedJournal
from kvledger.journal.growth import MIN_MAX_BYTES
from kvledger.journal.recorder import STEP_EVENTS
from kvledger.journal.replay import replay
from kvledger.journal.rows import WriterCounters
from tests.support.private_tokens import NAMESPACES, leaks_in, live_privately
from tests.support.recorded_run import small_run
from tests.support.stored_events import facts, record
from tests.support.stores import rows

PAGE = 4
CONFIG = CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=256, swa_tokens=256)
KEY = bytes(range(32))
POLICIES = {"full": None, "hash": KEY, "none": None}


def lived(sink: EventSink) -> HybridCache:
    """A life with whatever a cache does, and a transaction that is named by its caller."""
    cache = live_privately(sink)
    with cache.transaction("what a scheduler calls it"):
        cache.evict(full_tokens=PAGE)
    return cache


@dataclass(frozen=True)
class Recorded:
    """The same life in two journals of one store: 1 written by a thread, 2 by a process."""

    path: Path
    policy: str
    digests: tuple[str, str]
    counters: tuple[WriterCounters, WriterCounters]
    seqs: tuple[int, int, int]
    """Last and durable when everything was stored, and durable once it was closed."""

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"


@pytest.fixture(scope="module", params=POLICIES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp(request.param) / "run.db"
    how: dict[str, Any] = {"tokens": request.param, "key": POLICIES[request.param], "name": "rank0"}
    with Journal.open(path) as journal:
        with journal.record(durability="step", **how) as beside:
            digest = lived(beside).digest()
        with journal.record_apart(**how) as apart:
            cache = lived(apart)
            apart.wait_until_stored()
            last, durable = apart.last_seq, apart.durable_seq
        return Recorded(
            path,
            request.param,
            (digest, cache.digest()),
            (beside.counters, apart.counters),
            (last, durable, apart.durable_seq),
        )


FIELDS = {kind: [field.name for field in fields_of(kind_class)] for kind, kind_class in EVENTS.items()}
EVENT_CELLS = "seq, txn, kind, version, node, request_id, undone"
TRANSACTION_CELLS = "number, op, request_id, status, reason, first_seq, event_count, checkpoint_seq"


def of_journal(recorded: Recorded, number: int, cells: str, table: str, order: str) -> list[Any]:
    return rows(recorded.url, f"SELECT {cells} FROM {table} WHERE journal_id = {number} ORDER BY {order}")


def test_both_hold_the_same_transactions(recorded: Recorded) -> None:
    beside, apart = (
        of_journal(recorded, number, TRANSACTION_CELLS, "transactions", "number") for number in (1, 2)
    )
    assert len(beside) == 87
    assert {row[3] for row in beside} == {"committed", "rolled_back"}
    assert apart == beside


def test_both_hold_the_same_events(recorded: Recorded) -> None:
    # Under "none" the names of namespaces are hashed with a key that each recording draws for itself.
    cells = EVENT_CELLS if recorded.policy == "none" else f"{EVENT_CELLS}, payload, blob"
    beside, apart = (of_journal(recorded, number, cells, "events", "seq") for number in (1, 2))
    assert len(beside) == 373
    assert len({row[2] for row in beside}) > 15
    assert {row[6] for row in beside} == {0, 1}
    assert apart == beside


def test_events_differ_at_most_in_the_names_of_namespaces_and_digests_over_them(recorded: Recorded) -> None:
    with Journal.open(recorded.path, create=False) as journal:
        beside, apart = (
            [
                dict(zip(FIELDS[one.event.kind], facts(one.event)[1:], strict=True))
                for one in journal.reader(n).events()
            ]
            for n in (1, 2)
        )
    fields = [
        {name for name in one if one[name] != two[name]} for one, two in zip(beside, apart, strict=True)
    ]
    differing = set().union(*fields)
    assert differing <= ({"namespace", "digest"} if recorded.policy == "none" else set())


def test_both_rows_of_journals_say_the_same(recorded: Recorded) -> None:
    beside, apart = rows(
        recorded.url, "SELECT name, config, token_policy, format_version FROM journals ORDER BY id"
    )
    assert beside[2] == recorded.policy
    assert apart == beside


def test_how_long_each_took_was_measured_where_it_happened_and_when_is_in_order(recorded: Recorded) -> None:
    told = of_journal(recorded, 2, "time_us, duration_us", "transactions", "number")
    assert all(duration is not None and duration >= 0 for _, duration in told)
    assert all(time_us > 0 for time_us, _ in told)


def test_the_audit_passes_the_chain_holds_and_replay_reproduces_the_cache(recorded: Recorded) -> None:
    with Journal.open(recorded.path, create=False) as journal:
        assert list(journal.verify(2)) == []
        verdicts = [audit(journal.reader(number), chain=journal.verify(number)) for number in (1, 2)]
        digests = tuple(replay(journal.reader(number)).state.digest() for number in (1, 2))
    assert (verdicts[1].verdict, verdicts[1].findings) == ("pass", ())
    assert verdicts[1].counts.checkpoints_reproduced == verdicts[1].counts.checkpoints == 5
    assert verdicts[1] == verdicts[0]
    assert digests == recorded.digests


def test_when_it_was_waited_for_everything_is_stored(recorded: Recorded) -> None:
    last, durable, closed = recorded.seqs
    assert last == 373
    assert (durable, closed) == (last, last)
    assert rows(recorded.url, "SELECT max(seq) FROM events WHERE journal_id = 2") == [(last,)]


def test_the_counters_tell_what_was_stored(recorded: Recorded) -> None:
    beside, apart = recorded.counters
    (stored,) = rows(
        recorded.url,
        "SELECT (SELECT count(*) FROM transactions WHERE journal_id = 2), count(*), "
        "sum(length(payload) + length(blob)) FROM events WHERE journal_id = 2",
    )
    assert (apart.transactions, apart.events, apart.bytes) == stored
    assert (apart.transactions, apart.events) == (beside.transactions, beside.events)
    assert 1 <= apart.batches <= apart.transactions
    assert apart.cpu_seconds > 0


def test_no_token_and_no_namespace_that_is_not_to_be_kept_lies_anywhere(recorded: Recorded) -> None:
    data = b"".join(path.read_bytes() for path in sorted(recorded.path.parent.iterdir()))
    found = leaks_in(data)
    assert KEY not in data
    if recorded.policy == "full":
        assert set(NAMESPACES) < found
    else:
        assert found == set()


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def is_there(pid: int) -> bool:
    """Whether there is such a process, ended ones that nobody has waited for included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_recording_from_its_beginning_to_its_end(store: str) -> None:
    with Journal.open(store) as journal:
        journal.record().close()
        journal.reader().head()
        made = journal.record_apart(name="rank0")
        assert isinstance(made, BeginningListener)
        assert (made.journal_id, made.durability, made.url) == (2, "step", journal.url)
        assert (made.last_seq, made.durable_seq, made.queued_events) == (0, 0, 0)
        made.flush()
        made.wait_until_stored()

        cache = HybridCache(CONFIG, sink=made)
        cache.free(cache.alloc(3 * PAGE))
        last = made.last_seq
        assert (last, made.durable_seq, made.queued_events) == (3, 0, 3)
        made.wait_until_stored()
        assert (made.last_seq, made.durable_seq, made.queued_events) == (last, last, 0)
        made.wait_until_stored()

        with pytest.raises(JournalError, match="already records a cache"):
            HybridCache(CONFIG, sink=made)
        cache.alloc(PAGE)
        made.append(record(Evicted(0, 0, 0, 0), op="evict"))
        made.flush()
        made.flush()
        assert made.last_seq == last + 2
        assert (made.degraded, made.dropped_events) == (False, 0)
        pid = made.pid
        assert is_there(pid)

        made.close()
        made.close()
        assert not is_there(pid)
        assert (made.last_seq, made.durable_seq, made.queued_events) == (last + 2, last + 2, 0)
        digest = cache.digest()
        for call in (made.flush, made.wait_until_stored, lambda: cache.alloc(PAGE)):
            with pytest.raises(JournalError, match="closed"):
                call()
        assert cache.digest() == digest
        assert made.last_seq == last + 2

        reader = journal.reader("rank0")
        assert reader.head().seq == last + 2
        assert list(journal.verify()) == []
        assert replay(reader).state.digest() == digest
        assert made.counters.transactions == 5


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    def once(journal: Journal) -> int:
        with journal.record_apart() as made:
            HybridCache(CONFIG, sink=made).alloc(PAGE)
            return made.pid

    with Journal.open(tmp_path / "run.db") as journal:
        before = open_files()
        pid = once(journal)
        # The recorder goes on telling what it has stored, as long as somebody has it.
        gc.collect()
        assert open_files() - before == set()
        assert not is_there(pid)
        assert journal.reader().head().seq == 2


BAD: list[dict[str, Any]] = [
    {"name": 5},
    {"name": "a\0"},
    {"tokens": "some"},
    {"tokens": "hash"},
    {"tokens": "hash", "key": b"short"},
    {"tokens": "full", "key": KEY},
    {"queue_limit": 0},
    {"queue_limit": "many"},
    {"on_failure": "retry"},
    {"drain_on_sigterm": "yes"},
    {"checkpoint_every": -1},
    {"checkpoint_every": None},
    {"max_bytes": MIN_MAX_BYTES},
    {"export_to": "somewhere"},
    {"max_bytes": MIN_MAX_BYTES - 1, "export_to": "somewhere"},
    {"max_bytes": MIN_MAX_BYTES, "export_to": __file__},
    {"max_bytes": MIN_MAX_BYTES, "export_to": "a\0"},
]


def no_process(*args: object, **how: object) -> Any:
    raise AssertionError("a process is started")


@pytest.mark.parametrize("how", BAD, ids=str)
def test_settings_that_cannot_be_are_refused_before_a_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    monkeypatch.setattr(process, "fresh_interpreter", no_process)
    with Journal.open(tmp_path / "run.db") as journal:
        with pytest.raises(InvalidArgument):
            journal.record_apart(**how)
        assert journal.list() == ()


def test_a_drain_needs_the_main_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "fresh_interpreter", no_process)
    raised: list[BaseException] = []

    def start(journal: Journal) -> None:
        try:
            journal.record_apart(drain_on_sigterm=True)
        except InvalidArgument as error:
            raised.append(error)

    with Journal.open(tmp_path / "run.db") as journal:
        thread = threading.Thread(target=start, args=(journal,))
        thread.start()
        thread.join()
    assert len(raised) == 1


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("/bin/false", "ended with status 1"),
        ("/nowhere/python", "cannot be started"),
        ("", "nobody knows where"),
    ],
)
def test_where_no_process_starts_nothing_is_recorded_and_nothing_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(interpreter, "get_executable", lambda: program)
    with Journal.open(tmp_path / "run.db") as journal:
        assert journal.list() == ()
        before = open_files()
        with pytest.raises(JournalError, match=said):
            journal.record_apart()
        gc.collect()
        assert open_files() - before == set()
        assert journal.list() == ()


def test_a_store_that_is_gone_is_told_in_the_words_of_the_other_process(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        (tmp_path / "run.db").unlink()
        before = open_files()
        with pytest.raises(JournalError, match=r"no journal can be started: .*run\.db"):
            journal.record_apart()
        gc.collect()
        assert open_files() - before == set()
    assert not (tmp_path / "run.db").exists()


def test_what_leaves_the_store_stands_in_files_and_both_are_the_whole_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = small_run(300, 11)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with (
        Journal.open("run.db") as journal,
        journal.record_apart(max_bytes=MIN_MAX_BYTES, export_to="out", checkpoint_every=0) as made,
    ):
        monkeypatch.chdir(tmp_path / "elsewhere")
        for count, each in enumerate(story, start=1):
            made.append(each)
            if count % 100 == 0:
                made.wait_until_stored()
        made.close()
        reader = journal.reader()
        first = next(reader.transactions())
        assert first.number > 1
        assert len(list((tmp_path / "out").glob("*.parquet"))) >= 1
        both = ExportedJournal.open(tmp_path / "out", rest=reader)
        assert [one.number for one in both.transactions()] == list(range(1, len(story) + 1))
        verdict = audit(both, chain=[*both.verify(), *journal.verify()])
        assert (verdict.verdict, verdict.counts.transactions) == ("pass", len(story))
    assert list((tmp_path / "elsewhere").iterdir()) == []


FAILING_UPKEEP = """
from kvledger.journal.keeper import Keeper

def work(self, **how):
    raise OSError("the folder is on fire")

Keeper.work = work
"""


def test_an_error_of_the_upkeep_stops_no_recording_and_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever interpreter begins with this folder in its path runs this first.
    (tmp_path / "sitecustomize.py").write_text(FAILING_UPKEEP)
    monkeypatch.syspath_prepend(tmp_path)
    with Journal.open(tmp_path / "run.db") as journal:
        made = journal.record_apart(checkpoint_every=1)
        cache = HybridCache(CONFIG, sink=made)
        for _ in range(3):
            cache.free(cache.alloc(PAGE))
            made.wait_until_stored()
        with pytest.raises(JournalError, match=r"every event is stored, but .* on fire"):
            made.close()
        made.close()
        assert made.durable_seq == made.last_seq == 7 == journal.reader().head().seq
        assert audit(journal.reader(), chain=journal.verify()).verdict == "pass"
        assert replay(journal.reader()).state.digest() == cache.digest()


SCRIPT = """
import os, signal, sys, threading, warnings
from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import JournalError
from kvledger.journal import Journal

warnings.simplefilter("ignore")
CONFIG = CacheConfig(page_size=4, sliding_window=8, full_tokens=256, swa_tokens=256)

def start(path, **how):
    recorder = Journal.open(path).record_apart(**how)
    return recorder, HybridCache(CONFIG, sink=recorder)

def use(cache, times):
    for _ in range(times):
        cache.free(cache.alloc(4))

"""


def run(folder: Path, body: str) -> tuple[int, str]:
    """Run a program that records in `folder`: its exit status and what it said, once all that it has started
    have ended too: they share the end of a pipe."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + body],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


def sound_end(path: Path) -> int:
    """The seq at which a journal ends, in which nothing is wrong."""
    with Journal.open(path, create=False) as journal:
        assert list(journal.verify()) == []
        verdict = audit(journal.reader(), chain=journal.verify())
        assert verdict.verdict == "pass"
        last = list(journal.reader().transactions())[-1]
        assert last.last_seq == journal.reader().head().seq
        return int(journal.reader().head().seq)


def test_what_was_flushed_outlives_a_killed_program(tmp_path: Path) -> None:
    body = f"""
few, one = start("few.db")
many, other = start("many.db")
use(one, 50)
use(other, 50)
few.flush()
many.flush()
print(few.last_seq, many.last_seq)
use(one, {STEP_EVENTS // 2 - 1})
use(other, {2 * STEP_EVENTS})
print(few.last_seq, many.last_seq, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    status, said = run(tmp_path, body)
    assert status == -signal.SIGKILL
    flushed, last = ([int(seq) for seq in line.split()] for line in said.splitlines())
    assert flushed == [101, 101]
    # What is less than a step's worth waits for the next flush; whole transactions of what is more do not.
    assert sound_end(tmp_path / "few.db") == flushed[0] < last[0]
    assert sound_end(tmp_path / "many.db") == flushed[1] + 3 * STEP_EVENTS < last[1]


@pytest.mark.parametrize(
    ("before", "status", "said"), [("nothing", -signal.SIGTERM, ""), ("handler", 7, "previous 101")]
)
def test_at_sigterm_everything_accepted_is_handed_over_and_then_the_signal_goes_on(
    tmp_path: Path, before: str, status: int, said: str
) -> None:
    body = f"""
def previous(number, frame):
    print("previous", recorder.last_seq, flush=True)
    os._exit(7)

if {before == "handler"}:
    signal.signal(signal.SIGTERM, previous)
recorder, cache = start("run.db", drain_on_sigterm=True)
use(cache, 50)
os.kill(os.getpid(), signal.SIGTERM)
os._exit(9)
"""
    assert run(tmp_path, body) == (status, said)
    assert sound_end(tmp_path / "run.db") == 101


def test_carried_through_a_fork_it_refuses_and_the_parent_goes_on_and_need_not_close(tmp_path: Path) -> None:
    body = """
recorder, cache = start("run.db")
use(cache, 1)
child = os.fork()
if child == 0:
    for call in (lambda: use(cache, 1), recorder.flush, recorder.wait_until_stored):
        try:
            call()
        except JournalError as error:
            if "fork" not in str(error):
                os._exit(3)
        else:
            os._exit(4)
    recorder.close()
    recorder.close()
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
use(cache, 1)
recorder.wait_until_stored()
print(recorder.durable_seq)
use(cache, 300)
sys.exit(status)
"""
    assert run(tmp_path, body) == (0, "5")
    assert sound_end(tmp_path / "run.db") == 605


def test_a_child_that_lives_on_keeps_nobody_from_closing(tmp_path: Path) -> None:
    body = """
recorder, cache = start("run.db")
use(cache, 5)
waits, ends = os.pipe()
child = os.fork()
if child == 0:
    os.close(ends)
    os.read(waits, 1)
    os._exit(0)
closing = threading.Thread(target=recorder.close)
closing.start()
closing.join(20)
print(closing.is_alive(), flush=True)
os.close(ends)
closing.join()
os.waitpid(child, 0)
"""
    assert run(tmp_path, body) == (0, "False")
    assert sound_end(tmp_path / "run.db") == 11


def test_a_child_that_was_forked_while_the_process_began_keeps_nobody_from_closing_what_failed(
    tmp_path: Path,
) -> None:
    body = """
from kvledger.journal.apart import process

waits, ends = os.pipe()
children = []

def fork():
    child = os.fork()
    if child == 0:
        os.close(ends)
        os.read(waits, 1)
        os._exit(0)
    children.append(child)

def begin(*given, **how):
    forking.start()
    forking.join(1)  # It may be waiting for this to be over.
    return fresh_interpreter(*given, **how)

def close():
    try:
        recorder.close()
    except JournalError as error:
        print(error)

fresh_interpreter, process.fresh_interpreter = process.fresh_interpreter, begin
forking = threading.Thread(target=fork)
recorder, cache = start("run.db")
forking.join()
recorder._process.fail("not handed over")
closing = threading.Thread(target=close)
closing.start()
closing.join(20)
print(closing.is_alive(), flush=True)
os.close(ends)
closing.join()
os.waitpid(children[0], 0)
"""
    said = "recording stopped after seq 0 and stores nothing more: not handed over"
    assert run(tmp_path, body) == (0, f"{said}\nFalse")


def test_a_child_of_another_thread_may_begin_a_process_of_its_own(tmp_path: Path) -> None:
    body = """
recorder, cache = start("run.db")
recorder.wait_until_stored()

def fork():
    child = os.fork()
    if child == 0:
        mine, cache = start("of the child.db")
        use(cache, 1)
        mine.close()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

forking = threading.Thread(target=fork)
forking.start()
forking.join()
recorder.close()
"""
    assert run(tmp_path, body) == (0, "0")
    assert sound_end(tmp_path / "run.db") == 1
    assert sound_end(tmp_path / "of the child.db") == 3


WITHOUT_STREAMS = """
import os, sys
for number in range(3):
    os.close(number)
from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import Journal

with Journal.open(sys.argv[1]) as journal, journal.record_apart() as recorder:
    HybridCache(CacheConfig(page_size=4, sliding_window=8, full_tokens=64, swa_tokens=64), sink=recorder)
    recorder.wait_until_stored()
"""


def test_a_program_without_standard_streams_records(tmp_path: Path) -> None:
    program = [sys.executable, "-c", WITHOUT_STREAMS, str(tmp_path / "run.db")]
    subprocess.run(program, check=True, timeout=60)
    with Journal.open(tmp_path / "run.db", create=False) as journal:
        assert journal.reader().head().seq == 1


def test_where_there_are_no_files_in_memory_nothing_is_recorded_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with Journal.open(tmp_path / "run.db") as journal:
        with pytest.raises(JournalError, match="no files in memory"):
            journal.record_apart()
        assert journal.heads() == ()


def test_an_inspector_refuses_it_and_names_another_way(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal, journal.record_apart() as recorder:
        told: Any = recorder
        with pytest.raises(InvalidArgument, match="kvledger serve"):
            Inspector.attach(told)
