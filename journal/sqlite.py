"""SQLite as a store: one file, a write-ahead log, one writer at a time.

pysqlite begins transactions late and on its own terms, so its transaction control is switched off and BEGIN
is emitted here: BEGIN IMMEDIATE for the writer, which then either has the write lock or waits for it, and a
plain BEGIN for readers, whose connections are `query_only`. WAL lets readers go on while the writer commits.

Only a migration makes a file; every other connection wants one that is there, so that a file which was taken
away is missed and not replaced by an empty one.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool, QueuePool

from kvledger.core.errors import InvalidArgument, JournalError, StoreUnavailable, UnknownJournal
from kvledger.journal.backend import LOCK_TIMEOUT_SECONDS, FileSeen, InsertRows, Sync

WAL_LIMIT_BYTES = 16 * 2**20
"""The log is cut back to this after a WAL checkpoint, so one long reader leaves no giant behind."""

WAL_PAGES = 1_000
"""Pages in the write-ahead log from which on they are put into the file and the log begins anew: 8 MiB. It
grows beyond by the transaction that is under way, or while a reader stays in the middle of it. Part of what a
journal may take beside its max_bytes (kvledger.journal.growth)."""

PAGE_BYTES = 8_192
"""Page size of a new database. Event rows are a few hundred bytes in a clustered table, whose pages hold at
most a quarter of a page per row: at SQLite's usual 4,096 they stay half empty."""


WAL_HEADER_BYTES = 32
WAL_FRAME_HEADER_BYTES = 24
"""What stands in a write-ahead log besides pages: once, and before each (sqlite.org/fileformat2.html)."""

LARGEST_FILE_BYTES = 2**48
"""No database of SQLite is larger: its file is never cut, unless somebody compacts it."""


