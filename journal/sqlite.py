"""SQLite as a store: one file, a write-ahead log, one writer at a time.

pysqlite begins transactions late and on its own terms, so its transaction control is switched off and BEGIN
is emitted here: BEGIN IMMEDIATE for the writer, which then either has the write lock or waits for it, and a
plain BEGIN for readers, whose connections are `query_only`. WAL lets readers go on while the writer commits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.pool import NullPool, QueuePool

from kvledger.core.errors import InvalidArgument, JournalError, UnknownJournal
from kvledger.journal.backend import InsertRows, Sync

WAL_LIMIT_BYTES = 64 * 2**20
"""The write-ahead log is cut back to this after a checkpoint, so one long reader leaves no giant behind."""

PAGE_BYTES = 8_192
"""Page size of a new database. Event rows are a few hundred bytes in a clustered table, whose pages hold at
most a quarter of a page per row: at SQLite's usual 4,096 they stay half empty."""


class SqliteBackend:
    """Stores in files of SQLite."""

    makes_stores = True

    def name(self, url: URL) -> str:
        """The file's path."""
        return str(database_path(url))

    def check_url(self, url: URL) -> URL:
        """Refuse a database in memory, which no second connection can see, with InvalidArgument."""
        if not url.database or url.database == ":memory:" or url.query:
            given = url.render_as_string()
            raise InvalidArgument(f"{given!r} names no plain file; in memory, use kvledger.core.MemorySink")
        return url

    def check_reachable(self, url: URL, *, create: bool) -> bool:
        """Whether the file is there. Raises for a folder, and for a missing file that must not be made."""
        path = database_path(url)
        if path.is_dir():
            raise JournalError(f"{path} is a folder, not a database")
        if path.exists():
            return True
        if not create:
            raise UnknownJournal(f"there is no database {path}")
        if not path.absolute().parent.is_dir():
            raise JournalError(f"{path} cannot be made: its folder does not exist")
        return False

    def reading_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine whose connections cannot change the store."""
        engine = sa.create_engine(url, poolclass=QueuePool, connect_args=_connect_args(lock_timeout_s))
        _take_over_transactions(engine, begin="BEGIN", pragmas=("query_only=ON",))
        return engine

    def writing_engine(self, url: URL, *, sync: Sync, lock_timeout_s: float) -> sa.Engine:
        """An engine for one writer: each transaction holds the write lock from its first statement on."""
        return _writing_engine(url, sync=sync, lock_timeout_s=lock_timeout_s, foreign_keys="ON")

    def migrating_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine for migrations, which rebuild tables: with foreign keys on, dropping the old form of a
        table would take the rows that point to it along. `check_migrated` looks at them afterwards."""
        return _writing_engine(url, sync="FULL", lock_timeout_s=lock_timeout_s, foreign_keys="OFF")

    def begin_migration(self, connection: sa.Connection) -> None:
        """Nothing more to do: BEGIN IMMEDIATE keeps every other migration out."""

    def check_migrated(self, connection: sa.Connection) -> None:
        """Raise JournalError when a row has lost the row that it points to."""
        lost = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if lost is not None:
            raise JournalError(f"the migration would leave rows of {lost[0]} without their {lost[2]}")

    def row_inserter(self, dialect: sa.Dialect, table: sa.Table, columns: Sequence[str]) -> InsertRows:
        """Tuples straight to the driver: SQLAlchemy's own path, which makes a dictionary of each, costs three
        times as much as SQLite itself."""
        compiled = sa.insert(table).compile(dialect=dialect, column_keys=list(columns))
        if compiled.positiontup != list(columns):
            raise JournalError(f"{dialect.name} takes parameters in another order than {columns}")
        text = str(compiled)

        def insert(connection: sa.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
            connection.exec_driver_sql(text, rows)

        return insert


def database_path(url: URL) -> Path:
    """The file behind an SQLite URL."""
    return Path(url.database or "")


def _writing_engine(url: URL, *, sync: Sync, lock_timeout_s: float, foreign_keys: str) -> sa.Engine:
    engine = sa.create_engine(url, poolclass=NullPool, connect_args=_connect_args(lock_timeout_s))
    _take_over_transactions(
        engine,
        begin="BEGIN IMMEDIATE",
        pragmas=(
            f"page_size={PAGE_BYTES}",
            "journal_mode=WAL",
            f"synchronous={sync}",
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            f"foreign_keys={foreign_keys}",
        ),
    )
    return engine


def _connect_args(lock_timeout_s: float) -> dict[str, Any]:
    return {"timeout": lock_timeout_s, "check_same_thread": False}


def _take_over_transactions(engine: sa.Engine, *, begin: str, pragmas: tuple[str, ...]) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin_explicitly(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)
