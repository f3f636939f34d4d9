"""Verification: the stored rows of a journal against the hashes that were stored with them.

Everything is read back as raw cells, text as its bytes, so that a change which happens to decode to the same
value is still a change. Each transaction is checked for its place (dense numbers, dense seqs), its events
(all there, none besides), its link to the one before and its own hash; after a break the check resumes from
what is stored, so that one changed row is reported once.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import sqlalchemy as sa

from kvledger.core.errors import CacheError
from kvledger.journal.chain import ChainHead, transaction_hash
from kvledger.journal.codec import decode
from kvledger.journal.database import database_errors
from kvledger.journal.fields import canonical_json
from kvledger.journal.models import EventRow, JournalRow, TransactionRow

BATCH_TRANSACTIONS = 512


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """One place where a journal is not what was written. `number` and `seq` name the first bad row."""

    invariant: Literal["chain", "sequence"]
    table: Literal["journals", "transactions", "events"]
    number: int | None
    seq: int | None
    sentence: str


def _raw(column: Any) -> sa.ColumnElement[Any]:
    """A text column as its stored bytes: damaged UTF-8 must be found here, not refused by the driver."""
    return sa.cast(column, sa.LargeBinary)


_TRANSACTION_CELLS = (
    TransactionRow.number,
    _raw(TransactionRow.op),
    _raw(TransactionRow.request_id),
    _raw(TransactionRow.status),
    _raw(TransactionRow.reason),
    TransactionRow.time_us,
    TransactionRow.first_seq,
    TransactionRow.event_count,
    TransactionRow.previous_hash,
    TransactionRow.hash,
)
_EVENT_CELLS = (
    EventRow.seq,
    EventRow.txn,
    _raw(EventRow.kind),
    EventRow.version,
    EventRow.node,
    _raw(EventRow.request_id),
    EventRow.undone,
    _raw(EventRow.payload),
    EventRow.blob,
)


def verify_chain(
    engine: sa.Engine,
    journal_id: int,
    *,
    epoch: str,
    genesis: bytes,
    config: str | None,
    anchor: ChainHead | None = None,
) -> Iterator[ChainBreak]:
    """Check one journal, whose row holds `epoch`, `config` and cells that amount to `genesis`.

    Yields the breaks in order of number; nothing when the rows are what was written, which without an
    `anchor` says nothing about transactions cut off at the end. Raises JournalError when the database cannot
    be read. Cost: O(bytes stored), memory bounded by a batch.
    """
    walk = _Walk(genesis, anchor if anchor is not None and anchor.epoch == epoch else None)
    after: int | None = None
    while True:
        with database_errors("the journal cannot be verified"), engine.connect() as connection:
            batch = _read_batch(connection, journal_id, after)
        if not batch:
            break
        for head, rows in batch:
            yield from walk.step(head, rows)
        after = batch[-1][0][0]
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        yield from _strays(connection, journal_id, walk.next_seq)
    yield from walk.end(config)
    if anchor is not None and anchor.epoch != epoch:
        yield ChainBreak(
            "chain", "journals", None, None, f"the anchor is of epoch {anchor.epoch}, the journal of {epoch}"
        )


class _Walk:
    """What the check knows between two transactions: which number, seq and link have to come next."""

    def __init__(self, genesis: bytes, anchor: ChainHead | None) -> None:
        self.next_number = 1
        self.next_seq = 1
        # After a break both the stored and the recomputed hash may be what the next row links to.
        self._links = {genesis}
        self._sound = True
        self._damaged = False
        self._anchor = anchor
        self._config: str | None = None

    def step(self, head: Sequence[Any], rows: Sequence[Any]) -> Iterator[ChainBreak]:
        """Check the next transaction and its event rows, and move on to what follows it."""
        number, *_, first_seq, event_count, previous, stored = head
        at = (number, first_seq if type(first_seq) is int else None)
        found: ChainBreak | None = None
        gap = number != self.next_number
        if gap:
            found = self._misplaced(number)
        elif self._sound and first_seq != self.next_seq:
            sentence = f"transaction {number} starts at seq {first_seq}; seq {self.next_seq} comes next"
            found = ChainBreak("sequence", "transactions", *at, sentence)
        else:
            found = _missing_event(number, first_seq, event_count, rows)
        computed = _hash_of(head, rows)
        if found is None and computed != stored:
            last = first_seq + event_count - 1
            sentence = (
                f"transaction {number}, or one of its events {first_seq} to {last}, was changed: "
                f"its hash is not that of its rows"
            )
            found = ChainBreak("chain", "transactions", *at, sentence)
        if found is None and previous not in self._links:
            table: Literal["journals", "transactions"] = "journals" if number == 1 else "transactions"
            before = "the journal's own row" if number == 1 else f"transaction {number - 1}"
            sentence = f"transaction {number} does not follow {before}: the hash before it is another one"
            found = ChainBreak("chain", table, *at, sentence)
        if found is not None:
            self._damaged = True
            yield found
        elif self._config is None:
            self._config = _config_in(rows)
        yield from self._at_anchor(number, stored)
        self._sound = found is None
        self._links = {stored, computed or stored}
        self.next_number = number + 1
        if type(first_seq) is int and type(event_count) is int:
            self.next_seq = first_seq + event_count

    def end(self, config: str | None) -> Iterator[ChainBreak]:
        """What only the end can tell: a cut tail, and a journal row that names another configuration."""
        if config != self._config and (self._config is not None or not self._damaged):
            sentence = "the journal's config is not the one in its cache_opened event"
            yield ChainBreak("chain", "journals", None, None, sentence)
        if self._anchor is not None and self._anchor.number >= self.next_number:
            sentence = (
                f"the journal ends with transaction {self.next_number - 1}; the anchor names transaction "
                f"{self._anchor.number}, seq {self._anchor.seq}: the tail was cut"
            )
            yield ChainBreak("chain", "transactions", self.next_number, self.next_seq, sentence)

    def _misplaced(self, number: Any) -> ChainBreak:
        if number < self.next_number:
            sentence = f"transaction {number} stands where none can be: it was inserted"
            return ChainBreak("sequence", "transactions", number, None, sentence)
        sentence = f"transactions {self.next_number} to {number - 1} are missing"
        return ChainBreak("sequence", "transactions", self.next_number, self.next_seq, sentence)

    def _at_anchor(self, number: int, stored: Any) -> Iterator[ChainBreak]:
        if self._anchor is not None and number == self._anchor.number and stored != self._anchor.hash:
            sentence = f"transaction {number} has another hash than the anchor for seq {self._anchor.seq}"
            yield ChainBreak("chain", "transactions", number, self._anchor.seq, sentence)


def _missing_event(number: int, first_seq: int, event_count: int, rows: Sequence[Any]) -> ChainBreak | None:
    for expected, row in enumerate(rows, start=first_seq):
        if row[0] != expected:
            break
    else:
        expected = first_seq + len(rows)
    if expected >= first_seq + event_count:
        return None
    sentence = f"seq {expected} of transaction {number} is missing"
    return ChainBreak("sequence", "events", number, expected, sentence)


def _hash_of(head: Sequence[Any], rows: Any) -> bytes | None:
    """The hash that these cells call for, None when they hold what no journal can."""
    cells: Any = head[:-2]
    previous = head[-2]
    try:
        return transaction_hash(previous, cells, rows)
    except (struct.error, TypeError):
        return None


def _config_in(rows: Sequence[Any]) -> str | None:
    for row in rows:
        _seq, _txn, kind, version, _node, _request, _undone, payload, blob = row
        if kind == b"cache_opened":
            try:
                event: Any = decode("cache_opened", version, payload.decode(), blob)
                return canonical_json(event.config)
            except (CacheError, UnicodeDecodeError):
                return None
    return None


def _read_batch(
    connection: sa.Connection, journal_id: int, after: int | None
) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    """The next transactions and, for each, the event rows in the range that it names."""
    query = sa.select(*_TRANSACTION_CELLS).where(TransactionRow.journal_id == journal_id)
    if after is not None:
        query = query.where(TransactionRow.number > after)
    heads = connection.execute(query.order_by(TransactionRow.number).limit(BATCH_TRANSACTIONS)).all()
    ranges = [_range(head) for head in heads]
    if heads and all(before[1] == then[0] for before, then in pairwise(ranges)):
        rows = _read_events(connection, journal_id, (ranges[0][0], ranges[-1][1]))
        return list(_share_out(heads, ranges, rows))
    # Ranges that do not follow one another are damage: each is then read for itself.
    return [
        (head, _read_events(connection, journal_id, span)) for head, span in zip(heads, ranges, strict=True)
    ]


def _range(head: Sequence[Any]) -> tuple[int, int]:
    first_seq, event_count = head[6], head[7]
    if type(first_seq) is not int or type(event_count) is not int or event_count < 0:
        return (0, 0)
    return (first_seq, first_seq + event_count)


def _read_events(connection: sa.Connection, journal_id: int, span: tuple[int, int]) -> Sequence[Any]:
    query = (
        sa.select(*_EVENT_CELLS)
        .where(EventRow.journal_id == journal_id, EventRow.seq >= span[0], EventRow.seq < span[1])
        .order_by(EventRow.seq)
    )
    return connection.execute(query).all()


def _share_out(
    heads: Sequence[Any], ranges: Sequence[tuple[int, int]], rows: Sequence[Any]
) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    taken = 0
    for head, (_first, end) in zip(heads, ranges, strict=True):
        begin = taken
        while taken < len(rows) and rows[taken][0] < end:
            taken += 1
        yield head, rows[begin:taken]


def _strays(connection: sa.Connection, journal_id: int, next_seq: int) -> Iterator[ChainBreak]:
    """Rows that no transaction or no journal accounts for."""
    stray = connection.execute(
        sa.select(EventRow.seq, EventRow.txn)
        .where(EventRow.journal_id == journal_id, sa.or_(EventRow.seq < 1, EventRow.seq >= next_seq))
        .order_by(EventRow.seq)
        .limit(1)
    ).first()
    if stray is not None:
        sentence = f"seq {stray.seq} belongs to no stored transaction; its row names transaction {stray.txn}"
        yield ChainBreak("sequence", "events", stray.txn, stray.seq, sentence)
    journals = sa.select(JournalRow.id)
    for table, rows in (("transactions", TransactionRow), ("events", EventRow)):
        lost = connection.execute(
            sa.select(rows.journal_id).where(rows.journal_id.not_in(journals)).limit(1)
        ).scalar()
        if lost is not None:
            sentence = f"there are {table} of journal {lost}, and no such journal"
            yield ChainBreak("chain", "journals", None, None, sentence)
            return
