"""Whole transactions of one journal, in order: rows read in batches, and put together with their events.

Each batch is one read transaction that ends before its rows are handed on, so a reader that takes its time
holds no lock and keeps no write-ahead log alive. Rows are only ever added at the end and pruned from the
beginning, which is why batches read one after the other still show one consistent journal; a reader that the
pruning overtakes is told so.
"""

from collections.abc import Iterator, Sequence

import sqlalchemy as sa

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.arguments import check_place
from kvledger.journal.codec import decode
from kvledger.journal.database import reading
from kvledger.journal.models import ROLLED_BACK, CheckpointRow, EventRow, TransactionRow
from kvledger.journal.plain_rows import Cells, plain_rows
from kvledger.journal.records import StoredEvent, StoredTransaction, UnreadableRow

BATCH_TRANSACTIONS = 4_096
BATCH_EVENTS = 8_192
"""One read transaction covers at most this many rows, unless a single transaction has more events."""

FIRST_BATCH = 64
"""Transactions in the first batch of a reading: many want but one. From there batches grow."""

SHRINKING = 16
"""By how much batches shrink before a row that cannot be read."""

_UP_TO = sa.bindparam("upto", type_=sa.BigInteger)
_HEADS = (
    sa.select(
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
    .where(
        TransactionRow.journal_id == sa.bindparam("journal"), TransactionRow.number > sa.bindparam("after")
    )
    .order_by(TransactionRow.number)
    .limit(sa.bindparam("size"))
)
_HEADS_UP_TO = _HEADS.where(TransactionRow.first_seq + TransactionRow.event_count - 1 <= _UP_TO)
_EVENTS = (
    sa.select(
        EventRow.seq,
        EventRow.kind,
        EventRow.version,
        EventRow.undone,
        EventRow.payload,
        EventRow.blob,
    )
    .where(
        EventRow.journal_id == sa.bindparam("journal"),
        EventRow.seq >= sa.bindparam("first"),
        EventRow.seq < sa.bindparam("end"),
    )
    .order_by(EventRow.seq)
)
"""Built once: a query costs more to build than a hundred of its rows to read."""

_NUMBER, _FIRST_SEQ, _COUNT = 0, 6, 7
"""Places of columns of `_HEADS`."""

_SEQ = 0
"""The same of `_EVENTS`."""

SEQ_LIMIT = 2**63
"""Seqs and numbers stay below this: no database's integer holds more."""


Batch = tuple[Sequence[Cells], Sequence[Cells]]
"""Rows of transactions, in order, and those of all their events."""


class TransactionBatches:
    """Reads the transactions of one journal of the store behind `engine`. Safe while it is written."""

    def __init__(self, engine: sa.Engine, journal_id: int) -> None:
        self._engine = engine
        self._journal_id = journal_id

    def read(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """As `JournalReader.transactions`."""
        for heads, events in self.rows(first, upto_seq=upto_seq):
            yield from assemble(heads, events)

    def rows(self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None) -> Iterator[Batch]:
        """The same as rows, a batch at a time: what `assemble` makes transactions of."""
        first = 1 if first is None else check_place(first, "the number of a transaction", least=1)
        upto_seq = None if upto_seq is None else check_place(upto_seq, "a seq", least=0)
        after, size = first - 1, min(FIRST_BATCH, BATCH_TRANSACTIONS)
        most = BATCH_TRANSACTIONS
        while True:
            try:
                heads, events = self._batch(after, upto_seq, size)
            except JournalFormatError:
                if size == 1:
                    raise
                # By ever fewer, up to the row that cannot be read: those before it are sound.
                size = most = max(1, size // SHRINKING)
                continue
            if after >= first and not (heads and heads[0][_NUMBER] == after + 1):
                self._check_not_pruned(after)
            if not heads:
                return
            yield heads, events
            after = heads[-1][_NUMBER]
            # What a batch had no room for is read again: where one was cut, the next asks for little more.
            taken = len(heads)
            size = min(most, 2 * size if taken == size else taken + taken // 8 + 1)

    def _batch(self, after: int, upto_seq: int | None, size: int) -> tuple[Sequence[Cells], Sequence[Cells]]:
        """At most `size` transactions after number `after`, and their events, from one read transaction."""
        place = {"journal": self._journal_id, "after": after, "size": size}
        with reading(self._engine) as connection:
            if upto_seq is None:
                heads = plain_rows(connection, _HEADS, **place)
            else:
                heads = plain_rows(connection, _HEADS_UP_TO, **place, upto=upto_seq)
            heads = _within_limits(heads)
            if not heads:
                return (), ()
            if heads[0][_COUNT] > BATCH_EVENTS:
                self._check_end(connection, heads[0])
            events = plain_rows(
                connection,
                _EVENTS,
                journal=self._journal_id,
                first=heads[0][_FIRST_SEQ],
                end=heads[-1][_FIRST_SEQ] + heads[-1][_COUNT],
            )
        return heads, events

    def _check_not_pruned(self, after: int) -> None:
        """Raise JournalError where what follows number `after` is missing because it was pruned meanwhile."""
        with reading(self._engine) as connection:
            refuse_if_pruned(connection, self._journal_id, after)

    def _check_end(self, connection: sa.Connection, head: Cells) -> None:
        """Raise UnreadableRow unless the last event of a large transaction is there.

        A count that was changed must not read the rest of the journal into memory.
        """
        last = head[_FIRST_SEQ] + head[_COUNT] - 1
        query = sa.select(EventRow.txn).where(EventRow.journal_id == self._journal_id, EventRow.seq == last)
        if connection.execute(query).scalar_one_or_none() != head[_NUMBER]:
            raise _missing(head[_NUMBER], head[_FIRST_SEQ], head[_COUNT])


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


def _within_limits(heads: Sequence[Cells]) -> Sequence[Cells]:
    """The first of `heads`: as many as can be, with their events. Raises UnreadableRow where none can."""
    total = 0
    for i, head in enumerate(heads):
        first_seq, count = head[_FIRST_SEQ], head[_COUNT]
        if not (
            type(first_seq) is type(count) is int
            and first_seq >= 0
            and count >= 0
            and first_seq + count < SEQ_LIMIT
        ):
            if i:
                return heads[:i]
            raise UnreadableRow(
                f"transaction {head[_NUMBER]} names {count} events from seq {first_seq} on, which cannot be",
                number=head[_NUMBER],
                seq=first_seq if type(first_seq) is int else 0,
                invariant="sequence",
            )
        total += count
        if i and total > BATCH_EVENTS:
            return heads[:i]
    return heads


def _missing(number: int, first_seq: int, count: int) -> UnreadableRow:
    return UnreadableRow(
        f"transaction {number} holds {count} events from seq {first_seq} on, and not all are there",
        number=number,
        seq=first_seq,
        invariant="sequence",
    )


def assemble(heads: Sequence[Cells], rows: Sequence[Cells]) -> Iterator[StoredTransaction]:
    """The transactions of one batch. Raises UnreadableRow at the first row that cannot be decoded."""
    taken = 0
    for number, op, request, status, reason, time_us, first_seq, count, previous, link, duration_us in heads:
        mine = rows[taken : taken + count]
        taken += count
        # The rows are in order of seq and none is there twice: the ends tell whether all are there.
        if len(mine) != count or (
            count and (mine[0][_SEQ] != first_seq or mine[-1][_SEQ] != first_seq + count - 1)
        ):
            raise _missing(number, first_seq, count)
        events = _events(mine, number)
        rolled_back = status == ROLLED_BACK
        # By place, in the order of the record: names cost as much again.
        yield StoredTransaction(
            number, op, request, rolled_back, reason, time_us, first_seq, events, previous, link, duration_us
        )


def _events(rows: Sequence[Cells], number: int) -> tuple[StoredEvent, ...]:
    events = []
    seq = 0
    try:
        for seq, kind, version, undone, payload, blob in rows:
            events.append(StoredEvent(seq, bool(undone), decode(kind, version, payload, blob)))
    except JournalFormatError as error:
        raise UnreadableRow(f"seq {seq}: {error}", number=number, seq=seq, invariant="well-formed") from error
    return tuple(events)
