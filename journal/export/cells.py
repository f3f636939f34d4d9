"""Stored rows on their way into files and out of them: every cell, nothing interpreted.

A `TransactionCells` is one transaction's row, its event rows, and the checkpoint that stands after it if
there is one. Its hash can be computed from it alone (check.py), which is how a file is checked without the
database it came from.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from kvledger.core.errors import JournalFormatError
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.journal.codec import decode
from kvledger.journal.database import reading
from kvledger.journal.models import ROLLED_BACK, CheckpointRow, EventRow, TransactionRow
from kvledger.journal.records import (
    CHECKPOINT_COLUMNS,
    StoredCheckpoint,
    StoredEvent,
    StoredTransaction,
    checkpoint_of,
)

BATCH_TRANSACTIONS = 4_096
BATCH_EVENTS = 16_384
"""Rows read, written or held at once, unless a single transaction has more events: some megabytes."""


class EventCells(NamedTuple):
    """The cells of an event row, in the order in which they are hashed."""

    seq: int
    txn: int
    kind: str
    version: int
    node: int | None
    request_id: str | None
    undone: int
    payload: str
    blob: bytes


class TransactionCells(NamedTuple):
    """The cells of a transaction's row, its events', and of the checkpoint that stands at its end.

    In a journal of format 1 `duration_us`, `checkpoint_seq` and `checkpoint_hash` are None.
    """

    number: int
    op: str
    request_id: str | None
    status: str
    reason: str
    time_us: int
    first_seq: int
    event_count: int
    duration_us: int | None
    checkpoint_seq: int | None
    checkpoint_hash: bytes | None
    previous_hash: bytes
    hash: bytes
    events: Sequence[EventCells]
    checkpoint: StoredCheckpoint | None

    @property
    def last_seq(self) -> int:
        """Seq of its last event; one below `first_seq` when it has none."""
        return self.first_seq + self.event_count - 1

    def decoded(self) -> StoredTransaction:
        """The transaction that these cells stand for. Raises JournalFormatError, naming the seq."""
        if len(self.events) != self.event_count:
            raise JournalFormatError(
                f"transaction {self.number} holds {self.event_count} events, and {len(self.events)} are there"
            )
        return StoredTransaction(
            number=TxnId(self.number),
            op=self.op,
            request_id=None if self.request_id is None else RequestId(self.request_id),
            rolled_back=self.status == ROLLED_BACK,
            reason=self.reason,
            time_us=self.time_us,
            first_seq=Seq(self.first_seq),
            events=tuple([_event(cells) for cells in self.events]),
            previous_hash=self.previous_hash,
            hash=self.hash,
            duration_us=self.duration_us,
        )


def _event(cells: EventCells) -> StoredEvent:
    try:
        event = decode(cells.kind, cells.version, cells.payload, cells.blob)
    except JournalFormatError as error:
        raise JournalFormatError(f"seq {cells.seq}: {error}") from error
    return StoredEvent(Seq(cells.seq), bool(cells.undone), event)


HEAD_NAMES = TransactionCells._fields[:-2]
"""The cells of a transaction's own row, in the order of `TransactionCells`."""

SECOND_FORMAT_NAMES = ("duration_us", "checkpoint_seq", "checkpoint_hash")
"""Those of them that came with format 2."""

_HEADS = [getattr(TransactionRow, name) for name in HEAD_NAMES]
_EVENTS = [getattr(EventRow, name) for name in EventCells._fields]
_CHECKPOINTS = [getattr(CheckpointRow, name) for name in CHECKPOINT_COLUMNS]


def stored_cells(
    engine: sa.Engine, journal_id: int, *, first: int, upto_seq: int
) -> Iterator[list[TransactionCells]]:
    """The stored cells of a journal from transaction `first` to the last that ends at or before `upto_seq`.

    Yields them in batches, each from one short read. Raises JournalError when the database refuses,
    JournalFormatError where an event is missing. Memory is bounded by a batch.
    """
    after = first - 1
    while True:
        with reading(engine) as connection:
            batch = _batch(connection, journal_id, after, upto_seq)
        if not batch:
            return
        yield batch
        after = batch[-1].number


def _batch(connection: sa.Connection, journal_id: int, after: int, upto_seq: int) -> list[TransactionCells]:
    heads = connection.execute(
        sa.select(*_HEADS)
        .where(
            TransactionRow.journal_id == journal_id,
            TransactionRow.number > after,
            TransactionRow.first_seq + TransactionRow.event_count - 1 <= upto_seq,
        )
        .order_by(TransactionRow.number)
        .limit(BATCH_TRANSACTIONS)
    ).all()
    total = 0
    for i, head in enumerate(heads):
        total += head.event_count
        if i and total > BATCH_EVENTS:
            heads = heads[:i]
            break
    if not heads:
        return []
    first, end = heads[0].first_seq, heads[-1].first_seq + heads[-1].event_count
    rows = connection.execute(
        sa.select(*_EVENTS)
        .where(EventRow.journal_id == journal_id, EventRow.seq >= first, EventRow.seq < end)
        .order_by(EventRow.seq)
    ).all()
    kept = connection.execute(
        sa.select(*_CHECKPOINTS).where(
            CheckpointRow.journal_id == journal_id,
            CheckpointRow.number.between(heads[0].number, heads[-1].number),
        )
    ).all()
    checkpoints = {row.number: checkpoint_of(row) for row in kept}
    return list(_assembled(heads, rows, checkpoints))


def _assembled(
    heads: Iterable[Any], rows: Sequence[Any], checkpoints: dict[int, StoredCheckpoint]
) -> Iterator[TransactionCells]:
    taken = 0
    for head in heads:
        events = [EventCells._make(row) for row in rows[taken : taken + head.event_count]]
        taken += head.event_count
        if len(events) != head.event_count or (events and events[0].seq != head.first_seq):
            raise JournalFormatError(
                f"transaction {head.number} holds {head.event_count} events from seq {head.first_seq} on, "
                "and not all are there"
            )
        yield TransactionCells._make([*head, events, checkpoints.get(head.number)])
