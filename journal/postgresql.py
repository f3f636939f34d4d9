"""PostgreSQL as a store, through psycopg 3: for several schedulers that share one.

Readers run REPEATABLE READ and READ ONLY, so that each batch of theirs is one state. Writers run READ
COMMITTED: a journal has one writer, whose batches commit one after the other, so that no reader sees a later
event before an earlier one; the keys of the tables refuse a second. Rows go in by binary COPY.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.journal.backend import InsertRows, Sync

DRIVER = "postgresql+psycopg"

MIGRATION_LOCK = 0x6B766C6A
"""Key of the advisory lock that makes migrations of one database wait for one another; "kvlj" in ASCII."""

KEEPALIVE_SECONDS = 30
"""How long a connection may be silent before the server is asked whether it is still there."""

_COPY_TYPES = {"INTEGER": "int4", "BIGINT": "int8", "TEXT": "text", "BYTEA": "bytea"}
"""What psycopg calls the types of our columns, in binary COPY."""


class PostgresqlBackend:
    """Stores in databases of PostgreSQL servers; `kvledger db upgrade` makes their tables."""

    makes_stores = False
    as_the_newest: frozenset[str] = frozenset()

    def name(self, url: URL) -> str:
        """The URL, its password hidden."""
        return url.render_as_string(hide_password=True)

    def located(self, url: URL) -> URL:
        """The same: a server is found from everywhere."""
        return url

    def check_url(self, url: URL) -> URL:
        """The URL with psycopg 3 as its driver. Raises InvalidArgument without a database or for another
        driver, JournalError where psycopg is not installed."""
        if not url.database:
            raise InvalidArgument(f"{self.name(url)} names no database")
        if url.drivername not in ("postgresql", DRIVER):
            raise InvalidArgument(f"{self.name(url)}: PostgreSQL is reached by {DRIVER}://")
        url = url.set(drivername=DRIVER)
        try:
            url.get_dialect().import_dbapi()
        except ImportError as error:
            raise JournalError(
                f"PostgreSQL needs psycopg, which cannot be loaded ({error}): "
                f"pip install 'kvledger[postgres]'"
            ) from error
        return url

    def check_reachable(self, url: URL, *, create: bool) -> bool:
        """A server answers for itself when it is asked."""
        return True

    def reading_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine of read-only transactions, each on one snapshot; a connection that died is replaced."""
        engine = sa.create_engine(
            url, poolclass=QueuePool, pool_pre_ping=True, connect_args=_connect_args(url, lock_timeout_s)
        )
        characteristics = "ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        statement = f"SET SESSION CHARACTERISTICS AS TRANSACTION {characteristics}"
        _on_connect(engine, (_lock_timeout(lock_timeout_s), statement))
        return engine

    def writing_engine(self, url: URL, *, sync: Sync, lock_timeout_s: float) -> sa.Engine:
        """An engine for one writer. A commit waits for the server's disk whatever `sync` says: the server may
        crash and come back while the recorder lives, and what it was told is durable must still be there."""
        engine = sa.create_engine(url, poolclass=NullPool, connect_args=_connect_args(url, lock_timeout_s))
        waits = (
            "SELECT set_config('synchronous_commit', 'on', false) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )
        _on_connect(engine, (_lock_timeout(lock_timeout_s), waits))
        return engine

    def migrating_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine for migrations: the same as for writing."""
        return self.writing_engine(url, sync="FULL", lock_timeout_s=lock_timeout_s)

    def deleting_in_order(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Nothing to do: the index on the events' transactions, which only servers have, finds at once that
        there is none. Foreign keys could be switched off by a superuser alone."""
        return nullcontext()

    def begin_migration(self, connection: sa.Connection) -> None:
        """Wait for the advisory lock, which ends with the transaction."""
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))

    def check_migrated(self, connection: sa.Connection) -> None:
        """Nothing to do: foreign keys hold throughout."""

    def file(self, url: URL) -> None:
        """Nothing: a server keeps what it is asked to keep, or ends the connection."""

    def log(self, url: URL) -> None:
        """Nothing: a server's log is its own."""

    def is_whole(self, url: URL) -> bool:
        """A server answers for its own files."""
        return True

    def inserting(self, connection: sa.Connection) -> AbstractContextManager[Any]:
        """A transaction as SQLAlchemy begins it: beside the way to a server that costs nothing."""
        return connection.begin()

    def row_inserter(self, dialect: sa.Dialect, table: sa.Table, columns: Sequence[str]) -> InsertRows:
        """Binary COPY; what the driver raises comes out as SQLAlchemy's own exceptions do."""
        driver: Any = dialect.loaded_dbapi
        names = ", ".join(columns)
        statement = f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)"
        types = [_copy_type(table.c[column], dialect) for column in columns]

        def insert(connection: sa.Connection, given: Sequence[Sequence[Any]]) -> None:
            raw: Any = connection.connection.driver_connection
            try:
                with raw.cursor() as cursor, cursor.copy(statement) as copy:
                    copy.set_types(types)
                    write = copy.write_row
                    for row in zip(*given, strict=True):
                        write(row)
            except driver.Error as error:
                raise DBAPIError.instance(
                    statement, None, error, driver.Error, hide_parameters=True, dialect=dialect
                ) from error

        return insert


def _copy_type(column: sa.Column[Any], dialect: sa.Dialect) -> str:
    declared = column.type.compile(dialect=dialect)
    if declared not in _COPY_TYPES:
        raise JournalError(f"column {column} has type {declared}, which COPY was not told about")
    return _COPY_TYPES[declared]


def _connect_args(url: URL, lock_timeout_s: float) -> dict[str, Any]:
    """Limits of a connection, where the URL does not name its own."""
    ours = {
        # libpq counts whole seconds and takes 1 for 2.
        "connect_timeout": max(2, math.ceil(lock_timeout_s)),
        "keepalives_idle": KEEPALIVE_SECONDS,
        "tcp_user_timeout": KEEPALIVE_SECONDS * 1_000,
        "application_name": "kvledger",
    }
    return {name: value for name, value in ours.items() if name not in url.query}


def _lock_timeout(lock_timeout_s: float) -> str:
    return f"SET lock_timeout = {max(1, round(lock_timeout_s * 1_000))}"


def _on_connect(engine: sa.Engine, statements: Sequence[str]) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        before = connection.autocommit
        connection.autocommit = True
        for statement in statements:
            connection.execute(statement)
        connection.autocommit = before
