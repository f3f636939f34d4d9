"""Which transaction boundary a seq stands for: the last one at or before it.

Answered by the keys of the store, so that it is known which state is asked for, and whether the answer can
ever change, before any state is computed.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kvledger.api.problems import conflict, unknown
from kvledger.journal.database import read_rows
from kvledger.journal.models import EventRow, TransactionRow
from kvledger.journal.reader import JournalReader

REMEMBERED = 4_096
"""Boundaries that need not be looked up again; each is a few dozen bytes."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The end of transaction `transaction`, whose last event, or the last before it, is `seq`."""

    seq: int
    transaction: int
    time_us: int | None


_ROW = (TransactionRow.number, TransactionRow.first_seq, TransactionRow.event_count, TransactionRow.time_us)


class Boundaries:
    """Boundaries of one journal. Safe from any thread."""

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._engine = reader.engine
        self._journal_id = reader.info.id
        self._lock = threading.Lock()
        self._remembered: dict[int, Boundary] = {}

    def newest(self) -> Boundary:
        """The end of what is stored, transaction 0 and seq 0 where nothing is. One look-up."""
        rows = self._rows(self._transactions().order_by(TransactionRow.number.desc()).limit(1))
        return _boundary(rows[0]) if rows else self._end()

    def oldest(self) -> Boundary:
        """The boundary before the first stored transaction: 0 where nothing was pruned. One look-up."""
        rows = self._rows(self._transactions().order_by(TransactionRow.number).limit(1))
        return Boundary(rows[0].first_seq - 1, rows[0].number - 1, None) if rows else self._end()

    def _end(self) -> Boundary:
        """Where a journal ends that has no transaction: all may have been pruned."""
        head = self._reader.head()
        return Boundary(head.seq, head.number, None)

    def at(self, seq: int) -> Boundary:
        """The last boundary at or before `seq`, of which an event and a later transaction are stored.

        Raises a refusal: 409 where events around `seq` were never stored. Two look-ups, of a seq that was
        asked for lately none.
        """
        with self._lock:
            found = self._remembered.get(seq)
        if found is not None:
            return found
        found = self._look_up(seq)
        with self._lock:
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[seq] = found
        return found

    def forget(self) -> None:
        """Forget what is remembered: something was pruned."""
        with self._lock:
            self._remembered.clear()

    def _look_up(self, seq: int) -> Boundary:
        event = sa.select(EventRow.txn).where(EventRow.journal_id == self._journal_id, EventRow.seq == seq)
        rows = self._rows(event)
        if not rows:
            raise not_known(seq)
        number = rows[0].txn
        found = self._rows(self._transactions().where(TransactionRow.number == number))
        if not found:
            raise not_known(seq)
        row = found[0]
        if row.first_seq + row.event_count - 1 == seq:
            return self._after_empty_ones(row)
        before = self._rows(self._transactions().where(TransactionRow.number == number - 1))
        if before:
            return _boundary(before[0])
        if number == 1:
            raise unknown("seq", detail=f"the first transaction is not over at seq {seq}")
        return Boundary(row.first_seq - 1, number - 1, None)

    def _after_empty_ones(self, row: Any) -> Boundary:
        """The last of the transactions without events that follow a transaction, or itself."""
        following = self._transactions().where(TransactionRow.number > row.number)
        nearest = self._rows(
            following.where(TransactionRow.event_count > 0).order_by(TransactionRow.number).limit(1)
        )
        if nearest and nearest[0].number == row.number + 1:
            return _boundary(row)
        if nearest:
            following = following.where(TransactionRow.number < nearest[0].number)
        last = self._rows(following.order_by(TransactionRow.number.desc()).limit(1))
        return _boundary(last[0]) if last else _boundary(row)

    def _transactions(self) -> Any:
        return sa.select(*_ROW).where(TransactionRow.journal_id == self._journal_id)

    def _rows(self, query: Any) -> Sequence[Any]:
        return read_rows(self._engine, query)


def not_known(seq: int) -> Exception:
    """The refusal for a seq at which the state is not known: events there were never stored."""
    return conflict(
        "Not known",
        detail=f"the state at seq {seq} is not known: events there were not stored",
    )


def _boundary(row: Any) -> Boundary:
    return Boundary(row.first_seq + row.event_count - 1, row.number, row.time_us)
