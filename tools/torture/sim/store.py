"""The database under a simulation's journal: a file of its own, made from a migrated template, that can fail.

Faults happen as a transaction of an engine that writes to this file begins, as it commits, and after it
committed, when only the answer is lost: by SQLAlchemy's own events, and around the transactions in which
rows are inserted, of which SQLAlchemy does not hear. Everything else is the real store.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from kvledger.journal import Journal
from kvledger.journal.sqlite import SqliteBackend

WAYS = ("begin", "begin", "commit", "commit", "answer", "never")
"""How a store fails: nothing reaches it; it takes nothing for good; it takes all and the answer is lost; it
will never take these rows."""

MEMORY_FOLDER = Path("/dev/shm")
"""Where a file is memory; where there is none, a temporary folder does."""


@dataclass
class Failing:
    """How the store fails, and how often still; `times` below 0 is until it is healed."""

    way: str = ""
    times: int = 0

    @property
    def on(self) -> bool:
        """Whether the next use can fail."""
        return self.times != 0

    def heal(self) -> None:
        """No more failures."""
        self.times = 0

    def fails(self, *ways: str) -> bool:
        """Whether this use fails, if it is one of `ways`."""
        if not self.times or self.way not in ways:
            return False
        if self.times > 0:
            self.times -= 1
        return True


class Store:
    """One file, and how it fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failing = Failing()

    def is_written_by(self, connection: sa.Connection) -> bool:
        """Whether a connection belongs to this file."""
        return connection.engine.url.database == str(self.path)

    def begin(self, connection: sa.Connection) -> None:
        """As a transaction begins."""
        if self.is_written_by(connection) and self.failing.fails("begin"):
            raise OperationalError("BEGIN", None, sqlite3.OperationalError("the store is away"))

    def commit(self, connection: sa.Connection) -> None:
        """As a transaction commits."""
        if not self.is_written_by(connection):
            return
        if self.failing.fails("never"):
            raise IntegrityError("COMMIT", None, sqlite3.IntegrityError("the store will not have it"))
        if self.failing.fails("commit"):
            raise OperationalError("COMMIT", None, sqlite3.OperationalError("the store went away"))
        if self.failing.fails("answer"):
            driver: Any = connection.connection.driver_connection
            driver.commit()
            raise OperationalError("COMMIT", None, sqlite3.OperationalError("the answer was lost"))


@contextmanager
def _failing_inserts(store: Store) -> Iterator[None]:
    """Inside the block, transactions in which rows are inserted fail as `store` says."""
    inserting = SqliteBackend.inserting

    @contextmanager
    def failing(backend: SqliteBackend, connection: sa.Connection) -> Iterator[None]:
        store.begin(connection)
        with inserting(backend, connection):
            yield
            store.commit(connection)

    SqliteBackend.inserting = failing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        SqliteBackend.inserting = inserting  # type: ignore[method-assign]


class Stores:
    """A folder of stores, one for each seed; the migrations are run once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._template = folder / "template.db"
        Journal.open(self._template).close()

    @contextmanager
    def one(self) -> Iterator[Store]:
        """A new empty store, removed afterwards."""
        path = self._folder / "run.db"
        shutil.copyfile(self._template, path)
        store = Store(path)
        event.listen(sa.Engine, "begin", store.begin)
        event.listen(sa.Engine, "commit", store.commit)
        try:
            with _failing_inserts(store):
                yield store
        finally:
            event.remove(sa.Engine, "begin", store.begin)
            event.remove(sa.Engine, "commit", store.commit)
            for left in self._folder.glob("run.db*"):
                left.unlink()


@contextmanager
def stores() -> Iterator[Stores]:
    """A folder of stores, in memory where that can be had, removed afterwards."""
    where = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="kvledger-torture-", dir=where) as folder:
        yield Stores(Path(folder))
