"""Transactions to rows: numbering, encoding and hashing of a batch, and its insertion in one go.

`RowWriter` is the one place where seqs and transaction numbers are assigned. It belongs to one thread and
one journal. A batch is one database transaction: either all of it is stored or nothing, and the numbering
moves on only after the commit.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from kvledger.core.errors import JournalError
from kvledger.core.events import CacheOpened, TransactionRecord
from kvledger.journal.chain import transaction_hash
from kvledger.journal.codec import EncodedEvent, check_name, encode_all
from kvledger.journal.database import database_errors
from kvledger.journal.fields import canonical_json
from kvledger.journal.models import EventRow, JournalRow, TransactionRow

TRANSACTION_CELLS = [
    "journal_id",
    "number",
    "op",
    "request_id",
    "status",
    "reason",
    "time_us",
    "first_seq",
    "event_count",
    "previous_hash",
    "hash",
]
EVENT_CELLS = [
    "journal_id",
    "seq",
    "txn",
    "kind",
    "version",
    "node",
    "request_id",
    "undone",
    "payload",
    "blob",
]


class Submission(NamedTuple):
    """A transaction on its way to the disk, and when it was handed over (microseconds since 1970)."""

    record: TransactionRecord
    time_us: int


@dataclass(slots=True)
class WriterCounters:
    """What a writer has stored so far. `bytes` counts payloads and blobs; `cpu_seconds` its thread's time."""

    events: int = 0
    transactions: int = 0
    bytes: int = 0
    batches: int = 0
    cpu_seconds: float = 0.0


class RowWriter:
    """Stores batches of transactions in one journal, from its first one on."""

    def __init__(self, engine: sa.Engine, *, journal_id: int, genesis: bytes) -> None:
        self._connection: sa.Connection | None = None
        self._engine = engine
        self._journal_id = journal_id
        self._next_seq = 1
        self._next_number = 1
        self._hash = genesis
        self._config_known = False
        self._insert_transaction = _insert_text(engine, TransactionRow, TRANSACTION_CELLS)
        self._insert_event = _insert_text(engine, EventRow, EVENT_CELLS)
        self.counters = WriterCounters()

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

    def _insert(self, batch: Sequence[Submission], encoded: Sequence[EncodedEvent]) -> None:
        transactions: list[tuple[Any, ...]] = []
        events: list[tuple[Any, ...]] = []
        journal_id = self._journal_id
        seq, number, link = self._next_seq, self._next_number, self._hash
        size = taken = 0
        for record, time_us in batch:
            first_seq = seq
            hashed = []
            for undone in record.undone:
                kind, version, node, request, payload, blob = encoded[taken]
                taken += 1
                mark = 1 if undone else 0
                text = payload.encode()
                size += len(text) + len(blob)
                name = None if request is None else request.encode()
                hashed.append((seq, number, kind.encode(), version, node, name, mark, text, blob))
                events.append((journal_id, seq, number, kind, version, node, request, mark, payload, blob))
                seq += 1
            status = "rolled_back" if record.rolled_back else "committed"
            # A reason may quote anything, half a surrogate pair included, and must not stop the journal.
            reason = record.reason.encode(errors="backslashreplace")
            name = None if record.request_id is None else record.request_id.encode()
            count = seq - first_seq
            head = (number, record.op.encode(), name, status.encode(), reason, time_us, first_seq, count)
            previous, link = link, transaction_hash(link, head, hashed)
            transactions.append(
                (
                    journal_id,
                    number,
                    record.op,
                    record.request_id,
                    status,
                    reason.decode(),
                    time_us,
                    first_seq,
                    count,
                    previous,
                    link,
                )
            )
            number += 1
        self._commit(transactions, events, None if self._config_known else _config_in(batch))
        self._next_seq, self._next_number, self._hash = seq, number, link
        self.counters.events += len(events)
        self.counters.transactions += len(transactions)
        self.counters.bytes += size
        self.counters.batches += 1

    def _commit(
        self, transactions: list[tuple[Any, ...]], events: list[tuple[Any, ...]], config: str | None
    ) -> None:
        with database_errors("the journal cannot be written"):
            if self._connection is None:
                self._connection = self._engine.connect()
            with self._connection.begin():
                # Rows go to the driver as tuples: SQLAlchemy's own path, which makes a dictionary of each,
                # costs three times as much as SQLite itself.
                self._connection.exec_driver_sql(self._insert_transaction, transactions)
                if events:
                    self._connection.exec_driver_sql(self._insert_event, events)
                if config is not None:
                    self._connection.execute(
                        sa.update(JournalRow).where(JournalRow.id == self._journal_id).values(config=config)
                    )
        self._config_known = self._config_known or config is not None


def _insert_text(engine: sa.Engine, table: type[TransactionRow] | type[EventRow], columns: list[str]) -> str:
    """The INSERT of `table` as the driver takes it, its parameters in the order of `columns`."""
    compiled = sa.insert(table).compile(dialect=engine.dialect, column_keys=columns)
    if compiled.positiontup != columns:
        raise JournalError(f"{engine.dialect.name} takes parameters in another order than {columns}")
    return str(compiled)


def _encode(batch: Sequence[Submission]) -> list[EncodedEvent]:
    for item in batch:
        record = item.record
        if len(record.undone) != len(record.events):
            raise JournalError(f"a transaction of {len(record.events)} events has {len(record.undone)} marks")
        if record.request_id is not None:
            check_name(record.request_id)
    return encode_all([event for item in batch for event in item.record.events])


def _config_in(batch: Sequence[Submission]) -> str | None:
    """The configuration in the first `cache_opened` event of a batch, as the journal's row stores it."""
    for item in batch:
        for event in item.record.events:
            if type(event) is CacheOpened:
                return canonical_json(event.config)
    return None
