"""Verification of a stored journal: every cell of its rows against the hashes that were stored with them.

Everything is read back as raw cells and walked as `walk.py` says. Checkpoints are checked against their own
hash and against the link of the chain on which they say they stand. Rows that no transaction or no journal
accounts for are found too. A journal whose beginning was pruned is walked from the checkpoint before its
first transaction.

What the rows alone cannot show: that the end was cut off, or that the whole journal was replaced. An anchor
can.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import sqlalchemy as sa

from kvledger.journal.chain import ChainHead, checkpoint_hash, genesis_hash
from kvledger.journal.database import database_errors, stored_bytes
from kvledger.journal.models import CheckpointRow, EventRow, JournalRow, TransactionRow
from kvledger.journal.walk import LARGEST, ChainBreak, ChainWalk, Link

__all__ = ["ChainBreak", "ChainTally", "rows_without_journal", "stored_journals", "verify_chain"]

BATCH_TRANSACTIONS = 512

LARGE_TRANSACTION = 8_192
"""Events from which on it is looked up where a transaction ends before its rows are read: its row may have
been changed so that they would be all the rows of the journal."""

GAPS_PER_QUERY = 100
"""Gaps that one query looks into: databases limit how deep an expression may be, SQLite to 1,000."""

_TRANSACTION_CELLS = (
    TransactionRow.number,
    stored_bytes(TransactionRow.op),
    stored_bytes(TransactionRow.request_id),
    stored_bytes(TransactionRow.status),
    stored_bytes(TransactionRow.reason),
    TransactionRow.time_us,
    TransactionRow.first_seq,
    TransactionRow.event_count,
    TransactionRow.previous_hash,
    TransactionRow.hash,
)
_EVENT_CELLS = (
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


class _StoredChain(NamedTuple):
    """What the row of a journal says of its chain. `config` is None where it is not text."""

    journal_id: int
    epoch: str
    genesis: bytes
    config: str | None


@dataclass(slots=True)
class ChainTally:
    """What a verification has read so far: filled in while its breaks are taken."""

    first_number: int = 1
    transactions: int = 0
    events: int = 0
    checkpoints: int = 0
    events_dropped: int = 0
    head: ChainHead | None = None
    anchored: bool = False


def verify_chain(
    engine: sa.Engine,
    journal_id: int,
    *,
    anchor: ChainHead | None = None,
    tally: ChainTally | None = None,
) -> Iterator[ChainBreak]:
    """Check one journal's rows and yield the breaks, those of transactions and events in order of number.

    Nothing when the rows are what was written, which without an `anchor` says nothing about transactions cut
    off at the end. Raises JournalError when the database cannot be read. Cost: O(bytes stored), memory
    bounded by a batch and the checkpoints' places.
    """
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        chain = _chain_of(connection, journal_id)
    if anchor is not None and anchor.epoch != chain.epoch:
        sentence = f"the anchor is of epoch {anchor.epoch}, the journal of {chain.epoch}: it was replaced"
        yield ChainBreak("chain", "journals", None, None, sentence)
        anchor = None
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        start = _start(connection, chain)
        marks = dict.fromkeys(_checkpoint_numbers(connection, chain), start)
    walk = ChainWalk(start, anchor=anchor, marks=marks)
    yield from walk.begin()
    after: int | None = None
    while True:
        with database_errors("the journal cannot be verified"), engine.connect() as connection:
            batch = _read_batch(connection, chain.journal_id, after)
        if not batch:
            break
        for head, rows in batch:
            yield from walk.step(head, rows)
        after = batch[-1][0][0]
    with database_errors("the journal cannot be verified"), engine.connect() as connection:
        yield from _strays(connection, chain.journal_id, walk)
        checked = 0
        for found in _checkpoints(connection, chain, walk):
            checked += 1
            if found is not None:
                yield found
    yield from walk.end(chain.config)
    if tally is not None:
        tally.first_number = start.number + 1
        tally.transactions, tally.events, tally.checkpoints = walk.transactions, walk.events, checked
        tally.events_dropped = sum(last - first + 1 for first, last in walk.gaps)
        tally.head = ChainHead(chain.epoch, *walk.reached)
        tally.anchored = walk.anchored


def _chain_of(connection: sa.Connection, journal_id: int) -> _StoredChain:
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
    try:
        epoch, name, policy = (text.decode() for text in row[:3])
        config = _text(row[3])
    except UnicodeDecodeError:
        # No text that was ever written: a chain that begins nowhere breaks at its first transaction.
        return _StoredChain(journal_id, row[0].decode(errors="replace"), b"", None)
    genesis = genesis_hash(
        format_version=row.format_version,
        created_us=row.created_us,
        epoch=epoch,
        name=name,
        token_policy=policy,
    )
    return _StoredChain(journal_id, epoch, genesis, config)


def _text(cell: bytes | None) -> str | None:
    return None if cell is None else cell.decode()


def _start(connection: sa.Connection, chain: _StoredChain) -> Link:
    """Genesis, or the checkpoint that a pruned journal begins behind."""
    genesis = Link(0, 0, chain.genesis)
    first = connection.execute(
        sa.select(TransactionRow.number)
        .where(TransactionRow.journal_id == chain.journal_id)
        .order_by(TransactionRow.number)
        .limit(1)
    ).scalar_one_or_none()
    columns = (CheckpointRow.number, CheckpointRow.seq, CheckpointRow.chain_hash)
    query = sa.select(*columns).where(CheckpointRow.journal_id == chain.journal_id)
    if first is None:
        query = query.order_by(CheckpointRow.seq.desc())
    elif first > 1:
        query = query.where(CheckpointRow.number == first - 1)
    else:
        return genesis
    found = connection.execute(query.limit(1)).first()
    return genesis if found is None else Link(*found)


def _checkpoint_numbers(connection: sa.Connection, chain: _StoredChain) -> Sequence[int]:
    query = sa.select(CheckpointRow.number).where(CheckpointRow.journal_id == chain.journal_id)
    return connection.execute(query).scalars().all()


def _checkpoints(
    connection: sa.Connection, chain: _StoredChain, walk: ChainWalk
) -> Iterator[ChainBreak | None]:
    """One item a checkpoint: what is wrong with it, or None."""
    query = (
        sa.select(
            CheckpointRow.seq,
            CheckpointRow.number,
            CheckpointRow.chain_hash,
            stored_bytes(CheckpointRow.digest),
            CheckpointRow.state,
            CheckpointRow.hash,
        )
        .where(CheckpointRow.journal_id == chain.journal_id)
        .order_by(CheckpointRow.seq)
        .execution_options(yield_per=1)
    )
    for seq, number, chain_hash, digest, state, stored in connection.execute(query):
        computed = checkpoint_hash(
            epoch=chain.epoch, seq=seq, number=number, chain_hash=chain_hash, digest=digest, state=state
        )
        sentence = None
        if computed != stored:
            sentence = f"the checkpoint at seq {seq} was changed: its hash is not that of its row"
        elif number > walk.start.number and number in walk.marks:
            if walk.marks[number] != Link(number, seq, chain_hash):
                sentence = f"the checkpoint at seq {seq} does not stand on transaction {number} of this chain"
        elif number == walk.start.number and Link(number, seq, chain_hash) != walk.start:
            sentence = f"the checkpoint at seq {seq} is not the one that the journal begins behind"
        yield None if sentence is None else ChainBreak("chain", "checkpoints", number, seq, sentence)


def _read_batch(
    connection: sa.Connection, journal_id: int, after: int | None
) -> list[tuple[Sequence[Any], Sequence[Any]]]:
    """The next transactions and, for each, the event rows in the range that it names."""
    query = sa.select(*_TRANSACTION_CELLS).where(TransactionRow.journal_id == journal_id)
    if after is not None:
        query = query.where(TransactionRow.number > after)
    heads = connection.execute(query.order_by(TransactionRow.number).limit(BATCH_TRANSACTIONS)).all()
    ranges = [_range(connection, journal_id, head) for head in heads]
    if heads and all(before[1] == then[0] for before, then in pairwise(ranges)):
        rows = _read_events(connection, journal_id, (ranges[0][0], ranges[-1][1]))
        return list(_share_out(heads, ranges, rows))
    # Ranges that do not follow one another are damage or a gap: each is then read for itself.
    return [
        (head, _read_events(connection, journal_id, span)) for head, span in zip(heads, ranges, strict=True)
    ]


def _range(connection: sa.Connection, journal_id: int, head: Sequence[Any]) -> tuple[int, int]:
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
