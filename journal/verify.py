"""Verification of a stored journal: every cell of its rows against the hashes that were stored with them.

Everything is read back as raw cells and walked as `walk.py` says. Checkpoints are checked against their own
hash, against the link of the chain on which they say they stand, and against whatever names them
(`naming.py`). Rows that no transaction or no journal accounts for are found too. A journal whose beginning
was pruned is walked from the checkpoint before its first transaction.

What the rows alone cannot show: that the end was cut off, that the whole journal was replaced, or that the
newest checkpoint was, which nothing names yet. Nor whether what is not there any more was pruned or cut off:
they show that a journal begins at a state, and not that the state is true. An anchor can.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import sqlalchemy as sa

from kvledger.journal.batches import refuse_if_pruned
from kvledger.journal.chain import Anchor, ChainHead, genesis_hash
from kvledger.journal.checkpoint_rows import (
    StoredChain,
    checkpoint_breaks,
    checkpoint_numbers,
    where_it_begins,
)
from kvledger.journal.database import database_errors, stored_bytes
from kvledger.journal.models import CheckpointRow, EventRow, JournalRow, TransactionRow
from kvledger.journal.naming import Namings, reaches_start
from kvledger.journal.plain_rows import Cells, plain_rows
from kvledger.journal.walk import LARGEST, ChainBreak, ChainWalk

__all__ = ["ChainBreak", "ChainTally", "rows_without_journal", "stored_journals", "verify_chain"]

BATCH_TRANSACTIONS = 2_048
BATCH_EVENTS = 8_192
"""So many rows are read at a time at most, unless a single transaction has more events."""

LARGE_TRANSACTION = 8_192
"""Events from which on it is looked up where a transaction ends before its rows are read: its row may have
been changed so that they would be all the rows of the journal."""

GAPS_PER_QUERY = 100
"""Gaps that one query looks into: databases limit how deep an expression may be, SQLite to 1,000."""

Rows = Sequence[Cells]

_HEADS = (
    sa.select(
        TransactionRow.number,
        stored_bytes(TransactionRow.op),
        stored_bytes(TransactionRow.request_id),
        stored_bytes(TransactionRow.status),
        stored_bytes(TransactionRow.reason),
        TransactionRow.time_us,
        TransactionRow.first_seq,
        TransactionRow.event_count,
        TransactionRow.duration_us,
        TransactionRow.checkpoint_seq,
        TransactionRow.checkpoint_hash,
        TransactionRow.previous_hash,
        TransactionRow.hash,
    )
    .where(TransactionRow.journal_id == sa.bindparam("journal"))
    .order_by(TransactionRow.number)
    .limit(sa.bindparam("size"))
)
_HEADS_AFTER = _HEADS.where(TransactionRow.number > sa.bindparam("after"))
_EVENTS = (
    sa.select(
        EventRow.seq,
        EventRow.txn,
        stored_bytes(EventRow.kind),
        EventRow.version,
        EventRow.node,
        stored_bytes(EventRow.request_id),
        EventRow.undone,
        stored_bytes(EventRow.payload),
        EventRow.blob,
    )
    .where(
        EventRow.journal_id == sa.bindparam("journal"),
        EventRow.seq >= sa.bindparam("first"),
        EventRow.seq < sa.bindparam("end"),
    )
    .order_by(EventRow.seq)
)


@dataclass(slots=True)
class ChainTally:
    """What a verification has read: filled in once its breaks have been taken.

    `first_number` is above 1, and `start_seq` the seq of the checkpoint before it, where the journal does not
    begin with its first transaction. `anchored`: the anchor was found where it says, not necessarily with
    everything else sound. `proved`: nothing is wrong, and what is here is known to be what was recorded, from
    its first transaction on or because the anchor reaches a name of the checkpoint that it begins at, which
    `named_by` is the first transaction to give. `gaps` are ranges of seqs, first and last, that were dropped.
    """

    first_number: int = 1
    start_seq: int = 0
    transactions: int = 0
    events: int = 0
    checkpoints: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)
    head: ChainHead | None = None
    anchored: bool = False
    proved: bool = False
    named_by: int | None = None

    @property
    def events_dropped(self) -> int:
        """How many events the recorder had to give up."""
        return sum(last - first + 1 for first, last in self.gaps)


def verify_chain(
    engine: sa.Engine,
    journal_id: int,
    *,
    anchor: ChainHead | None = None,
    tally: ChainTally | None = None,
    names: Namings | None = None,
) -> Iterator[ChainBreak]:
    """Check one journal's rows and yield the breaks, those of transactions and events in order of number.

    Nothing when the rows are what was written, which without an `anchor` says nothing about transactions cut
    off at the end. An anchor that is older than what is here cannot be compared: that is no break, and
    `tally.anchored` is False then. `names` has what other parts of the journal name and hold. Raises
    JournalError when the database cannot be read, or was pruned meanwhile. Cost: O(bytes stored), memory
    bounded by a batch and the checkpoints' places.
    """
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        chain = _chain_of(connection, journal_id)
    sound = True
    if anchor is not None and anchor.epoch != chain.epoch:
        sentence = f"the anchor is of epoch {anchor.epoch}, the journal of {chain.epoch}: it was replaced"
        yield ChainBreak("chain", "journals", None, None, sentence)
        sound, anchor = False, None
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        start = where_it_begins(connection, chain)
        marks = dict.fromkeys(checkpoint_numbers(connection, chain), start)
    walk = ChainWalk(start, format_version=chain.format_version, anchor=anchor, marks=marks)
    names = Namings() if names is None else names
    for found in _breaks(engine, chain, walk, names, anchor):
        sound = False
        yield found
    if tally is not None:
        tally.first_number, tally.start_seq = start.number + 1, start.seq
        tally.transactions, tally.events = walk.transactions, walk.events
        tally.checkpoints = names.checkpoints
        tally.gaps = walk.gaps
        tally.named_by = names.first_to_name(start.seq)
        tally.head = ChainHead(chain.epoch, *walk.reached)
        tally.anchored = walk.anchored
        tally.proved = sound and (
            not start.number
            or (walk.anchored and reaches_start(anchor, names, start.seq, walk.format_version))
        )


def _breaks(
    engine: sa.Engine,
    chain: StoredChain,
    walk: ChainWalk,
    names: Namings,
    anchor: ChainHead | None,
) -> Iterator[ChainBreak]:
    yield from _walked(engine, chain, walk, names)
    if isinstance(anchor, Anchor) and anchor.checkpoint is not None:
        yield from names.named(anchor.checkpoint, by="the anchor")
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        yield from _strays(connection, chain.journal_id, walk)
        yield from checkpoint_breaks(connection, chain, walk, names)
    yield from walk.end(_text(chain.config))


def _walked(engine: sa.Engine, chain: StoredChain, walk: ChainWalk, names: Namings) -> Iterator[ChainBreak]:
    """The breaks of all transactions and their events; the checkpoints that they name are noted."""
    yield from walk.begin()
    after: int | None = None
    while True:
        with database_errors("the journal cannot be verified"), engine.connect() as connection:
            batch = _read_batch(connection, chain.journal_id, after)
            if after is not None and not (batch and batch[0][0][0] == after + 1):
                refuse_if_pruned(connection, chain.journal_id, after)
        if not batch:
            break
        for head, rows in batch:
            yield from walk.step(head, rows)
            if walk.named is not None:
                number = head[0]
                yield from names.named(walk.named, by=f"transaction {number}", transaction=number)
        after = batch[-1][0][0]


def _chain_of(connection: sa.Connection, journal_id: int) -> StoredChain:
    row = connection.execute(
        sa.select(
            *[
                stored_bytes(column)
                for column in (JournalRow.epoch, JournalRow.name, JournalRow.token_policy, JournalRow.config)
            ],
            JournalRow.format_version,
            JournalRow.created_us,
        ).where(JournalRow.id == journal_id)
    ).one()
    config = row[3]
    try:
        epoch, name, policy = (text.decode() for text in row[:3])
    except UnicodeDecodeError:
        # No text that was ever written: a chain that begins nowhere breaks at its first transaction.
        return StoredChain(journal_id, row.format_version, row[0].decode(errors="replace"), b"", config)
    genesis = genesis_hash(
        format_version=row.format_version,
        created_us=row.created_us,
        epoch=epoch,
        name=name,
        token_policy=policy,
    )
    return StoredChain(journal_id, row.format_version, epoch, genesis, config)


def _text(cell: bytes | None) -> str | None:
    return None if cell is None else cell.decode(errors="replace")


def _read_batch(connection: sa.Connection, journal_id: int, after: int | None) -> list[tuple[Cells, Rows]]:
    """The next transactions and, for each, the event rows in the range that it names."""
    place: dict[str, Any] = {"journal": journal_id, "size": BATCH_TRANSACTIONS}
    if after is None:
        heads = plain_rows(connection, _HEADS, **place)
    else:
        heads = plain_rows(connection, _HEADS_AFTER, **place, after=after)
    ranges: list[tuple[int, int]] = []
    total = 0
    for head in heads:
        span = _range(connection, journal_id, head)
        total += span[1] - span[0]
        if ranges and total > BATCH_EVENTS:
            break
        ranges.append(span)
    heads = heads[: len(ranges)]
    if heads and all(before[1] == then[0] for before, then in pairwise(ranges)):
        rows = _read_events(connection, journal_id, (ranges[0][0], ranges[-1][1]))
        return list(_share_out(heads, ranges, rows))
    # Ranges that do not follow one another are damage or a gap: each is then read for itself.
    return [
        (head, _read_events(connection, journal_id, span)) for head, span in zip(heads, ranges, strict=True)
    ]


def _range(connection: sa.Connection, journal_id: int, head: Cells) -> tuple[int, int]:
    """The seqs to read for a transaction: those that its row names, as far as that can be."""
    number, first_seq, event_count = head[0], head[6], head[7]
    if type(first_seq) is not int or type(event_count) is not int or event_count < 0:
        return (0, 0)
    end = min(first_seq + event_count, LARGEST)
    if event_count > LARGE_TRANSACTION:
        other = connection.execute(
            sa.select(EventRow.seq)
            .where(
                EventRow.journal_id == journal_id,
                EventRow.seq >= first_seq,
                EventRow.seq < end,
                EventRow.txn != number,
            )
            .order_by(EventRow.seq)
            .limit(1)
        ).scalar_one_or_none()
        end = end if other is None else other
    return (first_seq, end)


def _read_events(connection: sa.Connection, journal_id: int, span: tuple[int, int]) -> Rows:
    return plain_rows(connection, _EVENTS, journal=journal_id, first=span[0], end=span[1])


def _share_out(heads: Rows, ranges: Sequence[tuple[int, int]], rows: Rows) -> Iterator[tuple[Cells, Rows]]:
    seqs = [row[0] for row in rows]
    taken = 0
    for head, (_first, end) in zip(heads, ranges, strict=True):
        begin, taken = taken, bisect_left(seqs, end, taken)
        yield head, rows[begin:taken]


def _strays(connection: sa.Connection, journal_id: int, walk: ChainWalk) -> Iterator[ChainBreak]:
    """Rows that no transaction or no journal accounts for."""
    # What lies past the end may have been recorded since: then its transaction is there too.
    recorded = (
        sa.select(TransactionRow.number)
        .where(
            TransactionRow.journal_id == journal_id,
            TransactionRow.number == EventRow.txn,
            TransactionRow.number >= walk.next_number,
            EventRow.seq >= TransactionRow.first_seq,
            EventRow.seq - TransactionRow.first_seq < TransactionRow.event_count,
        )
        .exists()
    )
    outside: list[Any] = [EventRow.seq <= walk.start.seq]
    for begin in range(0, len(walk.gaps), GAPS_PER_QUERY):
        gaps = walk.gaps[begin : begin + GAPS_PER_QUERY]
        inside = sa.or_(*[EventRow.seq.between(first, last) for first, last in gaps])
        # The outer bounds keep each query to its own part of the journal.
        outside.append(sa.and_(EventRow.seq.between(gaps[0][0], gaps[-1][1]), inside))
    outside.append(sa.and_(EventRow.seq >= walk.next_seq, ~recorded))
    found = (_first_event(connection, journal_id, where) for where in outside)
    stray = next((row for row in found if row is not None), None)
    if stray is not None:
        sentence = f"seq {stray.seq} belongs to no stored transaction; its row names transaction {stray.txn}"
        yield ChainBreak("sequence", "events", stray.txn, stray.seq, sentence)
    lost = _lost_rows(connection)
    if lost is not None:
        yield lost[1]


def _first_event(connection: sa.Connection, journal_id: int, where: Any) -> Any:
    query = sa.select(EventRow.seq, EventRow.txn).where(EventRow.journal_id == journal_id, where)
    return connection.execute(query.order_by(EventRow.seq).limit(1)).first()


def stored_journals(engine: sa.Engine) -> tuple[tuple[int, bytes], ...]:
    """Id and epoch of every journal of a store, oldest first, also of one whose row was damaged."""
    query = sa.select(JournalRow.id, stored_bytes(JournalRow.epoch)).order_by(JournalRow.id)
    with database_errors("the journals cannot be listed"), engine.connect() as connection:
        return tuple((number, epoch) for number, epoch in connection.execute(query))


def rows_without_journal(engine: sa.Engine) -> tuple[int, ChainBreak] | None:
    """The number that rows name as their journal although there is none, and the break that this is."""
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        return _lost_rows(connection)


def _lost_rows(connection: sa.Connection) -> tuple[int, ChainBreak] | None:
    journals = sa.select(JournalRow.id)
    for table, rows in (
        ("transactions", TransactionRow),
        ("events", EventRow),
        ("checkpoints", CheckpointRow),
    ):
        lost = connection.execute(
            sa.select(rows.journal_id).where(rows.journal_id.not_in(journals)).limit(1)
        ).scalar()
        if lost is not None:
            sentence = f"there are {table} of journal {lost}, and no such journal"
            return lost, ChainBreak("chain", "journals", None, None, sentence)
    return None
