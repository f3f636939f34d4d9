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
from kvledger.journal.chain import ChainHead, genesis_hash
from kvledger.journal.database import (
    database_errors,
    database_path,
    prepare_store,
    reading_engine,
    store_url,
    writing_engine,
)
from kvledger.journal.models import FORMAT_VERSION, JournalRow
from kvledger.journal.reader import JournalInfo, JournalReader
from kvledger.journal.recorder import DEFAULT_QUEUE_EVENTS, Durability, Recorder
from kvledger.journal.rows import RowWriter
from kvledger.journal.verify import ChainBreak, verify_chain

TOKEN_POLICY = "full"
"""Token ids are stored as they are; the policy is noted in each journal."""


class Journal:
    """An open store. Use `Journal.open`; closing it leaves recorders and their journals alone."""

    def __init__(self, url: sa.URL) -> None:
        self.url = url
        self._reading = reading_engine(url)

    @classmethod
    def open(cls, url_or_path: str | PathLike[str], *, create: bool = True) -> "Journal":
        """Open the store named by an SQLAlchemy URL or a file's path, bringing its tables up to date.

        With `create` a missing file is made. Raises UnknownJournal when there is no such store and `create`
        is False; InvalidArgument for a malformed URL; JournalError for a file that is no database.
        """
        url = store_url(url_or_path)
        prepare_store(url, create=create)
        return cls(url)

    def record(
        self,
        *,
        name: str = "",
        durability: Durability = "step",
        queue_limit: int = DEFAULT_QUEUE_EVENTS,
    ) -> Recorder:
        """Start a new journal and return the sink that fills it.

        `name` is the operator's; it may repeat, the newest journal of a name is found first. `durability`
        says what a killed process can lose (kvledger.journal.recorder); `queue_limit` is how many events may
        wait for the writer before `append` blocks. Raises InvalidArgument for a value out of range,
        JournalError when the store cannot be written.
        """
        if durability not in ("commit", "step", "background"):
            raise InvalidArgument(f"durability is commit, step or background, not {durability!r}")
        if queue_limit < 1:
            raise InvalidArgument(f"queue_limit must be at least 1 event, not {queue_limit}")
        engine = writing_engine(self.url, sync="NORMAL" if durability == "background" else "FULL")
        epoch, created_us = uuid.uuid4().hex, time.time_ns() // 1000
        with database_errors("no journal can be started"), engine.begin() as connection:
            started = connection.execute(
                sa.insert(JournalRow)
                .values(
                    epoch=epoch,
                    name=name,
                    config=None,
                    token_policy=TOKEN_POLICY,
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
            token_policy=TOKEN_POLICY,
        )
        return Recorder(
            RowWriter(engine, journal_id=journal_id, genesis=genesis),
            journal_id=journal_id,
            durability=durability,
            queue_limit=queue_limit,
        )

    def list(self) -> tuple[JournalInfo, ...]:
        """The journals of the store, oldest first."""
        rows = self._rows(sa.select(JournalRow.__table__).order_by(JournalRow.id))
        return tuple(JournalInfo.from_row(row) for row in rows)

    def reader(self, journal: int | str | None = None) -> JournalReader:
        """A reader of one journal: by id, by name (the newest of that name), or the newest of all.

        Raises UnknownJournal when there is none, JournalFormatError for a format this version cannot read.
        """
        return JournalReader(self._reading, JournalInfo.from_row(self._row(journal)))

    def verify(
        self, journal: int | str | None = None, *, anchor: ChainHead | None = None
    ) -> Iterator[ChainBreak]:
        """Re-read one journal and yield each place where its rows are not what was written, first one first.

        `anchor` is a head kept elsewhere, against a cut tail. Errors as `reader`. Cost: O(bytes stored).
        """
        row = self._row(journal)
        info = JournalInfo.from_row(row)
        return verify_chain(
            self._reading, info.id, epoch=info.epoch, genesis=info.genesis, config=row.config, anchor=anchor
        )

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
        query = sa.select(JournalRow.__table__).order_by(JournalRow.id.desc()).limit(1)
        if isinstance(journal, int):
            query = query.where(JournalRow.id == journal)
        elif journal is not None:
            query = query.where(JournalRow.name == journal)
        found = self._rows(query)
        if not found:
            what = "holds no journal yet" if journal is None else f"holds no journal {journal!r}"
            raise UnknownJournal(f"{database_path(self.url)} {what}")
        return found[0]

    def _rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        with database_errors("the journals cannot be listed"), self._reading.connect() as connection:
            return connection.execute(query).all()
