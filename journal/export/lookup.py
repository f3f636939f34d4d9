"""Look-ups in exported files: a walk over what stands in them, and the database's indexes for what it holds.

Files have no index. Oldest first, a question is one walk over the pieces that reach into its range, as far as
the last match; newest first, each piece is walked once for every batch of matches that is taken from it, so
that memory stays bounded. Only what is handed on is decoded. Where there is a database beside the files, it
answers for all that it still has.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Generic, Protocol, TypeVar

from kvledger.core.ids import Seq, TxnId
from kvledger.journal.export.cells import EventCells, TransactionCells
from kvledger.journal.export.piece import Piece
from kvledger.journal.lookups.events import found_event
from kvledger.journal.lookups.questions import (
    LAST_SEQ,
    Beginning,
    Count,
    EventFilter,
    FoundEvent,
    FoundTransaction,
    LookUpSource,
    TransactionFilter,
    check_question,
    span_of,
)
from kvledger.journal.lookups.transactions import found_transaction

BATCH_MATCHES = 2_048
"""Matches that are held at once while a piece is read backwards."""

Match = TypeVar("Match")


@dataclass(frozen=True, slots=True)
class _At(Generic[Match]):
    """A match and its place: the seq of an event, the number of a transaction."""

    place: int
    match: Match


class _Asked(Protocol[Match]):
    """A question, as it is put to one piece."""

    def reach(self, piece: Piece) -> tuple[int, int]:
        """The first and the last place in a piece."""

    def matches(self, piece: Piece, low: int, high: int) -> Iterator[_At[Match]]:
        """What matches there from place `low` to place `high`, in order."""


class FileLookUp:
    """Look-ups in the pieces of one journal, which join, and in the `rest` of it in a database."""

    def __init__(self, pieces: Sequence[Piece], rest: LookUpSource | None) -> None:
        self._pieces = pieces
        self._rest = rest

    def beginning(self) -> Beginning:
        """Where the first piece begins, or the database, whichever is before the other."""
        facts = self._pieces[0].facts
        mine = Beginning(Seq(facts.first_seq), TxnId(facts.first_number), in_files=True)
        rest = None if self._rest is None else self._rest.beginning()
        return mine if rest is None or mine.seq <= rest.seq else rest

    def find(
        self,
        wanted: EventFilter,
        *,
        limit: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundEvent]:
        """As `LookUpSource.find`. Cost: O(bytes of the pieces that reach into the range)."""
        check_question(wanted, limit, newest_first=newest_first)
        cut = self._cut()
        low, high = span_of(wanted.first_seq, wanted.last_seq, after=after_seq, before=before_seq)
        walk = self._walk(_Events(wanted), low, min(high, cut.seq - 1), limit, newest_first)
        parts: list[Iterator[FoundEvent]] = [(_found_event(*one.match) for one in walk)]
        if self._rest is not None:
            there = replace(wanted, first_seq=Seq(max(low, cut.seq)), last_seq=Seq(high))
            parts.append(self._rest.find(there, limit=limit, newest_first=newest_first))
        yield from islice(chain.from_iterable(reversed(parts) if newest_first else parts), limit)

    def count(self, wanted: EventFilter, *, upto: int) -> Count:
        """As `LookUpSource.count`. Cost: O(bytes of the pieces that reach into the range)."""
        check_question(wanted, upto)
        cut = self._cut()
        low, high = span_of(wanted.first_seq, wanted.last_seq)
        walk = self._walk(_Events(wanted), low, min(high, cut.seq - 1), None, newest_first=False)
        found = sum(1 for _ in islice(walk, upto + 1))
        if self._rest is not None and found <= upto:
            there = replace(wanted, first_seq=Seq(max(low, cut.seq)), last_seq=Seq(high))
            rest = self._rest.count(there, upto=upto)
            found += rest.count if rest.exact else upto + 1
        return Count(min(found, upto), exact=found <= upto)

    def find_transactions(
        self,
        wanted: TransactionFilter,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundTransaction]:
        """As `LookUpSource.find_transactions`. Cost: O(bytes of the pieces that reach into the range)."""
        check_question(wanted, limit, newest_first=newest_first)
        cut = self._cut()
        low, high = span_of(None, None, after=after, before=before)
        walk = self._walk(_Transactions(wanted), low, min(high, cut.transaction - 1), limit, newest_first)
        parts: list[Iterator[FoundTransaction]] = [(one.match for one in walk)]
        if self._rest is not None:
            parts.append(
                self._rest.find_transactions(
                    wanted,
                    limit=limit,
                    after=max(low, cut.transaction) - 1,
                    before=before,
                    newest_first=newest_first,
                )
            )
        yield from islice(chain.from_iterable(reversed(parts) if newest_first else parts), limit)

    def _cut(self) -> Beginning:
        """From where on the database answers; behind everything where it does not, or holds less."""
        end = self._pieces[-1].end
        if self._rest is None:
            return Beginning(Seq(LAST_SEQ), TxnId(LAST_SEQ))
        if self._rest.head().number < end.last_number:
            return Beginning(Seq(end.last_seq + 1), TxnId(end.last_number + 1))
        return self._rest.beginning()

    def _walk(
        self, asked: _Asked[Match], low: int, high: int, limit: int | None, newest_first: bool
    ) -> Iterator[_At[Match]]:
        batch = BATCH_MATCHES if limit is None else min(limit, BATCH_MATCHES)
        for piece in reversed(self._pieces) if newest_first else self._pieces:
            first, last = asked.reach(piece)
            if low > high or first > high or last < low:
                continue
            if not newest_first:
                yield from asked.matches(piece, low, high)
                continue
            top = min(high, last)
            while top >= low:
                held = deque(asked.matches(piece, low, top), maxlen=batch)
                yield from reversed(held)
                if len(held) < batch:
                    break
                top = held[0].place - 1


@dataclass(frozen=True, slots=True)
class _Events:
    """A question for events; a match is an event's cells and what is wanted of its transaction's."""

    wanted: EventFilter

    def reach(self, piece: Piece) -> tuple[int, int]:
        """Its seqs."""
        return piece.facts.first_seq, piece.end.last_seq

    def matches(self, piece: Piece, low: int, high: int) -> Iterator[_At[tuple[EventCells, TxnId, str, int]]]:
        """Its events that match."""
        wanted = self.wanted
        kinds, nodes = frozenset(wanted.kinds), frozenset(wanted.nodes)
        number, request = wanted.transaction, wanted.request_id
        if number is not None and not piece.facts.first_number <= number <= piece.end.last_number:
            return
        for cells in piece.cells(1 if number is None else number):
            if cells.first_seq > high or (number is not None and cells.number > number):
                return
            if cells.last_seq < low or not _in_time(cells, wanted):
                continue
            for event in cells.events:
                if (
                    low <= event.seq <= high
                    and (not kinds or event.kind in kinds)
                    and (not nodes or event.node in nodes)
                    and (wanted.undone is None or wanted.undone == bool(event.undone))
                    and (request is None or request in (event.request_id, cells.request_id))
                ):
                    yield _At(event.seq, (event, TxnId(cells.number), cells.op, cells.time_us))


@dataclass(frozen=True, slots=True)
class _Transactions:
    """A question for transactions."""

    wanted: TransactionFilter

    def reach(self, piece: Piece) -> tuple[int, int]:
        """Its numbers."""
        return piece.facts.first_number, piece.end.last_number

    def matches(self, piece: Piece, low: int, high: int) -> Iterator[_At[FoundTransaction]]:
        """Its transactions that match."""
        wanted = self.wanted
        for cells in piece.cells(low):
            if cells.number > high:
                return
            found = _found_transaction(cells)
            if (
                (not wanted.ops or found.op in wanted.ops)
                and (wanted.request_id is None or wanted.request_id == found.request_id)
                and (wanted.rolled_back is None or wanted.rolled_back == found.rolled_back)
                and _in_time(cells, wanted)
                and (wanted.last_seq is None or found.first_seq <= wanted.last_seq)
                # One without events stands at the seq that the next event gets.
                and (wanted.first_seq is None or max(found.first_seq, found.last_seq) >= wanted.first_seq)
            ):
                yield _At(found.number, found)


def _in_time(cells: TransactionCells, wanted: EventFilter | TransactionFilter) -> bool:
    return (wanted.since_us is None or cells.time_us >= wanted.since_us) and (
        wanted.until_us is None or cells.time_us < wanted.until_us
    )


def _found_event(event: EventCells, number: TxnId, op: str, time_us: int) -> FoundEvent:
    cells = (event.seq, event.kind, event.version, event.undone, event.payload, event.blob)
    return found_event((*cells, number, op, time_us))


def _found_transaction(cells: TransactionCells) -> FoundTransaction:
    return found_transaction(
        (
            cells.number,
            cells.op,
            cells.request_id,
            cells.status,
            cells.reason,
            cells.time_us,
            cells.first_seq,
            cells.event_count,
            cells.duration_us,
        )
    )
