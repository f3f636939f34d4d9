"""What a kind of database has to answer to hold a store: all differences stand behind it.

The implementations are kvledger.journal.sqlite and kvledger.journal.postgresql; which one a URL means is for
kvledger.journal.database to say. No other module asks what the dialect is.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.engine import URL

Sync = Literal["FULL", "NORMAL"]
"""FULL: a commit returns when it is on the disk. NORMAL: where the database makes a difference, a power cut
may still lose it, and a crash of the recording program does not."""

InsertRows = Callable[[sa.Connection, Sequence[Sequence[Any]]], None]
"""Inserts rows, given column by column, in the order of the columns that were named when it was made."""

LOCK_TIMEOUT_SECONDS = 10.0
"""How long a connection waits for another program's lock, or for a server to answer, before it gives up."""


class FileSeen(NamedTuple):
    """What tells a file from another one put in its place, and from a part of itself.

    `length` is in bytes. Below `least_cut` no file of its kind is ever cut that held more, unless somebody
    compacted it.
    """

    identity: tuple[int, int]
    length: int
    least_cut: int


class Backend(Protocol):
    """One kind of database."""

    makes_stores: bool
    """Whether opening a store makes and migrates it; where not, `kvledger db upgrade` does."""

    as_the_newest: frozenset[str]
    """Older revisions of the schema whose tables are, on this kind of database, those of the newest: a store
    of such a one is used as it is."""

    def name(self, url: URL) -> str:
        """What messages call the store: no password in it."""

    def located(self, url: URL) -> URL:
        """The URL by which the same store is found from any folder."""

    def check_url(self, url: URL) -> URL:
        """The URL as the driver wants it. Raises InvalidArgument for one that no store can have."""

    def check_reachable(self, url: URL, *, create: bool) -> bool:
        """Whether there is a database to look into. Raises JournalError where there cannot be one."""

    def reading_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine whose connections cannot change the store, and see one state in each transaction."""

    def writing_engine(self, url: URL, *, sync: Sync, lock_timeout_s: float) -> sa.Engine:
        """An engine for one writer, whose connections are not pooled."""

    def migrating_engine(self, url: URL, *, lock_timeout_s: float) -> sa.Engine:
        """An engine for migrations."""

    def deleting_in_order(self, connection: sa.Connection) -> AbstractContextManager[None]:
        """Inside the block no transaction of `connection` reads a table through for each row that it deletes,
        to see that nothing points to it. What does point to it is deleted in the same transaction by the
        caller, who has begun none yet."""

    def begin_migration(self, connection: sa.Connection) -> None:
        """Keep every other migration out until the transaction ends."""

    def check_migrated(self, connection: sa.Connection) -> None:
        """Raise JournalError when a migration has torn rows apart."""

    def file(self, url: URL) -> FileSeen | None:
        """What is seen of the store's file; None for a store that cannot be replaced or cut under a
        connection. Raises StoreUnavailable where there is none any more."""

    def log(self, url: URL) -> FileSeen | None:
        """The same for a log beside the store that holds what was committed last; None without one."""

    def is_whole(self, url: URL) -> bool:
        """Whether a new connection can read every page of the store. Raises nothing."""

    def inserting(self, connection: sa.Connection) -> AbstractContextManager[Any]:
        """A transaction in which rows are inserted by what `row_inserter` made, and nothing else is done with
        `connection`; undone where the block raises. Raises SQLAlchemy's DBAPIError."""

    def row_inserter(self, dialect: sa.Dialect, table: sa.Table, columns: Sequence[str]) -> InsertRows:
        """The fastest way to insert many rows into `columns` of `table`."""
