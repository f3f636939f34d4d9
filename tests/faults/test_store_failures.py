"""The store fails in the middle of a recording: nothing half is stored, and the cache stays as it was."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import event

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.core.events import EventsDropped, Evicted, MappingSet
from kvledger.journal import Journal, Recorder, outage
from kvledger.journal.audit import audit
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.replay import replay
from kvledger.journal.rows import RowWriter, Submission
from kvledger.tools.torture.postgresql_server import PostgresqlServer
from tests.support.postgres import execute
from tests.support.stored_events import opened, pages, record, wide_pages

PAGE = 4
CONFIG = CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=256, swa_tokens=256)
LOCK_TIMEOUT_S = 0.05

Failure = Callable[[], AbstractContextManager[None]]


class Limit:
    """A limit that the file system would set, for connections opened while it is in force."""

    pragma: str | None = None

    def apply(self, connection: Any, _record: Any) -> None:
        if self.pragma is not None and isinstance(connection, sqlite3.Connection):
            connection.execute(f"PRAGMA {self.pragma}").close()

    @contextmanager
    def of(self, pragma: str) -> Iterator[None]:
        self.pragma = pragma
        try:
            yield
        finally:
            self.pragma = None


LIMIT = Limit()


@pytest.fixture(scope="module", autouse=True)
def _limited_connections() -> Iterator[None]:
    event.listen(sa.Engine, "connect", LIMIT.apply)
    yield
    event.remove(sa.Engine, "connect", LIMIT.apply)


class SqliteFailures:
    """A file that cannot be written to."""

    names = ("disk full", "read-only", "locked by another program")

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def of(self, name: str) -> Failure:
        if name == "locked by another program":
            return self._locked
        # The smallest limit is the size the file has already, so that no page can be added to it.
        return lambda: LIMIT.of("max_page_count=1" if name == "disk full" else "query_only=ON")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        other = sqlite3.connect(self._path, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")
            other.close()


class PostgresqlFailures:
    """A server that does not take what it is given."""

    names = ("backends killed", "server stopped", "tables locked by another program")

    def __init__(self, server: PostgresqlServer, url: str) -> None:
        self.url = url
        self._server = server
        self._database = url.rpartition("/")[2]

    def of(self, name: str) -> Failure:
        return {
            "backends killed": self._killed,
            "server stopped": self._stopped,
            "tables locked by another program": self._locked,
        }[name]

    @contextmanager
    def _killed(self) -> Iterator[None]:
        execute(self._server, f"ALTER DATABASE {self._database} ALLOW_CONNECTIONS false")
        execute(
            self._server,
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            f"WHERE datname = '{self._database}'",
        )
        try:
            yield
        finally:
            execute(self._server, f"ALTER DATABASE {self._database} ALLOW_CONNECTIONS true")

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        self._server.stop(mode="immediate")
        try:
            yield
        finally:
            self._server.start()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with psycopg.connect(self.url.replace("+psycopg", "")) as other:
            other.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
            yield
            other.rollback()


FAILURES = [*SqliteFailures.names, *PostgresqlFailures.names]


@pytest.fixture
def failing(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Failure]:
    """The URL of a store, and the failure of `request.param` to bring upon it."""
    made: SqliteFailures | PostgresqlFailures
    if request.param in SqliteFailures.names:
        made = SqliteFailures(tmp_path / "run.db")
    else:
        server = request.getfixturevalue("postgresql_server")
        made = PostgresqlFailures(server, request.getfixturevalue("postgresql_store"))
    return made.url, made.of(request.param)


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(outage, "LAST_RETRY_SECONDS", 0.01)


def reconnect(recorder: Recorder) -> None:
    """Have the writer open its next connection under the failure, as it does after any error."""
    writer: Any = recorder._writer
    writer._discard_connection()


def stored_digest(journal: Journal) -> str:
    return replay(journal.reader()).state.digest()


BULKY = "load " * 4_000
"""A label so long that its row does not fit into pages a database has already."""


def take(cache: HybridCache, pages: int) -> None:
    """Allocate pages in a bulky transaction of one event."""
    with cache.transaction(BULKY):
        cache.alloc(pages * PAGE)


def use(cache: HybridCache, times: int = 1) -> None:
    """Allocate and free a page, in one bulky transaction of two events."""
    for _ in range(times):
        with cache.transaction(BULKY):
            cache.free(cache.alloc(PAGE))


def until(done: Callable[[], bool], recorder: Recorder, meanwhile: Callable[[], None] | None = None) -> None:
    """Look again and again, a thousandth of a second apart; the suite's own time limit ends a hang."""
    while not done():
        if meanwhile is not None:
            meanwhile()
        recorder._thread.join(0.001)


