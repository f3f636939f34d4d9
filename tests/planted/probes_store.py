"""Probes of the database under a journal: how it begins and undoes, how it migrates, how its log grows."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kvledger.core.errors import JournalError
from kvledger.journal import Journal, sqlite
from kvledger.journal.database import database_errors, store_url, writing_engine
from kvledger.journal.migration import migrate, migration_config, prepare_store
from kvledger.journal.models import SCHEMA_REVISION
from kvledger.journal.rows import Submission
from tests.support.recorded_run import small_run

REBUILD = f'''
import sqlalchemy as sa
from alembic import op

revision = "planted"
down_revision = "{SCHEMA_REVISION}"


def upgrade():
    with op.batch_alter_table("journals", recreate="always") as table:
        table.add_column(sa.Column("rank", sa.Integer(), nullable=False, server_default="7"))
'''


def begun_at_once(folder: Path) -> str | None:
    """A writer has the write lock from its BEGIN on: whoever comes later waits, and its reads stay true."""
    url = store_url(folder / "run.db")
    prepare_store(url, create=True)
    engine = writing_engine(url, lock_timeout_s=0)
    try:
        with engine.connect() as first, engine.connect() as second, database_errors("the second writer"):
            with first.begin():
                first.exec_driver_sql("SELECT count(*) FROM journals").all()
                try:
                    with second.begin():
                        second.exec_driver_sql(
                            "INSERT INTO journals VALUES (7, 'e', 'n', NULL, 'full', 2, 0)"
                        )
                except Exception:
                    pass_on = True
                else:
                    pass_on = False
                first.exec_driver_sql("INSERT INTO journals VALUES (8, 'f', 'n', NULL, 'full', 2, 0)")
            return None if pass_on else "both wrote"
    except JournalError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        engine.dispose()


def savepoints_undone(folder: Path) -> str | None:
    """A savepoint that was released goes when the transaction around it is rolled back."""
    path = folder / "run.db"
    prepare_store(store_url(path), create=True)
    engine = writing_engine(store_url(path))
    with engine.connect() as writer:
        transaction = writer.begin()
        with writer.begin_nested():
            writer.exec_driver_sql("INSERT INTO journals VALUES (1, 'e', 'n', NULL, 'full', 2, 0)")
        transaction.rollback()
    engine.dispose()
    with closing(sqlite3.connect(path)) as other:
        (left,) = other.execute("SELECT count(*) FROM journals").fetchone()
    return None if not left else f"a second connection finds {left} rows that were rolled back"


def the_log_stays_short(folder: Path) -> str | None:
    """The write-ahead log is put into the file as it grows; its gauge is the backend's `log`."""
    url = store_url(folder / "run.db")
    pages = 16
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "WAL_PAGES", pages)
        with Journal.open(folder / "run.db") as journal, journal.record(durability="background") as recorder:
            writer = recorder._writer
            largest = 0
            for record in small_run(40):
                writer.store([Submission(record, 0)])
                seen = sqlite.SqliteBackend().log(url)
                largest = max(largest, 0 if seen is None else seen.length)
    limit = 4 * pages * (sqlite.PAGE_BYTES + sqlite.WAL_FRAME_HEADER_BYTES)
    return (
        None if largest < limit else f"`SqliteBackend.log` shows {largest} bytes, {limit} at most are right"
    )


def migrated(folder: Path) -> str | None:
    """A store with a journal in it gets a revision that changes the table which all others point to."""
    path = folder / "old.db"
    with Journal.open(path) as journal, journal.record(durability="background") as recorder:
        for record in small_run(12):
            recorder.append(record)
    versions = folder / "versions"
    versions.mkdir()
    (versions / "planted.py").write_text(REBUILD)
    config = migration_config()
    shipped = Path(__file__).parents[2] / "alembic" / "versions"
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{shipped}\n{versions}")
    before = _rows_of(path)
    try:
        migrate(store_url(path), config=config)
    except JournalError as error:
        return f"{type(error).__name__}: {error}"
    after = _rows_of(path)
    return None if before == after else f"a populated fixture of {before} rows has {after}"


def _rows_of(path: Path) -> list[int]:
    """How many rows the tables have that point to a journal."""
    with closing(sqlite3.connect(path)) as file:
        tables = ("transactions", "events", "checkpoints")
        return [file.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]
