"""Look-ups: the events of one journal by kind, node, request, transaction, seq and time, each by an index.

The seqs are found first (seqs.py), by statements that ask an index for nothing but what it holds: without
statistics SQLite takes fetching rows through an index for dearer than reading the whole journal in order. The
rows are fetched a batch at a time, and what no index answers is asked of them.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa

from kvledger.core.errors import JournalFormatError
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.codec import decode
from kvledger.journal.database import read_rows
from kvledger.journal.lookups.questions import (
    DEFAULT_COUNT,
    Count,
    EventFilter,
    FoundEvent,
    check_question,
    span_of,
)
from kvledger.journal.lookups.seqs import BATCH_EVENTS, SeqStreams, Walk, seq_of, times_within
from kvledger.journal.models import EventRow, TransactionRow

FIRST_BATCH = 32
"""Events in the first read where nobody says how many are wanted; each is twice the one before it."""

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


class EventLookUp:
    """Look-ups in one journal of the store behind `engine`. Safe while the journal is written."""

    def __init__(self, engine: sa.Engine, journal_id: int) -> None:
        self._engine = engine
        self._journal_id = journal_id
        self._seqs = SeqStreams(engine, journal_id)

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
        check_question(wanted, limit, newest_first=newest_first)
        low, high = span_of(wanted.first_seq, wanted.last_seq, after=after_seq, before=before_seq)
        walk = Walk(low, high, newest_first, FIRST_BATCH if limit is None else min(limit, BATCH_EVENTS))
        found = self._matches(wanted, walk, _COLUMNS)
        yield from map(found_event, islice(found, limit))

    def count(self, wanted: EventFilter, *, upto: int = DEFAULT_COUNT) -> Count:
        """As `LookUpSource.count`. Cost: that of finding the seqs of at most `upto` + 1 matches."""
        check_question(wanted, upto)
        low, high = span_of(wanted.first_seq, wanted.last_seq)
        walk = Walk(low, high, newest_first=False, batch=min(upto + 1, BATCH_EVENTS))
        bounded = self._seqs.bounded(wanted, walk)
        if bounded is not None and wanted.request_id is None and not list(_conditions(wanted)):
            matches: Iterator[Any] = self._seqs.candidates(wanted, bounded)
        else:
            matches = self._matches(wanted, walk, (EventRow.seq,))
        found = sum(1 for _ in islice(matches, upto + 1))
        return Count(min(found, upto), exact=found <= upto)

    def _matches(self, wanted: EventFilter, walk: Walk, columns: Sequence[Any]) -> Iterator[Any]:
        """The rows of the events that match, in the order of the walk."""
        bounded = self._seqs.bounded(wanted, walk)
        if bounded is None:
            return
        candidates = self._seqs.candidates(wanted, bounded)
        conditions = list(_conditions(wanted))
        batch = walk.batch
        while seqs := list(islice(candidates, batch)):
            rows = self._rows(self._events(seqs, columns).where(*conditions))
            yield from sorted(rows, key=seq_of, reverse=walk.newest_first)
            batch = min(2 * batch, BATCH_EVENTS)

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
        return read_rows(self._engine, query)


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


def found_event(row: Sequence[Any]) -> FoundEvent:
    """What is told of the cells of an event, and of number, op and time_us of its transaction.

    Raises JournalFormatError, naming the seq, where the event cannot be decoded.
    """
    seq, kind, version, undone, payload, blob, number, op, time_us = row
    try:
        event = decode(kind, version, payload, blob)
    except JournalFormatError as error:
        raise JournalFormatError(f"seq {seq}: {error}") from error
    return FoundEvent(Seq(seq), bool(undone), event, TxnId(number), op, time_us)
