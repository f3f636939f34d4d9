"""Look-ups: the events of one journal by kind, node, request, transaction, seq and time, each by an index.

What an index answers: kind, node and request have one each, ending in the seq; the events of a transaction
are one range of the primary key; times are found among the transactions, and bound the seqs; what was
undone stands in transactions with a `rolled_back` event. Several kinds or nodes are as many streams of
seqs, merged, so that no sort grows with the journal.

The seqs are found first, by statements that ask an index for nothing but what it holds: without statistics
SQLite takes fetching rows through an index for dearer than reading the whole journal in order. The rows are
fetched a batch at a time, and what no index answers is asked of them. Each read is one short transaction.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import sqlalchemy as sa

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import RolledBack
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.journal.codec import decode
from kvledger.journal.database import database_errors
from kvledger.journal.models import EventRow, TransactionRow
from kvledger.journal.questions import (
    DEFAULT_COUNT,
    LAST_SEQ,
    Count,
    EventFilter,
    FoundEvent,
    TransactionFilter,
    check_question,
    span_of,
)

BATCH_EVENTS = 2_048
"""Events in one read: a few hundred kilobytes, read in some milliseconds."""

FIRST_BATCH = 32
"""Events in the first read where nobody says how many are wanted; each is twice the one before it."""

BATCH_TRANSACTIONS = 256
"""Transactions whose seqs are asked for in one read."""

_COLUMNS = (
    EventRow.seq,
    EventRow.kind,
    EventRow.version,
    EventRow.undone,
    EventRow.payload,
    EventRow.blob,
    TransactionRow.number,
    TransactionRow.op,
    TransactionRow.time_us,
)


@dataclass(frozen=True, slots=True)
class _Walk:
    """The seqs that are looked at, both ends included, in which order, and how many at first."""

    low: int
    high: int
    newest_first: bool
    batch: int


class EventLookUp:
    """Look-ups in one journal of the store behind `engine`. Safe while the journal is written."""

    def __init__(self, engine: sa.Engine, journal_id: int) -> None:
        self._engine = engine
        self._journal_id = journal_id

    def find(
        self,
        wanted: EventFilter,
        *,
        limit: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundEvent]:
        """As `LookUpSource.find`. Cost: O(matches between the cursors), up to the limit.

        With `nodes` or a `request_id` it is O(their events) there, whatever else is asked; `undone=True`
        alone costs the events of transactions in which something was rolled back, `undone=False` alone all
        events; times cost an index's entries for the transactions in their range on top.
        """
        check_question(wanted, limit)
        low, high = span_of(wanted.first_seq, wanted.last_seq, after=after_seq, before=before_seq)
        walk = _Walk(low, high, newest_first, FIRST_BATCH if limit is None else min(limit, BATCH_EVENTS))
        found = self._matches(wanted, walk, _COLUMNS)
        yield from map(_found, islice(found, limit))

    def count(self, wanted: EventFilter, *, upto: int = DEFAULT_COUNT) -> Count:
        """As `LookUpSource.count`. Cost: that of finding the seqs of at most `upto` + 1 matches."""
        check_question(wanted, upto)
        low, high = span_of(wanted.first_seq, wanted.last_seq)
        walk = _Walk(low, high, newest_first=False, batch=min(upto + 1, BATCH_EVENTS))
        bounded = self._bounded(wanted, walk)
        if bounded is not None and wanted.request_id is None and not list(_conditions(wanted)):
            matches: Iterator[Any] = self._candidates(wanted, bounded)
        else:
            matches = self._matches(wanted, walk, (EventRow.seq,))
        found = sum(1 for _ in islice(matches, upto + 1))
        return Count(min(found, upto), exact=found <= upto)

    def _matches(self, wanted: EventFilter, walk: _Walk, columns: Sequence[Any]) -> Iterator[Any]:
        """The rows of the events that match, in the order of the walk."""
        bounded = self._bounded(wanted, walk)
        if bounded is None:
            return
        candidates = self._candidates(wanted, bounded)
        conditions = list(_conditions(wanted))
        batch = walk.batch
        while seqs := list(islice(candidates, batch)):
            rows = self._rows(self._events(seqs, columns).where(*conditions))
            yield from sorted(rows, key=_seq, reverse=walk.newest_first)
            batch = min(2 * batch, BATCH_EVENTS)

    def _candidates(self, wanted: EventFilter, walk: _Walk) -> Iterator[int]:
        """Seqs among which all matches are, each once, in the order of the walk."""
        last = None
        streams = self._streams(wanted, walk)
        for seq in streams[0] if len(streams) == 1 else heapq.merge(*streams, reverse=walk.newest_first):
            if seq != last:
                yield seq
            last = seq

    def _streams(self, wanted: EventFilter, walk: _Walk) -> list[Iterator[int]]:
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

    def _by_index(self, walk: _Walk, *conditions: Any) -> Iterator[int]:
        """Seqs in order, by the index of the one column that the condition names, or the primary key."""
        low, high, batch = walk.low, walk.high, walk.batch
        while low <= high:
            query = sa.select(EventRow.seq).where(EventRow.journal_id == self._journal_id, *conditions)
            if low > 1:
                query = query.where(EventRow.seq >= low)
            if high < LAST_SEQ:
                query = query.where(EventRow.seq <= high)
            order = EventRow.seq.desc() if walk.newest_first else EventRow.seq
            seqs = [_seq(row) for row in self._rows(query.order_by(order).limit(batch))]
            yield from seqs
            if len(seqs) < batch:
                return
            low, high = (low, seqs[-1] - 1) if walk.newest_first else (seqs[-1] + 1, high)
            batch = min(2 * batch, BATCH_EVENTS)

    def _within(self, pages: Iterator[list[int]], walk: _Walk) -> Iterator[int]:
        """The seqs of these transactions; `pages` hold their numbers in the order of the walk."""
        for numbers in pages:
            query = sa.select(
                TransactionRow.number, TransactionRow.first_seq, TransactionRow.event_count
            ).where(TransactionRow.journal_id == self._journal_id, TransactionRow.number.in_(numbers))
            for _, first_seq, count in sorted(map(tuple, self._rows(query)), reverse=walk.newest_first):
                seqs = range(max(walk.low, first_seq), min(walk.high, first_seq + count - 1) + 1)
                yield from reversed(seqs) if walk.newest_first else seqs

    def _of_request(self, request_id: RequestId, walk: _Walk) -> Iterator[list[int]]:
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

    def _with_rollbacks(self, walk: _Walk) -> Iterator[list[int]]:
        """Pages of the numbers of transactions in which something was rolled back.

        A `rolled_back` event stands behind what it undid, in the same transaction: the walk among them goes
        on to the end of the transaction in which the seqs end.
        """
        beyond = _Walk(walk.low, self._end_around(walk.high), walk.newest_first, walk.batch)
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

    def _bounded(self, wanted: EventFilter, walk: _Walk) -> _Walk | None:
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

    def _ends(self, first: int, last: int) -> list[int]:
        """The first and the last seq of these transactions, both numbers included; nothing where one is
        gone.
        """
        query = sa.select(TransactionRow.first_seq, TransactionRow.event_count).where(
            TransactionRow.journal_id == self._journal_id, TransactionRow.number.in_((first, last))
        )
        rows = self._rows(query.order_by(TransactionRow.number))
        return [int(rows[0][0]), int(rows[-1][0]) + int(rows[-1][1]) - 1] if rows else []

    def _events(self, seqs: Sequence[int], columns: Sequence[Any]) -> sa.Select[Any]:
        """The statement for events of these seqs, with their transactions."""
        first, last = min(seqs), max(seqs)
        dense = last - first + 1 == len(seqs)
        return (
            sa.select(*columns)
            .select_from(EventRow)
            .join(
                TransactionRow,
                sa.and_(
                    TransactionRow.journal_id == EventRow.journal_id, TransactionRow.number == EventRow.txn
                ),
            )
            .where(
                EventRow.journal_id == self._journal_id,
                EventRow.seq.between(first, last) if dense else EventRow.seq.in_(seqs),
            )
        )

    def _rows(self, query: Any) -> Sequence[Any]:
        with database_errors("the journal cannot be read"), self._engine.connect() as connection:
            return connection.execute(query).all()


def _conditions(wanted: EventFilter) -> Iterator[Any]:
    """What is asked of the rows of candidates; of an index it was asked before, and holds again."""
    if wanted.kinds and (wanted.nodes or wanted.request_id is not None):
        yield EventRow.kind.in_(list(wanted.kinds))
    if wanted.nodes and wanted.request_id is not None:
        yield EventRow.node.in_(list(wanted.nodes))
    if wanted.undone is not None:
        yield EventRow.undone == int(wanted.undone)
    if wanted.transaction is not None:
        yield EventRow.txn == wanted.transaction
    # As a sum no index has it: of the rows at hand it is asked, not of all transactions of that time.
    yield from times_within(wanted, TransactionRow.time_us + 0)


def times_within(wanted: EventFilter | TransactionFilter, time_us: Any) -> Iterator[Any]:
    """The conditions that a filter's times put on `time_us`, a column or what is computed from it."""
    if wanted.since_us is not None:
        yield time_us >= wanted.since_us
    if wanted.until_us is not None:
        yield time_us < wanted.until_us


def _seq(row: Any) -> int:
    seq: int = row.seq
    return seq


def _found(row: Any) -> FoundEvent:
    seq, kind, version, undone, payload, blob, number, op, time_us = row
    try:
        event = decode(kind, version, payload, blob)
    except JournalFormatError as error:
        raise JournalFormatError(f"seq {seq}: {error}") from error
    return FoundEvent(Seq(seq), bool(undone), event, TxnId(number), op, time_us)
