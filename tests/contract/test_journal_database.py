"""Transactions in the store begin when they say so, as a second connection on the file can tell."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kvledger.core.errors import JournalError, UnknownJournal
from kvledger.journal import Journal, sqlite
from kvledger.journal.database import (
    database_errors,
    reading_engine,
    store_url,
    writing_engine,
)
from kvledger.journal.migration import prepare_store
from tests.support.stored_events import opened, record
from tests.support.stores import change

INSERT = "INSERT INTO journals VALUES ({id}, 'epoch {id}', 'name', NULL, 'full', 1, 0)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "run.db"
    prepare_store(store_url(made), create=True)
    return made


@pytest.fixture
def writer(path: Path) -> Iterator[sa.Connection]:
    engine = writing_engine(store_url(path))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def reader(path: Path) -> Iterator[sa.Connection]:
    engine = reading_engine(store_url(path))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def other(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    yield connection
    connection.close()


def count(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT count(*) FROM journals").fetchone()
    return int(found)


def test_a_writer_holds_the_write_lock_from_the_start_of_its_transaction(
    writer: sa.Connection, other: sqlite3.Connection
) -> None:
    with writer.begin():
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        assert count(other) == 0
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")


def test_what_a_writer_wrote_is_seen_by_others_after_its_commit_and_not_before(
    writer: sa.Connection, other: sqlite3.Connection
) -> None:
    with writer.begin():
        writer.exec_driver_sql(INSERT.format(id=1))
        assert count(other) == 0
    assert count(other) == 1


def test_a_rollback_takes_back_released_savepoints_and_new_tables(
    writer: sa.Connection, other: sqlite3.Connection
) -> None:
    transaction = writer.begin()
    with writer.begin_nested():
        writer.exec_driver_sql(INSERT.format(id=1))
    writer.exec_driver_sql("CREATE TABLE passing (x)")
    transaction.rollback()
    assert count(other) == 0
    assert other.execute("SELECT count(*) FROM sqlite_master WHERE name = 'passing'").fetchone() == (0,)


def test_a_reader_sees_one_state_throughout_its_transaction(
    reader: sa.Connection, writer: sa.Connection
) -> None:
    query = "SELECT count(*) FROM journals"
    with reader.begin():
        assert reader.exec_driver_sql(query).scalar() == 0
        with writer.begin():
            writer.exec_driver_sql(INSERT.format(id=1))
        assert reader.exec_driver_sql(query).scalar() == 0
    assert reader.exec_driver_sql(query).scalar() == 1


def test_a_reader_cannot_write(reader: sa.Connection) -> None:
    with pytest.raises(JournalError, match="readonly"), database_errors("this must not work"):
        reader.exec_driver_sql(INSERT.format(id=1))


def test_an_event_row_of_no_transaction_is_refused(writer: sa.Connection) -> None:
    writer.exec_driver_sql(INSERT.format(id=1))
    with pytest.raises(JournalError, match="FOREIGN KEY"), database_errors("no transaction"):
        writer.exec_driver_sql("INSERT INTO events VALUES (1, 1, 1, 'evicted', 1, NULL, NULL, 0, '{}', x'')")


@pytest.mark.parametrize("sync", ["FULL", "NORMAL"])
def test_a_server_that_is_set_not_to_wait_for_its_disk_does_wait_for_a_journal(
    postgresql_store: str, sync: Any
) -> None:
    database = postgresql_store.rpartition("/")[2]
    change(postgresql_store, f"ALTER DATABASE {database} SET synchronous_commit = off")
    engine = writing_engine(store_url(postgresql_store), sync=sync)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
    engine.dispose()


def test_a_reader_of_a_server_cannot_write_and_sees_one_state_throughout_its_transaction(
    postgresql_store: str,
) -> None:
    query = "SELECT count(*) FROM journals"
    insert = "INSERT INTO journals VALUES (1, 'epoch', 'name', NULL, 'full', 1, 0)"
    engine = reading_engine(store_url(postgresql_store))
    with engine.connect() as connection:
        with connection.begin():
            assert connection.exec_driver_sql(query).scalar() == 0
            change(postgresql_store, insert)
            assert connection.exec_driver_sql(query).scalar() == 0
        with connection.begin():
            assert connection.exec_driver_sql(query).scalar() == 1
        with pytest.raises(JournalError, match="read-only"), database_errors("this must not work"):
            connection.exec_driver_sql(insert)
    engine.dispose()


@pytest.mark.parametrize(("sync", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_a_store_is_written_through_a_write_ahead_log_with_the_sync_that_was_asked_for(
    path: Path, sync: str, level: int
) -> None:
    engine = writing_engine(store_url(path), sync=sync)  # type: ignore[arg-type]
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == level
    engine.dispose()


@pytest.fixture
def read_only_medium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_can_add_to", lambda folder: False)


@pytest.mark.usefixtures("read_only_medium")
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["plain.db", "a b?c#d%41é.db"])
def test_a_closed_file_on_a_read_only_medium_is_read_and_nothing_is_put_beside_it(
    tmp_path: Path, path: Path, name: str, create: bool
) -> None:
    moved = path.rename(tmp_path / name)
    before = moved.read_bytes()
    with Journal.open(moved, create=create) as journal:
        assert journal.list() == ()
        assert [one.name for one in tmp_path.iterdir()] == [name]
    assert moved.read_bytes() == before


@pytest.mark.usefixtures("read_only_medium")
def test_a_live_file_in_a_folder_of_another_user_is_read_through_its_log(
    path: Path, writer: sa.Connection
) -> None:
    with writer.begin():
        writer.exec_driver_sql(INSERT.format(id=1))
    with Journal.open(path, create=False) as journal:
        assert [info.name for info in journal.list()] == ["name"]


@pytest.mark.usefixtures("read_only_medium")
def test_a_log_that_cannot_be_read_on_a_read_only_medium_is_not_passed_over(
    tmp_path: Path, path: Path, writer: sa.Connection
) -> None:
    with writer.begin():
        writer.exec_driver_sql(INSERT.format(id=1))
    copy = tmp_path / "medium" / "run.db"
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    with pytest.raises(JournalError, match="together with its -wal file to a writable folder"):
        Journal.open(copy, create=False)


@pytest.mark.parametrize("engine_of", [writing_engine, reading_engine])
def test_only_a_migration_makes_a_file(path: Path, engine_of: Callable[[sa.URL], sa.Engine]) -> None:
    engine = engine_of(store_url(path))
    path.unlink()
    with pytest.raises(JournalError, match="unable to open"), database_errors("gone"):
        engine.connect()
    assert not path.exists()


@pytest.mark.parametrize("form", ["run.db", "sqlite:///run.db"])
def test_a_store_that_was_opened_by_a_relative_path_stays_that_one_after_a_change_of_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Journal.open(form) as journal:
        monkeypatch.chdir(tmp_path / "elsewhere")
        # A store of the same name, which must stay as it is.
        Journal.open("run.db").close()
        with journal.record(name="mine", max_bytes=2**20, export_to="out") as recorder:
            recorder.append(record(opened()))
        assert [info.name for info in journal.list()] == ["mine"]
        assert journal.reader().head().number == 1
        assert list(journal.verify()) == []
        assert (journal.name, journal.url.database) == ("run.db", str(tmp_path / "run.db"))
        with pytest.raises(UnknownJournal, match=r"^run\.db holds no journal 7$"):
            journal.reader(7)
    with Journal.open("run.db") as other:
        assert other.list() == ()


def test_a_relative_path_means_the_same_file_after_a_change_of_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Journal.open(path.name) as journal, journal.record() as recorder:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        recorder.append(record(opened()))
        recorder.flush()
        assert recorder.durable_seq == 1
