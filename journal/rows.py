"""Transactions to rows: numbering, encoding and hashing of a batch, and its insertion in one go.

`RowWriter` is the one place where seqs and transaction numbers are assigned. It belongs to one thread and
one journal. A batch is one database transaction: either all of it is stored or nothing, and the numbering
moves on only after the commit.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.core.events import CacheOpened, EventsDropped
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.chain import CheckpointName, genesis_hash
from kvledger.journal.codec import EncodedColumns, encode_columns
from kvledger.journal.database import backend_of, database_errors, row_inserter, store_name
from kvledger.journal.encoders import check_name
from kvledger.journal.fields import canonical_json
from kvledger.journal.linking import EVENT_CELLS, TRANSACTION_CELLS, LinkedRows, Place, link_batch
from kvledger.journal.models import EventRow, JournalRow, TransactionRow
from kvledger.journal.same_store import SameStore


class Submission(NamedTuple):
    """A transaction on its way to the disk, when it was handed over (microseconds since 1970), and how many
    microseconds it had taken then; None where nobody measured that."""

    record: TransactionRecord
    time_us: int
    duration_us: int | None = None


@dataclass(slots=True)
class WriterCounters:
    """What a writer has stored so far. `bytes` counts payloads and blobs; `cpu_seconds` its thread's time."""

    events: int = 0
    transactions: int = 0
    bytes: int = 0
    batches: int = 0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Unsure:
    """Where the journal ends if the batch that failed last was stored after all."""

    next_seq: int
    next_number: int
    hash: bytes
    config_known: bool
    transactions: int
    events: int
    after_gap: bool
    batch: Sequence[Submission]
    checkpoint: CheckpointName | None


class Follower(Protocol):
    """Hears what becomes of each transaction, in order: kvledger.journal.keeper.Keeper."""

    def stored(self, batch: Sequence[Submission], *, number: int, seq: int, link: bytes) -> None:
        """`batch` was committed; the chain ends at `number`, `seq` and the hash `link`."""

    def dropped(self, batch: Sequence[Submission]) -> None:
        """`batch` was given up."""


