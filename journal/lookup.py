"""Look-ups: the events of one journal by kind, node, request, transaction, seq and time, each by an index.

What an index answers: kind, node and request have one each, ending in the seq; the events of a transaction
are one range of the primary key; times are found among the transactions, and bound the seqs. Several kinds
are as many streams, merged by seq, so that no sort grows with the journal. Answers come a batch at a time,
each from one short read transaction; the seq of the last event seen is the cursor from which a later look-up
goes on.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import aliased

from kvledger.core.errors import InvalidArgument, JournalFormatError
from kvledger.core.events import EVENTS, Event
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.journal.codec import decode
from kvledger.journal.database import database_errors
from kvledger.journal.models import EventRow, TransactionRow

BATCH_EVENTS = 2_048
"""Events in one read: a few hundred kilobytes, read in some milliseconds."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """What a look-up asks for; every condition that is given must hold.

    `request_id` finds events that name the request and all events of its own transactions. Times are those of
    the transaction, microseconds since 1970, as the half-open range [since_us, until_us). `first_seq` and
    `last_seq` are both included.
    """

    kinds: Sequence[str] = ()
    node: NodeId | None = None
    request_id: RequestId | None = None
    transaction: TxnId | None = None
    since_us: int | None = None
    until_us: int | None = None
    first_seq: Seq | None = None
    last_seq: Seq | None = None


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """One event with what its transaction's row says of it."""

    seq: Seq
    undone: bool
    event: Event
    transaction: TxnId
    op: str
    time_us: int


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

    def find(self, wanted: EventFilter, *, limit: int | None = None) -> Iterator[FoundEvent]:
        """The events that match, undone ones included, in order of seq, at most `limit` of them.

        Raises InvalidArgument for an unknown kind or a limit below 1; JournalFormatError at an event that
        cannot be decoded. Cost: O(matches).
        """
        unknown = sorted(set(wanted.kinds) - EVENTS.keys())
        if unknown:
            raise InvalidArgument(f"there is no event kind {unknown[0]!r}; they are {', '.join(EVENTS)}")
        if limit is not None and limit < 1:
            raise InvalidArgument(f"a limit is at least 1, not {limit}")
        batch = BATCH_EVENTS if limit is None else min(limit, BATCH_EVENTS)
        streams = [self._stream(one, batch) for one in self._parts(wanted)]
        rows = streams[0] if len(streams) == 1 else heapq.merge(*streams, key=_seq)
        yield from map(_found, islice(rows, limit))

    def _parts(self, wanted: EventFilter) -> list[EventFilter]:
        """Filters that one index each can answer, and that give the answer together."""
        narrow = self._bounded(wanted)
        if narrow is None:
            return []
        kinds = list(dict.fromkeys(narrow.kinds))
        narrower = (narrow.node, narrow.request_id, narrow.transaction)
        if len(kinds) > 1 and all(value is None for value in narrower):
            return [replace(narrow, kinds=(kind,)) for kind in kinds]
        return [narrow]

    def _stream(self, wanted: EventFilter, batch: int) -> Iterator[Any]:
        after = 0 if wanted.first_seq is None else int(wanted.first_seq) - 1
        while True:
            rows = sorted(self._rows(self._page(wanted, after, batch)), key=_seq)
            for row in rows:
                if (wanted.since_us is None or row.time_us >= wanted.since_us) and (
                    wanted.until_us is None or row.time_us < wanted.until_us
                ):
                    yield row
            if len(rows) < batch:
                return
            after = _seq(rows[-1])

    def _page(self, wanted: EventFilter, after: int, batch: int) -> Any:
        """The statement for the next events after seq `after`.

        The seqs are found first, in an index that holds nothing else. Without statistics SQLite takes the
        cost of fetching a row through an index for more than that of reading the whole journal in order.
        """
        key = aliased(EventRow)
        seqs = (
            sa.select(key.seq)
            .where(key.journal_id == self._journal_id, key.seq > after, *self._conditions(key, wanted))
            .order_by(key.seq)
            .limit(batch)
        )
        return (
            sa.select(*_COLUMNS)
            .join(
                TransactionRow,
                sa.and_(
                    TransactionRow.journal_id == EventRow.journal_id, TransactionRow.number == EventRow.txn
                ),
            )
            .where(EventRow.journal_id == self._journal_id, EventRow.seq.in_(seqs))
        )

    def _conditions(self, key: Any, wanted: EventFilter) -> Iterator[sa.ColumnElement[bool]]:
        if len(wanted.kinds) == 1:
            yield key.kind == wanted.kinds[0]
        elif wanted.kinds:
            yield key.kind.in_(wanted.kinds)
        if wanted.node is not None:
            yield key.node == wanted.node
        if wanted.request_id is not None:
            yield key.seq.in_(self._of_request(wanted.request_id))
        if wanted.transaction is not None:
            yield key.txn == wanted.transaction
        if wanted.last_seq is not None:
            yield key.seq <= wanted.last_seq

    def _of_request(self, request_id: RequestId) -> Any:
        """The seqs of events that name a request, and of all events of its own transactions."""
        named, own = aliased(EventRow), aliased(EventRow)
        of, by_name = aliased(TransactionRow), aliased(TransactionRow)
        numbers = sa.select(by_name.number).where(
            by_name.journal_id == self._journal_id, by_name.request_id == request_id
        )
        return sa.union(
            sa.select(named.seq).where(named.journal_id == self._journal_id, named.request_id == request_id),
            sa.select(own.seq)
            .select_from(of)
            .join(
                own,
                sa.and_(
                    own.journal_id == of.journal_id,
                    own.seq >= of.first_seq,
                    own.seq < of.first_seq + of.event_count,
                ),
            )
            .where(of.journal_id == self._journal_id, of.number.in_(numbers)),
        )

    def _bounded(self, wanted: EventFilter) -> EventFilter | None:
        """The filter with the seqs that its transaction or times leave possible; None where none are."""
        conditions = []
        if wanted.transaction is not None:
            conditions.append(TransactionRow.number == wanted.transaction)
        if wanted.since_us is not None:
            conditions.append(TransactionRow.time_us >= wanted.since_us)
        if wanted.until_us is not None:
            conditions.append(TransactionRow.time_us < wanted.until_us)
        if not conditions:
            return wanted
        query = sa.select(
            sa.func.min(TransactionRow.first_seq),
            sa.func.max(TransactionRow.first_seq + TransactionRow.event_count - 1),
        ).where(TransactionRow.journal_id == self._journal_id, *conditions)
        first, last = self._rows(query)[0]
        if first is None:
            return None
        return replace(
            wanted,
            first_seq=first if wanted.first_seq is None else Seq(max(first, wanted.first_seq)),
            last_seq=last if wanted.last_seq is None else Seq(min(last, wanted.last_seq)),
        )

    def _rows(self, query: Any) -> Sequence[Any]:
        with database_errors("the journal cannot be read"), self._engine.connect() as connection:
            return connection.execute(query).all()


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
