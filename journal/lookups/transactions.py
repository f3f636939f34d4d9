"""Look-ups of transactions by request, operation, outcome, seq and time, without their events.

What an index answers: those of a request; those of a time, as bounds of the numbers; rolled back ones,
which end in a `rolled_back` event, and events have an index by kind. No index knows operations, nor those
that were committed: they are picked out of all transactions in the range, newest or oldest first, until
there are enough.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from kvledger.core.events import RolledBack
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.journal.database import read_rows
from kvledger.journal.lookups.questions import (
    LAST_SEQ,
    FoundTransaction,
    TransactionFilter,
    check_question,
    span_of,
)
from kvledger.journal.lookups.seqs import times_within
from kvledger.journal.models import ROLLED_BACK, EventRow, TransactionRow

BATCH_TRANSACTIONS = 512
"""Rows of one read: some hundred bytes each."""

_COLUMNS = (
    TransactionRow.number,
    TransactionRow.op,
    TransactionRow.request_id,
    TransactionRow.status,
    TransactionRow.reason,
    TransactionRow.time_us,
    TransactionRow.first_seq,
    TransactionRow.event_count,
    TransactionRow.duration_us,
)


class TransactionLookUp:
    """Look-ups in the transactions of one journal. Safe while it is written."""

    def __init__(self, engine: sa.Engine, journal_id: int) -> None:
        self._engine = engine
        self._journal_id = journal_id

    def find(
        self,
        wanted: TransactionFilter,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundTransaction]:
        """As `LookUpSource.find_transactions`. Cost: O(matches between the cursors), up to the limit.

        `ops` and `rolled_back=False` alone cost all transactions that are passed on the way to the matches,
        `rolled_back=True` the rollbacks there; times cost an index's entries for their range on top.
        """
        check_question(wanted, limit, newest_first=newest_first)
        first_seq, last_seq = span_of(wanted.first_seq, wanted.last_seq)
        if first_seq > last_seq:
            return
        wanted = replace(wanted, first_seq=Seq(first_seq), last_seq=Seq(last_seq))
        bounds = self._bounds(wanted, after, before)
        batch = BATCH_TRANSACTIONS if limit is None else min(limit, BATCH_TRANSACTIONS)
        conditions = list(_conditions(wanted))
        if wanted.request_id is not None:
            mine = TransactionRow.request_id == wanted.request_id
            found = self._these(self._numbers(bounds, mine, batch, newest_first), conditions, newest_first)
        elif wanted.rolled_back:
            found = self._these(self._with_rollbacks(bounds, batch, newest_first), conditions, newest_first)
        else:
            found = self._in_order(bounds, conditions, batch, newest_first)
        yield from map(found_transaction, islice(found, limit))

    def _in_order(
        self, bounds: tuple[int, int], conditions: Sequence[Any], batch: int, newest_first: bool
    ) -> Iterator[Any]:
        """All transactions that meet the conditions, by the primary key."""
        for rows in self._walk(_COLUMNS, bounds, conditions, batch, newest_first):
            yield from rows

    def _numbers(
        self, bounds: tuple[int, int], condition: Any, batch: int, newest_first: bool
    ) -> Iterator[list[int]]:
        """Pages of numbers from an index that holds the column of the condition, and nothing else."""
        for rows in self._walk((TransactionRow.number,), bounds, (condition,), batch, newest_first):
            yield [int(row.number) for row in rows]

    def _walk(
        self,
        columns: Sequence[Any],
        bounds: tuple[int, int],
        conditions: Sequence[Any],
        batch: int,
        newest_first: bool,
    ) -> Iterator[Sequence[Any]]:
        low, high = bounds
        number = TransactionRow.number
        while low <= high:
            query = sa.select(*columns).where(TransactionRow.journal_id == self._journal_id, *conditions)
            if low > 1:
                query = query.where(number >= low)
            if high < LAST_SEQ:
                query = query.where(number <= high)
            rows = self._rows(query.order_by(number.desc() if newest_first else number).limit(batch))
            yield rows
            if len(rows) < batch:
                return
            last = int(rows[-1].number)
            low, high = (low, last - 1) if newest_first else (last + 1, high)

    def _these(
        self, pages: Iterator[list[int]], conditions: Sequence[Any], newest_first: bool
    ) -> Iterator[Any]:
        """Those of the transactions, whose numbers come in pages, that meet the conditions."""
        for numbers in pages:
            query = sa.select(*_COLUMNS).where(
                TransactionRow.journal_id == self._journal_id,
                TransactionRow.number.in_(numbers),
                *conditions,
            )
            yield from sorted(self._rows(query), key=lambda row: int(row.number), reverse=newest_first)

    def _with_rollbacks(self, bounds: tuple[int, int], batch: int, newest_first: bool) -> Iterator[list[int]]:
        """Pages of the numbers of transactions in which something was rolled back."""
        low, high = self._seqs_of(bounds)
        seq, of = EventRow.seq, EventRow.journal_id == self._journal_id
        last = None
        while low <= high:
            query = sa.select(seq).where(of, EventRow.kind == RolledBack.kind, seq >= low, seq <= high)
            page = self._rows(query.order_by(seq.desc() if newest_first else seq).limit(batch))
            seqs = [int(row.seq) for row in page]
            among = self._rows(sa.select(EventRow.txn).where(of, seq.in_(seqs)).distinct())
            numbers = sorted({int(row.txn) for row in among} - {last}, reverse=newest_first)
            if numbers:
                yield numbers
                last = numbers[-1]
            if len(seqs) < batch:
                return
            low, high = (low, seqs[-1] - 1) if newest_first else (seqs[-1] + 1, high)

    def _bounds(self, wanted: TransactionFilter, after: int | None, before: int | None) -> tuple[int, int]:
        """The first and last number that cursors, seqs and times leave possible."""
        low, high = span_of(None, None, after=after, before=before)
        seq = EventRow.seq
        if wanted.first_seq is not None and wanted.first_seq > 1:
            found = self._event(seq < wanted.first_seq, seq.desc())
            low = max(low, 1 if found is None else found)
        if wanted.last_seq is not None and wanted.last_seq < LAST_SEQ:
            found = self._event(seq > wanted.last_seq, seq)
            high = min(high, LAST_SEQ if found is None else found)
        times = list(times_within(wanted, TransactionRow.time_us))
        if times:
            query = sa.select(sa.func.min(TransactionRow.number), sa.func.max(TransactionRow.number))
            first, last = self._rows(query.where(TransactionRow.journal_id == self._journal_id, *times))[0]
            low, high = (1, 0) if first is None else (max(low, int(first)), min(high, int(last)))
        return low, high

    def _event(self, where: Any, order: Any) -> int | None:
        """The transaction of the nearest event."""
        query = sa.select(EventRow.txn).where(EventRow.journal_id == self._journal_id, where)
        rows = self._rows(query.order_by(order).limit(1))
        return int(rows[0][0]) if rows else None

    def _seqs_of(self, bounds: tuple[int, int]) -> tuple[int, int]:
        """The seqs of these transactions."""
        number = TransactionRow.number
        first_seq, count = TransactionRow.first_seq, TransactionRow.event_count
        mine = sa.select(first_seq, count).where(TransactionRow.journal_id == self._journal_id).limit(1)
        first = self._rows(mine.where(number >= bounds[0]).order_by(number))
        last = self._rows(mine.where(number <= bounds[1]).order_by(number.desc()))
        if not first or not last:
            return 1, 0
        return int(first[0][0]), int(last[0][0]) + int(last[0][1]) - 1

    def _rows(self, query: Any) -> Sequence[Any]:
        return read_rows(self._engine, query)


def _conditions(wanted: TransactionFilter) -> Iterator[Any]:
    if wanted.ops:
        yield TransactionRow.op.in_(list(wanted.ops))
    if wanted.request_id is not None:
        yield TransactionRow.request_id == wanted.request_id
    if wanted.rolled_back is not None:
        same = TransactionRow.status == ROLLED_BACK
        yield same if wanted.rolled_back else ~same
    # As a sum no index has it: the walk stays in the order of numbers, which the times only bound.
    yield from times_within(wanted, TransactionRow.time_us + 0)
    # One without events stands at the seq that the next event gets.
    first, count = TransactionRow.first_seq, TransactionRow.event_count
    if wanted.first_seq is not None and wanted.first_seq > 1:
        yield first + sa.case((count == 0, 0), else_=count - 1) >= wanted.first_seq
    if wanted.last_seq is not None and wanted.last_seq < LAST_SEQ:
        yield first <= wanted.last_seq


def found_transaction(row: Sequence[Any]) -> FoundTransaction:
    """What is told of a row of number, op, request_id, status, reason, time_us, first_seq, event_count and
    duration_us.
    """
    number, op, request, status, reason, time_us, first_seq, count, duration_us = row
    return FoundTransaction(
        number=TxnId(number),
        op=op,
        request_id=None if request is None else RequestId(request),
        rolled_back=status == ROLLED_BACK,
        reason=reason,
        time_us=time_us,
        duration_us=duration_us,
        first_seq=Seq(first_seq),
        event_count=count,
    )
