"""Seqs among which the events of a question are, found by statements that ask an index for what it holds.

Kind, node and request have an index each, ending in the seq; the events of a transaction are one range of the
primary key; times are found among the transactions, and bound the seqs; what was undone stands in
transactions with a `rolled_back` event. Several kinds or nodes are as many streams of seqs, merged, so that
no sort grows with the journal. Each read is one short transaction.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from kvledger.core.events import RolledBack
from kvledger.core.ids import RequestId
from kvledger.journal.database import read_rows
from kvledger.journal.lookups.questions import LAST_SEQ, EventFilter, TransactionFilter
from kvledger.journal.models import EventRow, TransactionRow

BATCH_EVENTS = 2_048
"""Events in one read: a few hundred kilobytes, read in some milliseconds."""

BATCH_TRANSACTIONS = 256
"""Transactions whose seqs are asked for in one read."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The seqs that are looked at, both ends included, in which order, and how many at first."""

    low: int
    high: int
    newest_first: bool
    batch: int


class SeqStreams:
    """The seqs of one journal of the store behind `engine`, by its indexes."""

    def __init__(self, engine: sa.Engine, journal_id: int) -> None:
        self._engine = engine
        self._journal_id = journal_id

    def bounded(self, wanted: EventFilter, walk: Walk) -> Walk | None:
        """The walk with the seqs that the transaction or the times leave possible; None where none are."""
        times = list(times_within(wanted, TransactionRow.time_us))
        if wanted.transaction is None and not times:
            return walk
        number = TransactionRow.number
        first = last = wanted.transaction
        if times:
            query = sa.select(sa.func.min(number), sa.func.max(number))
            query = query.where(TransactionRow.journal_id == self._journal_id, *times)
            earliest, latest = self._rows(query)[0]
            if first is None or last is None:
                first, last = earliest, latest
            elif earliest is None or not earliest <= first <= latest:
                return None
        ends = [] if first is None or last is None else self._ends(first, last)
        if not ends:
            return None
        return replace(walk, low=max(walk.low, ends[0]), high=min(walk.high, ends[1]))

    def candidates(self, wanted: EventFilter, walk: Walk) -> Iterator[int]:
        """Seqs among which all matches are, each once, in the order of the walk."""
        last = None
        streams = self._streams(wanted, walk)
        for seq in streams[0] if len(streams) == 1 else heapq.merge(*streams, reverse=walk.newest_first):
            if seq != last:
                yield seq
            last = seq

    def _streams(self, wanted: EventFilter, walk: Walk) -> list[Iterator[int]]:
        """Streams of seqs that one index each can answer, and that hold all matches together."""
        if wanted.request_id is not None:
            named = self._by_index(walk, EventRow.request_id == wanted.request_id)
            return [named, self._within(self._of_request(wanted.request_id, walk), walk)]
        if wanted.nodes:
            return [self._by_index(walk, EventRow.node == node) for node in dict.fromkeys(wanted.nodes)]
        if wanted.kinds:
            return [self._by_index(walk, EventRow.kind == kind) for kind in dict.fromkeys(wanted.kinds)]
        if wanted.undone and wanted.transaction is None:
            return [self._within(self._with_rollbacks(walk), walk)]
        return [self._by_index(walk)]

    def _by_index(self, walk: Walk, *conditions: Any) -> Iterator[int]:
        """Seqs in order, by the index of the one column that the condition names, or the primary key."""
        low, high, batch = walk.low, walk.high, walk.batch
        while low <= high:
            query = sa.select(EventRow.seq).where(EventRow.journal_id == self._journal_id, *conditions)
            if low > 1:
                query = query.where(EventRow.seq >= low)
            if high < LAST_SEQ:
                query = query.where(EventRow.seq <= high)
            order = EventRow.seq.desc() if walk.newest_first else EventRow.seq
            seqs = [seq_of(row) for row in self._rows(query.order_by(order).limit(batch))]
            yield from seqs
            if len(seqs) < batch:
                return
            low, high = (low, seqs[-1] - 1) if walk.newest_first else (seqs[-1] + 1, high)
            batch = min(2 * batch, BATCH_EVENTS)

    def _within(self, pages: Iterator[list[int]], walk: Walk) -> Iterator[int]:
        """The seqs of these transactions; `pages` hold their numbers in the order of the walk."""
        for numbers in pages:
            query = sa.select(
                TransactionRow.number, TransactionRow.first_seq, TransactionRow.event_count
            ).where(TransactionRow.journal_id == self._journal_id, TransactionRow.number.in_(numbers))
            for _, first_seq, count in sorted(map(tuple, self._rows(query)), reverse=walk.newest_first):
                seqs = range(max(walk.low, first_seq), min(walk.high, first_seq + count - 1) + 1)
                yield from reversed(seqs) if walk.newest_first else seqs

    def _of_request(self, request_id: RequestId, walk: Walk) -> Iterator[list[int]]:
        """Pages of the numbers of a request's own transactions that reach into the walk."""
        number = TransactionRow.number
        low, high = self._number_before(walk.low), self._number_after(walk.high)
        batch = min(walk.batch, BATCH_TRANSACTIONS)
        while True:
            query = sa.select(number).where(
                TransactionRow.journal_id == self._journal_id, TransactionRow.request_id == request_id
            )
            if low is not None:
                query = query.where(number >= low)
            if high is not None:
                query = query.where(number <= high)
            rows = self._rows(query.order_by(number.desc() if walk.newest_first else number).limit(batch))
            numbers = [int(row[0]) for row in rows]
            yield numbers
            if len(numbers) < batch:
                return
            low, high = (low, numbers[-1] - 1) if walk.newest_first else (numbers[-1] + 1, high)

    def _with_rollbacks(self, walk: Walk) -> Iterator[list[int]]:
        """Pages of the numbers of transactions in which something was rolled back.

        A `rolled_back` event stands behind what it undid, in the same transaction: the walk among them goes
        on to the end of the transaction in which the seqs end.
        """
        beyond = Walk(walk.low, self._end_around(walk.high), walk.newest_first, walk.batch)
        seqs = self._by_index(beyond, EventRow.kind == RolledBack.kind)
        last = None
        while page := list(islice(seqs, min(walk.batch, BATCH_TRANSACTIONS))):
            query = sa.select(EventRow.txn).where(
                EventRow.journal_id == self._journal_id, EventRow.seq.in_(page)
            )
            found = {int(row[0]) for row in self._rows(query.distinct())} - {last}
            numbers = sorted(found, reverse=walk.newest_first)
            if numbers:
                yield numbers
                last = numbers[-1]

    def _number_before(self, seq: int) -> int | None:
        """The transaction of the last event at or before `seq`; None where there is none."""
        query = sa.select(EventRow.txn).where(EventRow.journal_id == self._journal_id, EventRow.seq <= seq)
        rows = self._rows(query.order_by(EventRow.seq.desc()).limit(1))
        return int(rows[0][0]) if rows else None

    def _number_after(self, seq: int) -> int | None:
        """The transaction of the first event at or after `seq`; None where there is none."""
        query = sa.select(EventRow.txn).where(EventRow.journal_id == self._journal_id, EventRow.seq >= seq)
        rows = self._rows(query.order_by(EventRow.seq).limit(1))
        return int(rows[0][0]) if rows else None

    def _end_around(self, seq: int) -> int:
        """The last seq of the transaction of the first event at or after `seq`; `seq` where there is none."""
        number = self._number_after(seq)
        ends = [] if number is None else self._ends(number, number)
        return max(seq, ends[1]) if ends else seq

    def _ends(self, first: int, last: int) -> list[int]:
        """The first and the last seq of these transactions, both numbers included; nothing where one is
        gone.
        """
        query = sa.select(TransactionRow.first_seq, TransactionRow.event_count).where(
            TransactionRow.journal_id == self._journal_id, TransactionRow.number.in_((first, last))
        )
        rows = self._rows(query.order_by(TransactionRow.number))
        return [int(rows[0][0]), int(rows[-1][0]) + int(rows[-1][1]) - 1] if rows else []

    def _rows(self, query: Any) -> Sequence[Any]:
        return read_rows(self._engine, query)


def times_within(wanted: EventFilter | TransactionFilter, time_us: Any) -> Iterator[Any]:
    """The conditions that a filter's times put on `time_us`, a column or what is computed from it."""
    if wanted.since_us is not None:
        yield time_us >= wanted.since_us
    if wanted.until_us is not None:
        yield time_us < wanted.until_us


def seq_of(row: Any) -> int:
    seq: int = row.seq
    return seq
