"""Whole transactions of one journal, in order: rows read in batches, and put together with their events.

Each batch is one read transaction that ends before its rows are handed on, so a reader that takes its time
holds no lock and keeps no write-ahead log alive. Rows are only ever added at the end and pruned from the
beginning, which is why batches read one after the other still show one consistent journal; a reader that the
pruning overtakes is told so.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument, JournalError, JournalFormatError
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.journal.codec import decode
from kvledger.journal.database import reading
from kvledger.journal.models import ROLLED_BACK, CheckpointRow, EventRow, TransactionRow
from kvledger.journal.records import StoredEvent, StoredTransaction, UnreadableRow

BATCH_TRANSACTIONS = 512
BATCH_EVENTS = 8_192
"""One read transaction covers at most this many rows, unless a single transaction has more events."""

_TRANSACTION_COLUMNS = (
    TransactionRow.number,
    TransactionRow.op,
    TransactionRow.request_id,
    TransactionRow.status,
    TransactionRow.reason,
    TransactionRow.time_us,
    TransactionRow.first_seq,
    TransactionRow.event_count,
    TransactionRow.previous_hash,
    TransactionRow.hash,
    TransactionRow.duration_us,
)
_EVENT_COLUMNS = (
    EventRow.seq,
    EventRow.kind,
    EventRow.version,
    EventRow.undone,
    EventRow.payload,
    EventRow.blob,
)

SEQ_LIMIT = 2**63
"""Seqs and numbers stay below this: no database's integer holds more."""


class TransactionBatches:
    """Reads the transactions of one journal of the store behind `engine`. Safe while it is written."""

    def __init__(self, engine: sa.Engine, journal_id: int) -> None:
        self._engine = engine
        self._journal_id = journal_id

    def read(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """As `JournalReader.transactions`."""
        first = 1 if first is None else first
        if first < 1 or (upto_seq is not None and upto_seq < 0):
            raise InvalidArgument("transactions count from 1 and seqs from 0 on")
        after, size = int(first) - 1, BATCH_TRANSACTIONS
        while True:
            try:
                heads, events = self._batch(after, upto_seq, size)
            except JournalFormatError:
                if size == 1:
                    raise
                # One by one up to the row that cannot be read: those before it are sound.
                size = 1
                continue
            if after >= first and not (heads and heads[0].number == after + 1):
                self._check_not_pruned(after)
            if not heads:
                return
            yield from _assemble(heads, events)
            after = heads[-1].number

    def _batch(self, after: int, upto_seq: int | None, size: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """At most `size` transactions after number `after`, and their events, from one read transaction."""
        query = (
            sa.select(*_TRANSACTION_COLUMNS)
            .where(TransactionRow.journal_id == self._journal_id, TransactionRow.number > after)
            .order_by(TransactionRow.number)
            .limit(size)
        )
        if upto_seq is not None:
            query = query.where(TransactionRow.first_seq + TransactionRow.event_count - 1 <= upto_seq)
        with reading(self._engine) as connection:
            heads = connection.execute(query).all()
            total = 0
            for i, head in enumerate(heads):
                wrong = _range_fault(head)
                if wrong is not None and not i:
                    raise wrong
                if wrong is None:
                    total += head.event_count
                if i and (wrong is not None or total > BATCH_EVENTS):
                    heads = heads[:i]
                    break
            if not heads:
                return (), ()
            if heads[0].event_count > BATCH_EVENTS:
                self._check_end(connection, heads[0])
            events = connection.execute(
                sa.select(*_EVENT_COLUMNS)
                .where(
                    EventRow.journal_id == self._journal_id,
                    EventRow.seq >= heads[0].first_seq,
                    EventRow.seq < heads[-1].first_seq + heads[-1].event_count,
                )
                .order_by(EventRow.seq)
            ).all()
        return heads, events

    def _check_not_pruned(self, after: int) -> None:
        """Raise JournalError where what follows number `after` is missing because it was pruned meanwhile."""
        with reading(self._engine) as connection:
            refuse_if_pruned(connection, self._journal_id, after)

    def _check_end(self, connection: sa.Connection, head: Any) -> None:
        """Raise UnreadableRow unless the last event of a large transaction is there.

        A count that was changed must not read the rest of the journal into memory.
        """
        last = head.first_seq + head.event_count - 1
        query = sa.select(EventRow.txn).where(EventRow.journal_id == self._journal_id, EventRow.seq == last)
        if connection.execute(query).scalar_one_or_none() != head.number:
            raise _missing(head.number, head.first_seq, head.event_count)


def refuse_if_pruned(connection: sa.Connection, journal_id: int, after: int) -> None:
    """Raise JournalError where pruning has overtaken a reader that has read up to number `after`.

    Of what it has read, and of what comes next, nothing is there any more then. That rows are missing in
    between says nothing about the journal.
    """
    numbers = sa.select(sa.func.min(TransactionRow.number)).where(TransactionRow.journal_id == journal_id)
    oldest = connection.execute(numbers).scalar_one_or_none()
    if oldest is None:
        kept = sa.select(sa.func.max(CheckpointRow.number)).where(CheckpointRow.journal_id == journal_id)
        oldest = (connection.execute(kept).scalar_one_or_none() or 0) + 1
    if oldest > after + 1:
        raise JournalError(
            f"journal {journal_id} was pruned while it was read, up to transaction {oldest - 1}: read it "
            f"again, together with the exported files where they are wanted"
        )


def _range_fault(head: Any) -> UnreadableRow | None:
    """What is wrong with the range of seqs that a transaction's row names, if anything."""
    first_seq, count = head.first_seq, head.event_count
    numbers = type(first_seq) is int and type(count) is int
    if numbers and first_seq >= 0 and count >= 0 and first_seq + count < SEQ_LIMIT:
        return None
    return UnreadableRow(
        f"transaction {head.number} names {count} events from seq {first_seq} on, which cannot be",
        number=head.number,
        seq=first_seq if type(first_seq) is int else 0,
        invariant="sequence",
    )


def _missing(number: int, first_seq: int, count: int) -> UnreadableRow:
    return UnreadableRow(
        f"transaction {number} holds {count} events from seq {first_seq} on, and not all are there",
        number=number,
        seq=first_seq,
        invariant="sequence",
    )


def _assemble(heads: Sequence[Any], rows: Sequence[Any]) -> Iterator[StoredTransaction]:
    taken = 0
    for number, op, request, status, reason, time_us, first_seq, count, previous, link, duration_us in heads:
        mine = rows[taken : taken + count]
        taken += count
        # The rows are in order of seq and none is there twice: the ends tell whether all are there.
        if len(mine) != count or (
            count and (mine[0].seq, mine[-1].seq) != (first_seq, first_seq + count - 1)
        ):
            raise _missing(number, first_seq, count)
        yield StoredTransaction(
            number=TxnId(number),
            op=op,
            request_id=None if request is None else RequestId(request),
            rolled_back=status == ROLLED_BACK,
            reason=reason,
            time_us=time_us,
            first_seq=Seq(first_seq),
            events=tuple([_event(row, number) for row in mine]),
            previous_hash=previous,
            hash=link,
            duration_us=duration_us,
        )


def _event(row: Sequence[Any], number: int) -> StoredEvent:
    seq, kind, version, undone, payload, blob = row
    try:
        return StoredEvent(Seq(seq), bool(undone), decode(kind, version, payload, blob))
    except JournalFormatError as error:
        raise UnreadableRow(f"seq {seq}: {error}", number=number, seq=seq, invariant="well-formed") from error
