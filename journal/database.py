"""Connections to a store: from a URL or a path to two engines, one that writes and one that only reads.

What differs between databases is behind `Backend`; this module finds the one that a URL means, and turns what
any of them raises into JournalError.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from kvledger.core.errors import InvalidArgument, JournalError, JournalFormatError, StoreUnavailable
from kvledger.journal.arguments import check_path
from kvledger.journal.backend import LOCK_TIMEOUT_SECONDS, Backend, InsertRows, Sync
from kvledger.journal.postgresql import PostgresqlBackend
from kvledger.journal.sqlite import SqliteBackend, database_path

__all__ = [
    "backend_of",
    "database_errors",
    "database_path",
    "read_rows",
    "reading",
    "reading_engine",
    "row_inserter",
    "store_name",
    "store_url",
    "stored_bytes",
    "writing_engine",
]

UNDECODABLE = "Could not decode to UTF-8"
"""How the sqlite3 module tells of text that is none: it has no class and no code of its own for it."""

BACKENDS: dict[str, Backend] = {"sqlite": SqliteBackend(), "postgresql": PostgresqlBackend()}


def store_url(url_or_path: str | PathLike[str]) -> URL:
    """The SQLAlchemy URL of a store named by URL or by a file's path.

    Raises InvalidArgument for a malformed URL or an in-memory database, which no second connection can see;
    JournalError for a database that is neither SQLite nor PostgreSQL.
    """
    given = str(url_or_path)
    if not given:
        raise InvalidArgument("a journal needs the path or URL of its database")
    if "://" not in given:
        return URL.create("sqlite", database=str(check_path(given, "the database")))
    try:
        url = make_url(given)
    except (ArgumentError, ValueError) as error:
        raise InvalidArgument(f"{given!r} is no database URL: {error}") from error
    return backend_of(url).check_url(url)


def backend_of(url: URL) -> Backend:
    """The backend that a URL means. Raises JournalError for a database that holds no journals."""
    backend = BACKENDS.get(url.get_backend_name())
    if backend is None:
        raise JournalError(f"journals are stored in SQLite or PostgreSQL, not in {url.get_backend_name()}")
    return backend


def store_name(url: URL) -> str:
    """What a message calls a store: a path, or a URL without its password."""
    return backend_of(url).name(url)


def reading_engine(url: URL, *, lock_timeout_s: float = LOCK_TIMEOUT_SECONDS) -> sa.Engine:
    """An engine whose connections cannot change the store."""
    return backend_of(url).reading_engine(url, lock_timeout_s=lock_timeout_s)


def writing_engine(
    url: URL, *, sync: Sync = "FULL", lock_timeout_s: float = LOCK_TIMEOUT_SECONDS
) -> sa.Engine:
    """An engine for one writer; its connections are not pooled."""
    return backend_of(url).writing_engine(url, sync=sync, lock_timeout_s=lock_timeout_s)


def row_inserter(engine: sa.Engine, table: Any, columns: Sequence[str]) -> InsertRows:
    """The fastest way to insert many rows of a model's `table`, given as `columns`."""
    return backend_of(engine.url).row_inserter(engine.dialect, table.__table__, columns)


class stored_bytes(FunctionElement[bytes]):
    """A text column as its stored bytes: damaged text must be found by whoever reads it, not refused by the
    driver."""

    type = sa.LargeBinary()
    inherit_cache = True


@compiles(stored_bytes)
def _cast(element: Any, compiler: Any, **how: Any) -> str:
    return f"CAST({compiler.process(element.clauses, **how)} AS BLOB)"


@compiles(stored_bytes, "postgresql")
def _convert(element: Any, compiler: Any, **how: Any) -> str:
    return f"convert_to({compiler.process(element.clauses, **how)}, 'UTF8')"


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Turn whatever the database raises inside the block into a JournalError that says what was tried.

    StoreUnavailable where trying again later may help; JournalError where the database will never take these
    rows: a key that exists, a value that a column cannot hold.
    """
    try:
        yield
    except (IntegrityError, DataError) as error:
        raise JournalError(f"{what}: {_in_one_line(error.orig)}") from error
    except DBAPIError as error:
        raise StoreUnavailable(f"{what}: {_in_one_line(error.orig)}") from error
    except SQLAlchemyError as error:
        raise JournalError(f"{what}: {error}") from error


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A connection for one short read of a journal, given back when the block ends.

    Raises as `database_errors`; JournalFormatError for a cell that is no text, or no number of the store.
    """
    try:
        with database_errors("the journal cannot be read"), engine.connect() as connection:
            yield connection
    except StoreUnavailable as error:
        if UNDECODABLE in str(error):
            raise JournalFormatError(str(error)) from error
        raise
    except OverflowError as error:
        raise JournalFormatError(f"the journal cannot be read: {error}") from error


def read_rows(engine: sa.Engine, query: Any) -> Sequence[Any]:
    """All rows of one query, read by itself as `reading` says."""
    with reading(engine) as connection:
        return connection.execute(query).all()


def _in_one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())
