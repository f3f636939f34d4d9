"""Connections to a store: from a URL or a path to two engines, one that writes and one that only reads.

pysqlite begins transactions late and on its own terms, so its transaction control is switched off and BEGIN
is emitted here: BEGIN IMMEDIATE for the writer, which then either has the write lock or waits for it, and a
plain BEGIN for readers, whose connections are `query_only`. WAL lets readers go on while the writer commits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, QueuePool

from kvledger.core.errors import InvalidArgument, JournalError, JournalFormatError, UnknownJournal
from kvledger.journal.models import SCHEMA_REVISION, SCHEMA_TABLE

BUSY_TIMEOUT_SECONDS = 10.0
"""How long a connection waits for another program's lock before it gives up."""

WAL_LIMIT_BYTES = 64 * 2**20
"""The write-ahead log is cut back to this after a checkpoint, so one long reader leaves no giant behind."""

PAGE_BYTES = 8_192
"""Page size of a new database. Event rows are a few hundred bytes in a clustered table, whose pages hold at
most a quarter of a page per row: at SQLite's usual 4,096 they stay half empty."""

Sync = Literal["FULL", "NORMAL"]
"""FULL: a commit returns when it is on the disk. NORMAL: a power cut, but no crash, may still lose it."""


def store_url(url_or_path: str | PathLike[str]) -> URL:
    """The SQLAlchemy URL of a store named by URL or by a file's path.

    Raises InvalidArgument for a malformed URL or an in-memory database, which no second connection can see;
    JournalError for a database that is not SQLite.
    """
    given = str(url_or_path)
    if not given:
        raise InvalidArgument("a journal needs the path or URL of its database")
    if "://" not in given:
        return URL.create("sqlite", database=str(Path(given).expanduser()))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError) as error:
        raise InvalidArgument(f"{given!r} is no database URL: {error}") from error
    if url.get_backend_name() != "sqlite":
        raise JournalError(f"journals are stored in SQLite, not in {url.get_backend_name()}")
    if not url.database or url.database == ":memory:" or url.query:
        raise InvalidArgument(f"{given!r} names no plain file; in memory, use core.events.MemorySink")
    return url


def database_path(url: URL) -> Path:
    """The file behind an SQLite URL made by `store_url`."""
    return Path(url.database or "")


def reading_engine(url: URL) -> sa.Engine:
    """An engine whose connections cannot change the store."""
    engine = sa.create_engine(url, poolclass=QueuePool, connect_args=_connect_args())
    _take_over_transactions(engine, begin="BEGIN", pragmas=("query_only=ON",))
    return engine


def writing_engine(url: URL, *, sync: Sync = "FULL") -> sa.Engine:
    """An engine for one writer: each transaction holds the write lock from its first statement on."""
    engine = sa.create_engine(url, poolclass=NullPool, connect_args=_connect_args())
    _take_over_transactions(
        engine,
        begin="BEGIN IMMEDIATE",
        pragmas=(
            f"page_size={PAGE_BYTES}",
            "journal_mode=WAL",
            f"synchronous={sync}",
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            "foreign_keys=ON",
        ),
    )
    return engine


def _connect_args() -> dict[str, Any]:
    return {"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False}


def _take_over_transactions(engine: sa.Engine, *, begin: str, pragmas: tuple[str, ...]) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin_explicitly(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Turn whatever the database raises inside the block into a JournalError that says what was tried."""
    try:
        yield
    except DBAPIError as error:
        raise JournalError(f"{what}: {error.orig}") from error
    except SQLAlchemyError as error:
        raise JournalError(f"{what}: {error}") from error


def schema_revision(connection: sa.Connection) -> str | None:
    """The schema revision of a store, None where there is none yet."""
    if not sa.inspect(connection).has_table(SCHEMA_TABLE):
        return None
    revision: str | None = connection.execute(sa.text(f"SELECT version_num FROM {SCHEMA_TABLE}")).scalar()
    return revision


def prepare_store(url: URL, *, create: bool) -> None:
    """Make sure that a store of the newest schema stands behind `url`.

    With `create` a missing file is made. Raises UnknownJournal for a missing file or a database that is no
    store when `create` is False; JournalError for a file that is no database or cannot be opened;
    JournalFormatError for a store of a newer version.
    """
    path = database_path(url)
    if path.is_dir():
        raise JournalError(f"{path} is a folder, not a database")
    if not path.exists():
        if not create:
            raise UnknownJournal(f"there is no database {path}")
        if not path.absolute().parent.is_dir():
            raise JournalError(f"{path} cannot be made: its folder does not exist")
    found = None
    if path.exists():
        reader = reading_engine(url)
        try:
            with database_errors(f"{path} cannot be opened as a database"), reader.connect() as connection:
                found = schema_revision(connection)
        finally:
            reader.dispose()
        if found == SCHEMA_REVISION:
            return
        if found is None and not create:
            raise UnknownJournal(f"{path} is a database without journals")
    migrate(url)


def migrate(url: URL) -> None:
    """Bring the store behind `url` to the newest schema, in one transaction. Errors as `prepare_store`."""
    path = database_path(url)
    engine = writing_engine(url)
    try:
        with database_errors(f"the tables in {path} cannot be made"), engine.begin() as connection:
            # Another process may have migrated while this one waited for the write lock.
            if schema_revision(connection) == SCHEMA_REVISION:
                return
            config = migration_config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except CommandError as error:
        raise JournalFormatError(f"{path} was written by a newer version: {error}") from error
    finally:
        engine.dispose()


def migration_config() -> Config:
    """Alembic's configuration for the migrations shipped in the package."""
    config = Config()
    config.set_main_option("script_location", "kvledger:migrations")
    return config
