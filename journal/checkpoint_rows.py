"""Verification of the stored checkpoints: where a journal begins, and what is wrong with the states in it.

A row is checked against its own hash, against the link of the chain on which it says it stands, and against
whatever names it (`naming.py`). Nothing here looks into a state: that is for an audit, which folds the
events.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from kvledger.journal.chain import CheckpointName, Owner, checkpoint_hash
from kvledger.journal.database import stored_bytes
from kvledger.journal.models import CheckpointRow, TransactionRow
from kvledger.journal.naming import Namings, StoredOrder
from kvledger.journal.records import name_of
from kvledger.journal.walk import ChainBreak, ChainWalk, Link


class StoredChain(NamedTuple):
    """What the row of a journal says of its chain, `config` as its stored bytes."""

    journal_id: int
    format_version: int
    epoch: str
    genesis: bytes
    config: bytes | None


def where_it_begins(connection: sa.Connection, chain: StoredChain) -> Link:
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


def checkpoint_numbers(connection: sa.Connection, chain: StoredChain) -> Sequence[int]:
    """The transactions after which checkpoints say they stand."""
    query = sa.select(CheckpointRow.number).where(CheckpointRow.journal_id == chain.journal_id)
    return connection.execute(query).scalars().all()


def checkpoint_breaks(
    connection: sa.Connection, chain: StoredChain, walk: ChainWalk, names: Namings
) -> Iterator[ChainBreak]:
    """What is wrong with each checkpoint, and which are missing."""
    order, here = StoredOrder(), set[int]()
    unfit: list[ChainBreak] = []
    for row in _checkpoints(connection, chain):
        seq, number, stored, previous = row[0], row[1], row[5], name_of(row[6], row[7])
        here.add(seq)
        if _checkpoint_hash(row, chain, walk.format_version) != stored:
            names.damaged(seq)
            changed = f"the checkpoint at seq {seq} was changed: its hash is not that of its row"
            unfit.append(ChainBreak("chain", "checkpoints", number, seq, changed))
            continue
        sentence = _misplaced(row, walk)
        if sentence is not None:
            names.damaged(seq)
            yield ChainBreak("chain", "checkpoints", number, seq, sentence)
            continue
        yield from names.stands(CheckpointName(seq, stored), number=number, previous=previous)
        if walk.format_version > 1:
            yield from order.next(seq, number=number, previous=previous)
    if len(unfit) > 1 and len(unfit) == len(here):
        sentence = (
            "the journal's own row was changed, or every checkpoint: no hash of one is over what they hold"
        )
        yield ChainBreak("chain", "journals", None, None, sentence)
    else:
        yield from unfit
    # What was pruned while this journal was read is not missed: it begins later by now.
    yield from names.missing(here, from_seq=max(walk.start.seq, where_it_begins(connection, chain).seq))


def _checkpoints(connection: sa.Connection, chain: StoredChain) -> Iterator[Sequence[Any]]:
    """The rows by seq, read one by one: each may hold megabytes."""
    query = (
        sa.select(
            CheckpointRow.seq,
            CheckpointRow.number,
            CheckpointRow.chain_hash,
            stored_bytes(CheckpointRow.digest),
            CheckpointRow.state,
            CheckpointRow.hash,
            CheckpointRow.previous_seq,
            CheckpointRow.previous_hash,
        )
        .where(CheckpointRow.journal_id == chain.journal_id)
        .order_by(CheckpointRow.seq)
        .execution_options(yield_per=1)
    )
    yield from connection.execute(query)


def _misplaced(row: Sequence[Any], walk: ChainWalk) -> str | None:
    """Why a checkpoint cannot stand where it says, if it cannot."""
    seq, number, chain_hash = row[:3]
    here = Link(number, seq, chain_hash)
    if number > walk.start.number and number in walk.marks and walk.marks[number] != here:
        return f"the checkpoint at seq {seq} does not stand on transaction {number} of this chain"
    if seq < walk.start.seq:
        return f"the checkpoint at seq {seq} stands before the one that the journal begins behind"
    if number == walk.start.number and here != walk.start:
        return f"the checkpoint at seq {seq} is not the one that the journal begins behind"
    return None


def _checkpoint_hash(row: Sequence[Any], chain: StoredChain, format_version: int) -> bytes | None:
    """The hash that a checkpoint's row calls for, None when it holds what no journal of this format can."""
    seq, number, chain_hash, digest, state, _stored, *before = row
    try:
        return checkpoint_hash(
            Owner(format_version, chain.epoch, chain.genesis, chain.config),
            seq=seq,
            number=number,
            chain_hash=chain_hash,
            digest=digest,
            state=state,
            previous=name_of(*before),
        )
    except (struct.error, TypeError):
        return None