class SqliteBackend:
    """Stores in files of SQLite."""

    makes_stores = True
    as_the_newest = frozenset({"0002"})

    def name(self, url: URL) -> str:
        """The file's path."""
        return str(database_path(url))

    def located(self, url: URL) -> URL:
        """The URL with the file's absolute path."""
        return url.set(database=str(database_path(url).absolute()))

    def check_url(self, url: URL) -> URL:
        """Refuse a database in memory, which no second connection can see, with InvalidArgument."""
        if not url.database or url.database == ":memory:" or url.query:
            given = url.render_as_string()
            raise InvalidArgument(f"{given!r} names no plain file; in memory, use kvledger.core.MemorySink")
        return url

    def check_reachable(self, url: URL, *, create: bool) -> bool:
        """Whether the file is there. Raises for a folder, and for a missing file that must not be made."""
        path = database_path(url)
        _refuse_unless_a_path(path)
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
        """An engine whose connections cannot change the store, which may lie on a read-only medium."""
        path = database_path(url).absolute()
        engine = sa.create_engine(
            url, poolclass=QueuePool, creator=lambda: _connect(path, _reading_mode(path), lock_timeout_s)
        )
        _take_over_transactions(engine, begin="BEGIN", pragmas=("query_only=ON",))
        return engine

    def writing_engine(self, url: URL, *, sync: Sync, lock_timeout_s: float) -> sa.Engine:
        """An engine for one writer: each transaction holds the write lock from its first statement on."""
        return _writing_engine(url, "rw", sync=sync, lock_timeout_s=lock_timeout_s, foreign_keys="ON")

    def migrating_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine for migrations, which rebuild tables: with foreign keys on, dropping the old form of a
        table would take the rows that point to it along. `check_migrated` looks at them afterwards."""
        return _writing_engine(url, "rwc", sync="FULL", lock_timeout_s=lock_timeout_s, foreign_keys="OFF")

    @contextmanager
    def deleting_in_order(self, connection: sa.Connection) -> Iterator[None]:
        """With foreign keys off, on this connection alone: SQLite would read all events that are left for
        each transaction that goes, for no index says which are its own."""
        # Through the driver: SQLAlchemy would begin a transaction first, in which the pragma does nothing.
        driver: Any = connection.connection.driver_connection
        (before,) = driver.execute("PRAGMA foreign_keys").fetchone()
        driver.execute("PRAGMA foreign_keys=OFF").close()
        try:
            yield
        finally:
            driver.execute(f"PRAGMA foreign_keys={before}").close()

    def begin_migration(self, connection: sa.Connection) -> None:
        """Nothing more to do: BEGIN IMMEDIATE keeps every other migration out."""

    def check_migrated(self, connection: sa.Connection) -> None:
        """Raise JournalError when a row has lost the row that it points to."""
        lost = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
        if lost is not None:
            raise JournalError(f"the migration would leave rows of {lost[0]} without their {lost[2]}")

    def file(self, url: URL) -> FileSeen:
        """The database's file, which grows only. Raises StoreUnavailable when it is gone."""
        # By its name as it stands: a Path would cost several times as much as the question, for each commit.
        try:
            found = os.stat(url.database or "")
        except OSError as error:
            raise StoreUnavailable(
                f"the file {url.database} was removed or replaced: {error.strerror}"
            ) from error
        return FileSeen((found.st_dev, found.st_ino), found.st_size, LARGEST_FILE_BYTES)

    def log(self, url: URL) -> FileSeen | None:
        """The write-ahead log, which stays the same while a connection is open and is cut to its limit."""
        try:
            found = os.stat(f"{url.database}-wal")
        except OSError:
            return None
        return FileSeen((found.st_dev, found.st_ino), found.st_size, WAL_LIMIT_BYTES)

    def is_whole(self, url: URL) -> bool:
        """Whether file and log end with a page, and SQLite's own check of every page finds nothing, on a
        connection that has read none yet. It does not look at what is in the cells: of a page that was cut
        it would take zeros for the rest."""
        path = database_path(url).absolute()
        try:
            length = path.stat().st_size
            # SQLite takes an empty file for a new database, and throws the log beside it away.
            if not length:
                return False
            with closing(_connect(path, "mode=rw", LOCK_TIMEOUT_SECONDS)) as connection:
                (page,) = connection.execute("PRAGMA page_size").fetchone()
                log = self.log(url)
                frames = 0 if log is None else max(0, log.length - WAL_HEADER_BYTES)
                if length % page or frames % (page + WAL_FRAME_HEADER_BYTES):
                    return False
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                return bool(found == "ok")
        except (OSError, sqlite3.Error):
            return False

    @contextmanager
    def inserting(self, connection: sa.Connection) -> Iterator[None]:
        """A transaction of the driver's: SQLAlchemy takes longer for what stands around one than SQLite."""
        driver: Any = connection.connection.driver_connection
        with _raised_as_by(connection.dialect, "BEGIN IMMEDIATE"):
            driver.execute("BEGIN IMMEDIATE").close()
        try:
            yield
            with _raised_as_by(connection.dialect, "COMMIT"):
                driver.execute("COMMIT").close()
        except BaseException:
            # A connection that cannot take it back is given up by whoever is told of the error.
            with suppress(sqlite3.Error):
                driver.execute("ROLLBACK").close()
            raise

    def row_inserter(self, dialect: sa.Dialect, table: sa.Table, columns: Sequence[str]) -> InsertRows:
        """Values straight to the driver, in the types that it takes as they are.

        SQLAlchemy's own path, which makes a dictionary of each row, costs three times as much as SQLite
        itself. And the sqlite3 module looks for an adapter of each None and each `bytes` that it is given,
        which costs more than storing it: so bytes go as `bytearray`, and NULL is said by a value of a type
        that the column cannot hold.
        """
        quote = dialect.identifier_preparer.quote
        names = ", ".join(quote(column) for column in columns)
        forms = [_bound(table.c[column]) for column in columns]
        marks = ", ".join(form.mark for form in forms)
        statement = f"INSERT INTO {quote(table.name)} ({names}) VALUES ({marks})"

        def insert(connection: sa.Connection, given: Sequence[Sequence[Any]]) -> None:
            driver: Any = connection.connection.driver_connection
            bound = [form.bind(values) for form, values in zip(forms, given, strict=True)]
            with _raised_as_by(dialect, statement):
                # Lazily: tuples for all rows of a batch at once are work for the garbage collector.
                driver.executemany(statement, zip(*bound, strict=True)).close()

        return insert


