"""Whether pieces of one journal follow one another, and whether a database goes on where they end.

Pieces are files that can be found again, so that one that is missing or does not fit is refused. A database
that does not go on from its files is either the wrong one or was tampered with: who reads both as one journal
refuses it, who judges it takes it for a break of the chain.
"""

from collections.abc import Sequence
from itertools import pairwise

import sqlalchemy as sa

from kvledger.core.errors import JournalFormatError
from kvledger.journal.database import reading
from kvledger.journal.export.piece import Piece
from kvledger.journal.models import CheckpointRow, TransactionRow
from kvledger.journal.reader import JournalReader
from kvledger.journal.walk import ChainBreak


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces of one journal in order. Raises JournalFormatError unless each joins the one before it."""
    ordered = sorted(pieces, key=lambda piece: (piece.facts.first_number, piece.end.last_number))
    for before, then in pairwise(ordered):
        first, last = then.facts.first_number, before.end.last_number
        if first <= last:
            raise JournalFormatError(
                f"{before.path.name} and {then.path.name} overlap: both hold transaction {first}"
                + _surplus(before, then)
            )
        if first > last + 1:
            raise JournalFormatError(
                f"transactions {last + 1} to {first - 1} are missing between {before.path.name} and "
                f"{then.path.name}"
            )
        if then.facts.previous_hash != before.end.hash or then.facts.journal != before.facts.journal:
            raise JournalFormatError(
                f"{then.path.name} does not go on from {before.path.name}: it belongs to another journal, or "
                "one of them was changed"
            )
    return ordered


def _surplus(before: Piece, then: Piece) -> str:
    """Which of two overlapping pieces may go because the other holds all of it, by its hashes."""
    for less, more in ((then, before), (before, then)):
        if _holds(more, less):
            return f"; all of {less.path.name} stands in {more.path.name} too: remove {less.path.name}"
    return ""


def _holds(more: Piece, less: Piece) -> bool:
    first, last = less.facts.first_number, less.end.last_number
    if not (
        more.facts.journal == less.facts.journal
        and more.facts.first_number <= first
        and last <= more.end.last_number
        and set(less.end.checkpoints) <= set(more.end.checkpoints)
    ):
        return False
    begin, end = next(more.cells(first), None), next(more.cells(last), None)
    if begin is None or end is None:
        return False
    return (begin.number, begin.previous_hash, end.number, end.hash) == (
        first,
        less.facts.previous_hash,
        last,
        less.end.hash,
    )


def rest_fault(pieces: Sequence[Piece], rest: JournalReader) -> ChainBreak | None:
    """Why the database does not go on where the pieces, which are joined, end; None where it does.

    Only the rows' places and links are looked at, so that a row that cannot be read stands in nobody's way.
    Raises JournalError where the database cannot be read. Cost: a look-up or two.
    """
    end = pieces[-1].end
    following = _link(rest, TransactionRow.number >= end.last_number, newest=False)
    if following is None:
        return _agreement_fault(pieces, rest)
    number, previous, link = following
    there = (number, link) if number == end.last_number else (number - 1, previous)
    if there == (end.last_number, end.hash):
        return None
    sentence = f"the files end with transaction {end.last_number}; the database goes on from "
    sentence += f"{there[0]}" if there[0] != end.last_number else "another hash than theirs"
    return ChainBreak("chain", "transactions", end.last_number + 1, end.last_seq + 1, sentence)


def _agreement_fault(pieces: Sequence[Piece], rest: JournalReader) -> ChainBreak | None:
    """Why the files, which go further than the database, do not hold its last transaction as it is there."""
    found = _link(rest, sa.true(), newest=True)
    if found is not None:
        number, link = found[0], found[2]
    else:
        query = sa.select(CheckpointRow.number, CheckpointRow.chain_hash).where(
            CheckpointRow.journal_id == rest.info.id
        )
        with reading(rest.engine) as connection:
            kept = connection.execute(query.order_by(CheckpointRow.seq.desc()).limit(1)).first()
        if kept is None:
            return None
        number, link = kept
    for piece in pieces:
        if piece.facts.first_number <= number <= piece.end.last_number:
            cells = next(piece.cells(number), None)
            if cells is None or (cells.number, cells.hash) != (number, link):
                sentence = f"the database ends with transaction {number}; in the files it has another hash"
                return ChainBreak("chain", "transactions", number, None, sentence)
    return None


def _link(
    rest: JournalReader, where: sa.ColumnElement[bool], *, newest: bool
) -> tuple[int, bytes, bytes] | None:
    order = TransactionRow.number.desc() if newest else TransactionRow.number
    query = (
        sa.select(TransactionRow.number, TransactionRow.previous_hash, TransactionRow.hash)
        .where(TransactionRow.journal_id == rest.info.id, where)
        .order_by(order)
        .limit(1)
    )
    with reading(rest.engine) as connection:
        found = connection.execute(query).first()
    return None if found is None else (found[0], found[1], found[2])