class RowWriter:
    """Stores batches of transactions in one journal, from its first one on."""

    def __init__(self, engine: sa.Engine, *, journal_id: int, genesis: bytes) -> None:
        self._connection: sa.Connection | None = None
        self._engine = engine
        self._journal_id = journal_id
        self._next_seq = 1
        self._next_number = 1
        self._genesis = genesis
        self._hash = genesis
        self._config_known = False
        self._given_up = 0
        self._unsure: _Unsure | None = None
        self._checkpoint: CheckpointName | None = None
        self._same_store = SameStore(engine.url)
        self._inserting = backend_of(engine.url).inserting
        self._insert_transactions = row_inserter(engine, TransactionRow, TRANSACTION_CELLS)
        self._insert_events = row_inserter(engine, EventRow, EVENT_CELLS)
        self.counters = WriterCounters()
        self.follower: Follower | None = None

    @property
    def durable_seq(self) -> int:
        """Seq of the last event that a committed batch holds, 0 before the first."""
        return self._next_seq - 1

    def store(self, batch: Sequence[Submission]) -> None:
        """Store `batch` in one database transaction.

        Raises JournalError when the database refuses or an event cannot be encoded. What stands before
        such an event in the batch has been accepted from the caller and is stored; it and the rest are not.
        """
        began = time.thread_time()
        try:
            encoded = _encode(batch)
        except JournalError:
            self._store_up_to_the_fault(batch)
            raise
        finally:
            self.counters.cpu_seconds += time.thread_time() - began
        began = time.thread_time()
        self._insert(batch, encoded)
        self.counters.cpu_seconds += time.thread_time() - began

    def name_checkpoint(self, checkpoint: CheckpointName) -> None:
        """A checkpoint was stored, the newest: the next transaction names it.

        One that it takes the place of was not named yet; the new one names it then, as the one before it.
        """
        self._checkpoint = checkpoint

    def probe(self) -> None:
        """Raise JournalError unless the store answers. Safe from any thread; changes nothing."""
        try:
            self._same_store.find_again()
        except StoreUnavailable:
            raise
        except JournalError:
            return  # There is no point in waiting: `resync` says what was lost.
        with database_errors("the journal cannot be written"), self._engine.connect() as connection:
            connection.execute(sa.select(JournalRow.id).where(JournalRow.id == self._journal_id)).all()

    def resync(self) -> int:
        """After a failure: find out whether the batch that failed was stored after all, and go on from there.

        A connection that is lost during a commit does not tell. Returns how many transactions of that batch
        are stored: all or none. Raises StoreUnavailable while the store cannot be read, JournalError when it
        no longer holds this journal, or ends it with a transaction that this writer did not write.
        """
        query = (
            sa.select(TransactionRow.number, TransactionRow.hash)
            .where(TransactionRow.journal_id == self._journal_id)
            .order_by(TransactionRow.number.desc())
            .limit(1)
        )
        try:
            file = self._same_store.find_again()
            with database_errors("the end of the journal cannot be found"), self._open().begin():
                # Waits for a commit of ours that a server may still be carrying out: its rows hold this one.
                row = sa.select(JournalRow.__table__).where(JournalRow.id == self._journal_id)
                journal = self._open().execute(row.with_for_update()).first()
                last = self._open().execute(query).first()
            if journal is None or _genesis_of(journal) != self._genesis:
                name = store_name(self._engine.url)
                raise JournalError(
                    f"{name} was replaced: it does not hold journal {self._journal_id} any more"
                )
        except JournalError:
            self._discard_connection()
            raise
        self._same_store.settle_on(file)
        unsure, self._unsure = self._unsure, None
        if last is None or (last.number, last.hash) == (self._next_number - 1, self._hash):
            return 0
        if unsure is None or (last.number, last.hash) != (unsure.next_number - 1, unsure.hash):
            why = "which another program wrote"
            if last.number < self._next_number - 1:
                why = f"and {self._next_number - 1} was stored: rows were lost"
            raise JournalError(f"journal {self._journal_id} ends with transaction {last.number}, {why}")
        stored = unsure.next_seq - self._next_seq
        if unsure.after_gap or not self._given_up:
            self._tell(unsure.batch, unsure.next_number, unsure.next_seq, unsure.hash)
        # What was given up is either the range that the stored batch names, or begins with that batch.
        self._given_up = 0 if unsure.after_gap else max(0, self._given_up - stored)
        self._next_seq, self._next_number, self._hash = unsure.next_seq, unsure.next_number, unsure.hash
        self._config_known = self._config_known or unsure.config_known
        self._was_named(unsure.checkpoint)
        self.counters.transactions += unsure.transactions
        self.counters.events += unsure.events
        return 0 if unsure.after_gap else unsure.transactions

    def give_up(self, batch: Sequence[Submission]) -> None:
        """Go on without storing `batch`: its events keep their seqs, which `store_gap` will name."""
        self._given_up += sum(len(item.record.events) for item in batch)
        if self.follower is not None:
            self.follower.dropped(batch)

    def store_gap(self, time_us: int) -> None:
        """Store one `events_dropped` that names the seqs given up since the last stored event, if any.

        It takes the seq after them. Errors as `store`.
        """
        if not self._given_up:
            return
        dropped = EventsDropped(self._next_seq, self._next_seq + self._given_up - 1)
        record = TransactionRecord("events_dropped", None, [dropped], bytearray(1))
        self.store([Submission(record, time_us)])

    def _open(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _discard_connection(self) -> None:
        """Forget a connection that failed: what state it is in is anybody's guess."""
        connection, self._connection = self._connection, None
        self._same_store.forget_log()
        if connection is not None:
            with suppress(SQLAlchemyError):
                connection.invalidate()
            with suppress(SQLAlchemyError):
                connection.close()

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            with database_errors("the journal cannot be closed"):
                self._connection.close()
            self._connection = None

    def _store_up_to_the_fault(self, batch: Sequence[Submission]) -> None:
        sound = []
        for item in batch:
            try:
                _encode([item])
            except JournalError:
                break
            sound.append(item)
        if sound:
            self._insert(sound, _encode(sound))

    def _insert(self, batch: Sequence[Submission], encoded: EncodedColumns) -> None:
        place = Place(self._next_seq + self._given_up, self._next_number, self._hash)
        named = self._checkpoint if batch else None
        linked = link_batch(batch, encoded, journal_id=self._journal_id, place=place, checkpoint=named)
        seq, number, link = linked.end
        transactions, events = len(batch), seq - place.seq
        config = None if self._config_known else _config_in(batch)
        try:
            self._commit(linked, config)
        except JournalError:
            self._unsure = _Unsure(
                next_seq=seq,
                next_number=number,
                hash=link,
                config_known=config is not None,
                transactions=transactions,
                events=events,
                after_gap=self._given_up > 0,
                batch=batch,
                checkpoint=named,
            )
            self._discard_connection()
            raise
        self._next_seq, self._next_number, self._hash = seq, number, link
        self._config_known = self._config_known or config is not None
        self._given_up = 0
        self._was_named(named)
        self.counters.events += events
        self.counters.transactions += transactions
        self.counters.bytes += linked.bytes
        self.counters.batches += 1
        self._tell(batch, number, seq, link)

    def _was_named(self, checkpoint: CheckpointName | None) -> None:
        """A stored transaction names it: only once is enough, unless a newer one was stored meanwhile."""
        if self._checkpoint == checkpoint:
            self._checkpoint = None

    def _tell(self, batch: Sequence[Submission], next_number: int, next_seq: int, link: bytes) -> None:
        if self.follower is not None:
            self.follower.stored(batch, number=next_number - 1, seq=next_seq - 1, link=link)

    def _commit(self, linked: LinkedRows, config: str | None) -> None:
        with database_errors("the journal cannot be written"):
            connection = self._open()
            # The first batch also writes the config, which is for SQLAlchemy to do.
            with self._inserting(connection) if config is None else connection.begin():
                self._insert_transactions(connection, linked.transactions)
                self._insert_events(connection, linked.events)
                if config is not None:
                    connection.execute(
                        sa.update(JournalRow).where(JournalRow.id == self._journal_id).values(config=config)
                    )
                self._same_store.check()
        # Once more: what a file took that nobody can open any more is not stored.
        self._same_store.check()


def _genesis_of(row: Any) -> bytes:
    return genesis_hash(
        format_version=row.format_version,
        created_us=row.created_us,
        epoch=row.epoch,
        name=row.name,
        token_policy=row.token_policy,
    )


def _encode(batch: Sequence[Submission]) -> EncodedColumns:
    for item in batch:
        record = item.record
        if len(record.undone) != len(record.events):
            raise JournalError(f"a transaction of {len(record.events)} events has {len(record.undone)} marks")
        if record.request_id is not None:
            check_name(record.request_id)
    return encode_columns([event for item in batch for event in item.record.events])


def _config_in(batch: Sequence[Submission]) -> str | None:
    """The configuration in the first `cache_opened` event of a batch, as the journal's row stores it."""
    for item in batch:
        for event in item.record.events:
            if type(event) is CacheOpened:
                return canonical_json(event.config)
    return None