@pytest.mark.parametrize("failing", FAILURES, indirect=True)
def test_a_store_that_fails_halts_the_cache_where_its_last_operation_left_it(
    failing: tuple[str, Failure],
) -> None:
    url, failure = failing
    with Journal.open(url, lock_timeout_s=LOCK_TIMEOUT_S) as journal:
        recorder = journal.record(durability="commit")
        cache = HybridCache(CONFIG, sink=recorder)
        cache.alloc(3 * PAGE)
        before, seq = cache.digest(), recorder.durable_seq
        reconnect(recorder)
        with failure():
            for _ in range(2):
                with pytest.raises(JournalError, match=f"after seq {seq} "):
                    take(cache, 40)
                assert cache.digest() == before
                cache.check()
        with pytest.raises(JournalError):
            recorder.close()
        assert journal.reader().head().seq == seq == recorder.durable_seq
        assert list(journal.verify()) == []
        assert stored_digest(journal) == before


@pytest.mark.parametrize("failing", FAILURES, indirect=True)
def test_a_degraded_recorder_names_what_it_dropped_and_goes_on_from_a_checkpoint(
    failing: tuple[str, Failure],
) -> None:
    url, failure = failing
    with Journal.open(url, lock_timeout_s=LOCK_TIMEOUT_S) as journal:
        recorder = journal.record(on_failure="degrade", queue_limit=8)
        cache = HybridCache(CONFIG, sink=recorder)
        cache.alloc(3 * PAGE)
        recorder.flush()
        reconnect(recorder)
        with failure():
            until(lambda: recorder.dropped_events > 0, recorder, lambda: use(cache))
            assert recorder.degraded
            recorder.flush()
        # A connection that was opened under the failure can bring a second, short outage.
        until(lambda: recorder.durable_seq == recorder.last_seq, recorder, recorder.flush)
        use(cache)
        recorder.close()

        reader = journal.reader()
        assert reader.head().seq == recorder.last_seq
        gaps = [one.event for one in reader.events() if type(one.event) is EventsDropped]
        dropped = [seq for gap in gaps for seq in range(gap.first_seq, gap.last_seq + 1)]
        assert len(dropped) == recorder.dropped_events > 0
        stored = [int(one.seq) for one in reader.events()]
        assert sorted(stored + dropped) == list(range(1, recorder.last_seq + 1))
        assert list(journal.verify()) == []
        assert stored_digest(journal) == cache.digest()
        verdict = audit(reader, chain=journal.verify())
        assert (verdict.verdict, len(verdict.gaps)) == ("unverified", len(gaps))


@pytest.mark.parametrize("failing", FAILURES, indirect=True)
def test_a_short_outage_costs_a_degraded_recorder_nothing(failing: tuple[str, Failure]) -> None:
    url, failure = failing
    with Journal.open(url, lock_timeout_s=LOCK_TIMEOUT_S) as journal:
        recorder = journal.record(on_failure="degrade")
        cache = HybridCache(CONFIG, sink=recorder)
        recorder.flush()
        reconnect(recorder)
        with failure():
            take(cache, 40)
            until(lambda: recorder.degraded, recorder)
            use(cache, times=20)
            assert recorder.queued_events == recorder.last_seq - recorder.durable_seq > 40
        until(lambda: not recorder.degraded, recorder)
        recorder.close()
        assert recorder.dropped_events == 0
        assert audit(journal.reader(), chain=journal.verify()).verdict == "pass"
        assert stored_digest(journal) == cache.digest()


@pytest.mark.parametrize("failing", ["disk full", "server stopped"], indirect=True)
def test_a_recorder_that_closes_during_an_outage_says_what_was_not_stored(
    failing: tuple[str, Failure],
) -> None:
    url, failure = failing
    with Journal.open(url, lock_timeout_s=LOCK_TIMEOUT_S) as journal:
        recorder = journal.record(on_failure="degrade")
        cache = HybridCache(CONFIG, sink=recorder)
        recorder.flush()
        seq = recorder.durable_seq
        reconnect(recorder)
        with failure():
            use(cache, times=20)
            with pytest.raises(JournalError, match="40 events held and 0 given up"):
                recorder.close()
        assert journal.reader().head().seq == seq
        assert list(journal.verify()) == []


