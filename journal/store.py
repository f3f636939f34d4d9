"""A store: one database that holds any number of journals.

`Journal.open` finds or makes it, `record` starts a new journal in it, `reader` reads one, `verify` checks
the chain of one. Opening never changes a journal: rows are only ever added, by the recorder that started it.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self

import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument, UnknownJournal
from kvledger.journal.apart.orders import Orders
from kvledger.journal.apart.recorder import ApartRecorder
from kvledger.journal.arguments import check_number, check_path, check_text
from kvledger.journal.backend import LOCK_TIMEOUT_SECONDS
from kvledger.journal.chain import ChainHead, genesis_hash
from kvledger.journal.database import (
    backend_of,
    database_errors,
    reading_engine,
    store_name,
    store_url,
    writing_engine,
)
from kvledger.journal.durability import DEFAULT_QUEUE_EVENTS, Durability, OnFailure, RecorderSettings
from kvledger.journal.export.take import Outlet
from kvledger.journal.followers import Followers
from kvledger.journal.growth import Growth, check_growth
from kvledger.journal.info import JournalInfo
from kvledger.journal.keeper import DEFAULT_CHECKPOINT_EVENTS, Keeper
from kvledger.journal.migration import prepare_store
from kvledger.journal.models import FORMAT_VERSION, JournalRow, fits_a_column
from kvledger.journal.reader import JournalReader
from kvledger.journal.recorder import Recorder
from kvledger.journal.rows import RowWriter
from kvledger.journal.stored_tokens import StoredTokens
from kvledger.journal.tokens import TokenPolicy
from kvledger.journal.verify import ChainBreak, ChainTally, verify_chain
from kvledger.journal.workers import Threads, Workers

MOST_LOCK_TIMEOUT_SECONDS = 86_400
"""A day: databases take milliseconds as an int32, and who waits longer waits for nothing."""


class Journal:
    """An open store. Use `Journal.open`; closing it leaves recorders and their journals alone."""

    def __init__(self, url: sa.URL, *, lock_timeout_s: float = LOCK_TIMEOUT_SECONDS) -> None:
        self.name = store_name(url)
        """What messages call the store: its path as it was given, or its URL without the password."""
        self.url = backend_of(url).located(url)
        """Where it is, also after the process has changed its folder."""
        self._lock_timeout_s = lock_timeout_s
        self._reading = reading_engine(self.url, lock_timeout_s=lock_timeout_s)
        self.workers: Workers = Threads()
        """What does the work of recorders that are started from here on."""

    @classmethod
    def open(
        cls,
        url_or_path: str | PathLike[str],
        *,
        create: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_SECONDS,
    ) -> "Journal":
        """Open the store named by an SQLAlchemy URL or a file's path.

        A file is brought up to date, and with `create` made where it is missing; the tables of a server are
        made by `kvledger db upgrade`. A connection waits `lock_timeout_s` seconds for another program's lock,
        or for a server to answer, before the store counts as unavailable. Raises UnknownJournal when there is
        no such store and `create` is False; InvalidArgument for a malformed URL or path; JournalError for a
        file that is no database and for a server without the tables; StoreUnavailable where nobody answers.
        """
        if type(lock_timeout_s) not in (int, float) or not 0 <= lock_timeout_s <= MOST_LOCK_TIMEOUT_SECONDS:
            raise InvalidArgument(
                f"lock_timeout_s is from 0 to {MOST_LOCK_TIMEOUT_SECONDS} seconds, not {lock_timeout_s!r:.40}"
            )
        url = store_url(url_or_path)
        prepare_store(url, create=create, lock_timeout_s=lock_timeout_s)
        return cls(url, lock_timeout_s=lock_timeout_s)

    def record(
        self,
        *,
        name: str = "",
        durability: Durability = "step",
        tokens: TokenPolicy = "full",
        key: bytes | None = None,
        queue_limit: int = DEFAULT_QUEUE_EVENTS,
        on_failure: OnFailure = "halt",
        drain_on_sigterm: bool = False,
        checkpoint_every: int = DEFAULT_CHECKPOINT_EVENTS,
        max_bytes: int | None = None,
        export_to: str | PathLike[str] | None = None,
    ) -> Recorder:
        """Start a new journal and return the sink that fills it.

        `name` is the operator's; it may repeat, the newest journal of a name is found first. `durability`
        says what a killed process can lose (kvledger.journal.durability); `tokens` what is kept of tokens and
        namespaces (kvledger.journal.tokens), where "hash" needs the operator's `key` of 16 to 64 bytes;
        `queue_limit` is how many events may wait for the writer before `append` blocks. When the store fails,
        `on_failure` "halt" raises at the next call and stores nothing more, "degrade" goes on, holds up to
        `queue_limit` events, and names in the journal what it had to give up (kvledger.journal.outage). With
        `drain_on_sigterm`, SIGTERM waits until everything accepted is on disk, then takes its course.
        A full state is stored about every `checkpoint_every` events, 0 for never (kvledger.journal.keeper).
        With `max_bytes` older events leave the store by themselves for Parquet files in the folder
        `export_to` when this journal's rows take more than that (kvledger.journal.growth).

        Raises InvalidArgument for a value out of range, JournalError when the store cannot be written.
        """
        _check_name(name)
        settings = RecorderSettings(
            durability=durability,
            queue_limit=queue_limit,
            on_failure=on_failure,
            drain_on_sigterm=drain_on_sigterm,
        )
        check_growth(checkpoint_every=checkpoint_every, max_bytes=max_bytes, export_to=export_to)
        return self.begin(
            StoredTokens(tokens, key),
            settings,
            name=name,
            checkpoint_every=checkpoint_every,
            max_bytes=max_bytes,
            export_to=export_to,
        )

    def begin(
        self,
        tokens: StoredTokens,
        settings: RecorderSettings,
        *,
        name: str,
        checkpoint_every: int,
        max_bytes: int | None,
        export_to: str | PathLike[str] | None,
    ) -> Recorder:
        """As `record`, of what was looked at before."""
        engine = writing_engine(
            self.url,
            sync="NORMAL" if settings.durability == "background" else "FULL",
            lock_timeout_s=self._lock_timeout_s,
        )
        epoch, created_us = uuid.uuid4().hex, time.time_ns() // 1000
        with database_errors("no journal can be started"), engine.begin() as connection:
            started = connection.execute(
                sa.insert(JournalRow)
                .values(
                    epoch=epoch,
                    name=name,
                    config=None,
                    token_policy=tokens.policy,
                    format_version=FORMAT_VERSION,
                    created_us=created_us,
                )
                .returning(JournalRow.id)
            )
            journal_id = started.scalar_one()
        genesis = genesis_hash(
            format_version=FORMAT_VERSION,
            created_us=created_us,
            epoch=epoch,
            name=name,
            token_policy=tokens.policy,
        )
        writer = RowWriter(engine, journal_id=journal_id, genesis=genesis)
        keeper = None
        if checkpoint_every or max_bytes is not None or settings.on_failure == "degrade":
            growth = None
            if max_bytes is not None and export_to is not None:
                folder = check_path(export_to, "export_to")
                growth = Growth(
                    writer.counters,
                    max_bytes=max_bytes,
                    export_and_prune=Outlet(engine, self.reader(journal_id), folder.absolute()),
                )
            keeper = Keeper(
                engine,
                journal_id=journal_id,
                epoch=epoch,
                genesis=genesis,
                every=checkpoint_every,
                name=writer.name_checkpoint,
                growth=growth,
            )
        followers = Followers(keeper)
        writer.follower = followers
        return Recorder(
            writer,
            settings,
            journal_id=journal_id,
            tokens=tokens,
            keeper=keeper,
            followers=followers,
            url=engine.url,
            workers=self.workers,
        )

    def record_apart(
        self,
        *,
        name: str = "",
        tokens: TokenPolicy = "full",
        key: bytes | None = None,
        queue_limit: int = DEFAULT_QUEUE_EVENTS,
        on_failure: OnFailure = "halt",
        drain_on_sigterm: bool = False,
        checkpoint_every: int = DEFAULT_CHECKPOINT_EVENTS,
        max_bytes: int | None = None,
        export_to: str | PathLike[str] | None = None,
    ) -> ApartRecorder:
        """As `record` with durability "step", the writer being a process: the scheduler's has less to do.

        `flush` then hands over and does not wait for the disk (kvledger.journal.apart). Starting takes as
        long as a fresh interpreter and its imports: a second or two. Raises JournalError too when no process
        can be started.
        """
        _check_name(name)
        RecorderSettings(queue_limit=queue_limit, on_failure=on_failure, drain_on_sigterm=drain_on_sigterm)
        check_growth(checkpoint_every=checkpoint_every, max_bytes=max_bytes, export_to=export_to)
        stored_tokens = StoredTokens(tokens, key)
        folder = None if export_to is None else str(check_path(export_to, "export_to").absolute())
        return ApartRecorder(
            Orders(
                url=self.url.render_as_string(hide_password=False),
                lock_timeout_s=self._lock_timeout_s,
                tokens=tokens,
                key=key,
                drawn=stored_tokens.drawn,
                settings=RecorderSettings(queue_limit=queue_limit, on_failure=on_failure),
                # Of the exact type: a class of the caller's own is not known there.
                name=str.__str__(name),
                checkpoint_every=checkpoint_every,
                max_bytes=max_bytes,
                export_to=folder,
            ),
            url=self.url,
            tokens=stored_tokens,
            drain_on_sigterm=drain_on_sigterm,
        )

    def list(self) -> tuple[JournalInfo, ...]:
        """The journals of the store, oldest first."""
        rows = self._rows(sa.select(JournalRow.__table__).order_by(JournalRow.id))
        return tuple(JournalInfo.from_row(row) for row in rows)

    def heads(self) -> tuple[tuple[JournalInfo, ChainHead], ...]:
        """Each journal, oldest first, and where it ends on disk: `seq` of the head is its last durable seq.

        After a crash this says what is there; `JournalReader.tail` says what is not.
        """
        return tuple((info, JournalReader(self._reading, info).head()) for info in self.list())

    def reader(self, journal: int | str | None = None) -> JournalReader:
        """A reader of one journal: by id, by name (the newest of that name), or the newest of all.

        Raises UnknownJournal when there is none, JournalFormatError for a format this version cannot read.
        """
        return JournalReader(self._reading, JournalInfo.from_row(self._row(journal)))

    def verify(
        self,
        journal: int | str | None = None,
        *,
        anchor: ChainHead | None = None,
        tally: ChainTally | None = None,
    ) -> Iterator[ChainBreak]:
        """Re-read one journal and yield each place where its rows are not what was written, first one first.

        `anchor` is a head kept elsewhere, against a cut tail; `tally` is filled with what was read once the
        breaks have been taken. Raises UnknownJournal when there is no such journal. Cost: O(bytes stored).
        """
        return verify_chain(self._reading, self._id(journal), anchor=anchor, tally=tally)

    def close(self) -> None:
        """Close the reading connections."""
        self._reading.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _row(self, journal: int | str | None) -> Any:
        return self._rows(sa.select(JournalRow.__table__).where(JournalRow.id == self._id(journal)))[0]

    def _id(self, journal: int | str | None) -> int:
        query = sa.select(JournalRow.id).order_by(JournalRow.id.desc()).limit(1)
        if isinstance(journal, str):
            query = query.where(JournalRow.name == check_text(journal, "name"))
        elif journal is not None:
            query = query.where(JournalRow.id == check_number(journal, "the id of a journal"))
        found = self._rows(query)
        if not found:
            what = "holds no journal yet" if journal is None else f"holds no journal {journal!r}"
            raise UnknownJournal(f"{self.name} {what}")
        found_id: int = found[0].id
        return found_id

    def _rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        with database_errors("the journals cannot be listed"), self._reading.connect() as connection:
            return connection.execute(query).all()


def _check_name(name: str) -> None:
    """Raise InvalidArgument for a journal's name that no database's column can hold."""
    if not isinstance(name, str):
        raise InvalidArgument(f"a journal's name is text, not {name!r}")
    if not fits_a_column(name):
        raise InvalidArgument(f"the name {name[:40]!r} cannot be stored: it has a zero or half a pair")