@contextmanager
def _raised_as_by(dialect: sa.Dialect, statement: str) -> Iterator[None]:
    """What the driver raises inside the block comes out as SQLAlchemy's own exceptions do."""
    try:
        yield
    except sqlite3.Error as error:
        raise DBAPIError.instance(
            statement, None, error, sqlite3.Error, hide_parameters=True, dialect=dialect
        ) from error


class _Bound(NamedTuple):
    """How the values of a column are handed to the driver, and what stands for one in the statement."""

    mark: str
    bind: Callable[[Sequence[Any]], Iterable[Any]]


def _bound(column: sa.Column[Any]) -> _Bound:
    binary = isinstance(column.type, sa.LargeBinary)
    if not column.nullable:
        return _Bound("?", _as_bytearrays if binary else iter)
    if binary:
        return _Bound("nullif(?, 0)", _as_bytearrays_or_0)
    if column.type.python_type is int:
        return _Bound("nullif(?, '')", lambda values: ["" if value is None else value for value in values])
    return _Bound("nullif(?, 0)", lambda values: [0 if value is None else value for value in values])


def _as_bytearrays(values: Sequence[bytes]) -> Iterable[bytearray]:
    return map(bytearray, values)


def _as_bytearrays_or_0(values: Sequence[bytes | None]) -> Iterable[bytearray | int]:
    return [0 if value is None else bytearray(value) for value in values]


def database_path(url: URL) -> Path:
    """The file behind an SQLite URL."""
    return Path(url.database or "")


def _refuse_unless_a_path(path: Path) -> None:
    try:
        unfit = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        unfit = True
    if unfit:
        raise InvalidArgument(f"no file can have the name {str(path)!r}")


def _writing_engine(
    url: URL, mode: str, *, sync: Sync, lock_timeout_s: float, foreign_keys: str
) -> sa.Engine:
    path = database_path(url).absolute()
    engine = sa.create_engine(
        url.set(database=str(path)),
        poolclass=NullPool,
        creator=lambda: _connect(path, f"mode={mode}", lock_timeout_s),
    )
    _take_over_transactions(
        engine,
        begin="BEGIN IMMEDIATE",
        pragmas=(
            f"page_size={PAGE_BYTES}",
            "journal_mode=WAL",
            f"synchronous={sync}",
            f"journal_size_limit={WAL_LIMIT_BYTES}",
            f"wal_autocheckpoint={WAL_PAGES}",
            f"foreign_keys={foreign_keys}",
        ),
    )
    return engine


def _connect(path: Path, how: str, lock_timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{how}", uri=True, timeout=lock_timeout_s, check_same_thread=False
    )


def _can_add_to(folder: Path) -> bool:
    return os.access(folder, os.W_OK)


def _reading_mode(path: Path) -> str:
    """How to open a file for reading. Readers of a write-ahead log need its shared memory, a file beside the
    database; where none can be made, a database that no log belongs to is complete and read as it stands."""
    if _can_add_to(path.parent):
        return "mode=rw"
    log, shared = Path(f"{path}-wal"), Path(f"{path}-shm")
    if log.exists() and shared.exists():
        return "mode=rw"
    if log.exists() and log.stat().st_size:
        raise JournalError(
            f"{path} has a write-ahead log and lies in a folder that cannot be written to: copy the database "
            f"together with its -wal file to a writable folder and open the copy"
        )
    return "mode=ro&immutable=1"


def _take_over_transactions(engine: sa.Engine, *, begin: str, pragmas: tuple[str, ...]) -> None:
    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def begin_explicitly(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)