def test_a_server_that_dies_in_the_middle_of_a_transaction_leaves_no_part_of_it(
    postgresql_server: PostgresqlServer, postgresql_store: str
) -> None:
    database = postgresql_store.rpartition("/")[2]
    with Journal.open(postgresql_store) as journal:
        recorder = journal.record(durability="background")
        cache = HybridCache(CONFIG, sink=recorder)
        cache.alloc(PAGE)
        recorder.flush()
        stored = stored_digest(journal)
        other = psycopg.connect(postgresql_store.replace("+psycopg", ""))
        other.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        cache.alloc(PAGE)
        # Its transaction's row is written, its events wait for the lock.
        waiting = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database}' AND wait_event_type = 'Lock'"
        until(lambda: bool(execute(postgresql_server, waiting)), recorder)
        postgresql_server.stop(mode="immediate")
        other.close()
        try:
            with pytest.raises(JournalError, match="after seq 2 "):
                recorder.flush()
            with pytest.raises(JournalError):
                recorder.close()
        finally:
            postgresql_server.start()
        assert journal.reader().head().seq == 2
        assert list(journal.verify()) == []
        assert stored_digest(journal) == stored


def test_a_commit_whose_answer_was_lost_is_found_in_the_store_and_not_repeated(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(store) as journal:
        recorder = journal.record(on_failure="degrade")
        cache = HybridCache(CONFIG, sink=recorder)
        recorder.flush()
        writer: Any = recorder._writer
        commit, failed = writer._commit, list[bool]()

        def commit_and_lose_the_answer(*rows: Any) -> None:
            commit(*rows)
            if not failed:
                failed.append(True)
                raise StoreUnavailable("the connection was lost")

        monkeypatch.setattr(writer, "_commit", commit_and_lose_the_answer)
        use(cache)
        until(lambda: bool(failed), recorder)
        until(lambda: not recorder.degraded, recorder)
        use(cache)
        recorder.close()
        assert recorder.dropped_events == 0
        assert [one.seq for one in journal.reader().events()] == list(range(1, recorder.last_seq + 1))
        assert audit(journal.reader(), chain=journal.verify()).verdict == "pass"
        assert recorder.counters.events == recorder.last_seq


def test_a_commit_whose_answer_was_lost_counts_and_halts_at_the_next(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(store) as journal:
        recorder = journal.record(durability="commit")
        cache = HybridCache(CONFIG, sink=recorder)
        writer: Any = recorder._writer
        commit = writer._commit

        def commit_and_lose_the_answer(*rows: Any) -> None:
            commit(*rows)
            raise StoreUnavailable("the connection was lost")

        monkeypatch.setattr(writer, "_commit", commit_and_lose_the_answer)
        cache.alloc(PAGE)
        digest, seq = cache.digest(), recorder.durable_seq
        with pytest.raises(JournalError, match=f"after seq {seq} .*the connection was lost"):
            cache.alloc(PAGE)
        with pytest.raises(JournalError):
            recorder.close()
        assert journal.reader().head().seq == seq == recorder.last_seq
        assert stored_digest(journal) == digest == cache.digest()


def test_a_commit_whose_fate_cannot_be_learnt_says_so(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.open(store) as journal:
        recorder = journal.record(durability="commit")
        cache = HybridCache(CONFIG, sink=recorder)

        def away(*rows: Any) -> None:
            raise StoreUnavailable("the server is away")

        monkeypatch.setattr(recorder._writer, "_commit", away)
        monkeypatch.setattr(recorder._writer, "resync", away)
        with pytest.raises(JournalError, match="whether the batch that failed was stored is not known"):
            cache.alloc(PAGE)
        with pytest.raises(JournalError):
            recorder.close()


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def replace(path: Path) -> None:
    """By a fresh store, in which somebody else has started a journal of the same id."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").rename(f"{path}-old{suffix}")
    with Journal.open(path) as journal:
        journal.record().close()


@pytest.mark.parametrize("take_away", [delete, move, replace])
@pytest.mark.parametrize("durability", ["commit", "background"])
def test_nothing_is_durable_in_a_file_that_was_taken_away(
    tmp_path: Path, take_away: Callable[[Path], None], durability: Any
) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal:
        recorder = journal.record(durability=durability)
        cache = HybridCache(CONFIG, sink=recorder)
        recorder.flush()
        seq = recorder.durable_seq
        take_away(path)
        with suppress(JournalError):  # at once or at the flush, as the durability says
            cache.alloc(PAGE)
        with pytest.raises(JournalError, match="removed or replaced"):
            recorder.flush()
        with pytest.raises(JournalError, match="removed or replaced"):
            recorder.close()
    assert recorder.durable_seq == seq
    if take_away is replace:
        with Journal.open(path) as journal:
            assert journal.reader().head().seq == 0
    else:
        assert not path.exists()


def test_a_write_ahead_log_that_was_removed_ends_the_recording(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        recorder = journal.record(durability="commit")
        cache = HybridCache(CONFIG, sink=recorder)
        (tmp_path / "run.db-wal").unlink()
        with suppress(JournalError):  # it may be found in the file after all, once the old log was let go
            cache.alloc(PAGE)
        with pytest.raises(JournalError, match=r"write-ahead log of .* was removed"):
            cache.alloc(PAGE)
        with pytest.raises(JournalError, match="write-ahead log"):
            recorder.close()
        assert journal.reader().head().seq == recorder.durable_seq


def test_a_degraded_recorder_does_not_go_on_in_another_store(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        recorder = journal.record(on_failure="degrade")
        cache = HybridCache(CONFIG, sink=recorder)
        recorder.flush()
        seq = recorder.durable_seq
        replace(tmp_path / "run.db")
        cache.alloc(PAGE)
        until(lambda: not recorder._thread.is_alive(), recorder)
        with pytest.raises(JournalError, match="was replaced"):
            cache.alloc(PAGE)
        with pytest.raises(JournalError, match="was replaced"):
            recorder.close()
        assert recorder.durable_seq == seq


def test_a_degraded_recorder_goes_on_where_its_file_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal:
        recorder = journal.record(on_failure="degrade")
        cache = HybridCache(CONFIG, sink=recorder)
        recorder.flush()
        aside = [(Path(f"{path}{suffix}"), tmp_path / f"aside{suffix}") for suffix in ("", "-wal", "-shm")]
        for one, other in aside:
            one.rename(other)
        use(cache)
        until(lambda: recorder.degraded, recorder)
        for one, other in aside:
            if other.exists():
                other.rename(one)
        until(lambda: not recorder.degraded, recorder)
        recorder.close()
        assert (recorder.dropped_events, recorder.durable_seq) == (0, recorder.last_seq)
        assert audit(journal.reader(), chain=journal.verify()).verdict == "pass"
        assert stored_digest(journal) == cache.digest()


@pytest.mark.parametrize("on_failure", ["halt", "degrade"])
def test_an_error_of_the_upkeep_stops_no_recording_and_is_told_at_the_end(
    store: str, on_failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.open(store) as journal:
        recorder = journal.record(on_failure=on_failure, checkpoint_every=1)

        def fail(**how: Any) -> bool:
            raise OSError("the folder is on fire")

        monkeypatch.setattr(recorder.keeper, "work", fail)
        cache = HybridCache(CONFIG, sink=recorder)
        use(cache, times=3)
        recorder.flush()
        with pytest.raises(JournalError, match=r"every event is stored, but .* on fire"):
            recorder.close()
        assert "on fire" in str(recorder.upkeep_problem)
        assert journal.reader().head().seq == recorder.last_seq
        assert stored_digest(journal) == cache.digest()


def test_an_event_that_no_store_can_take_is_given_up_alone_and_at_once(store: str) -> None:
    bad = record(Evicted(0, 0, 0, 0), MappingSet(wide_pages([2**40]), pages([1])), op="bad")
    with Journal.open(store) as journal:
        recorder = journal.record(on_failure="degrade", durability="commit")
        recorder.append(record(opened()))
        for op in ("good", "bad", "late"):
            recorder.append(bad if op == "bad" else record(Evicted(0, 0, 0, 0), op=op))
        recorder.close()
        reader = journal.reader()
        assert [one.op for one in reader.transactions()] == ["op", "good", "events_dropped", "late"]
        assert [int(one.seq) for one in reader.events()] == [1, 2, 5, 6]
        assert (recorder.dropped_events, recorder.last_seq, recorder.durable_seq) == (2, 6, 6)
        assert list(journal.verify()) == []


def test_a_journal_that_another_program_wrote_to_stops_a_degraded_recorder_too(store: str) -> None:
    with Journal.open(store) as journal:
        recorder = journal.record(on_failure="degrade", durability="commit")
        info = journal.reader().info
        engine = writing_engine(store_url(store))
        intruder = RowWriter(engine, journal_id=info.id, genesis=info.genesis)
        intruder.store([Submission(record(opened(), op="theirs"), 1)])
        intruder.close()
        engine.dispose()
        recorder.append(record(opened(), op="mine"))
        with pytest.raises(JournalError, match="another program wrote"):
            recorder.close()
        assert [one.op for one in journal.reader().transactions()] == ["theirs"]
