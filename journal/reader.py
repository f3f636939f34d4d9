"""Reading one journal from its database: transactions, full states, look-ups, and where it ends.

Every read is one short transaction of the database. Transactions come a batch at a time (batches.py), what is
asked of single events is answered by an index (journal/lookups), and a full state is handed on only if its
hash is right.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.journal.arguments import check_place, check_text
from kvledger.journal.batches import TransactionBatches
from kvledger.journal.chain import Anchor, ChainHead, CheckpointName
from kvledger.journal.database import read_rows
from kvledger.journal.info import JournalInfo
from kvledger.journal.lookups.events import EventLookUp
from kvledger.journal.lookups.questions import (
    DEFAULT_COUNT,
    Beginning,
    Count,
    EventFilter,
    FoundEvent,
    FoundTransaction,
    TransactionFilter,
)
from kvledger.journal.lookups.transactions import TransactionLookUp
from kvledger.journal.models import CheckpointRow, JournalRow, TransactionRow
from kvledger.journal.records import (
    CHECKPOINT_COLUMNS,
    StoredCheckpoint,
    StoredEvent,
    StoredTransaction,
    checkpoint_of,
)
from kvledger.journal.tail import Tail

_CHECKPOINT_COLUMNS = [getattr(CheckpointRow, name) for name in CHECKPOINT_COLUMNS]


class JournalReader:
    """Reads one journal of a store; made by `Journal.reader`. Safe to use while the journal is written."""

    def __init__(self, engine: sa.Engine, info: JournalInfo) -> None:
        info.check_format()
        self.engine = engine
        self.info = info

    def head(self) -> ChainHead:
        """The last stored transaction; where all were pruned, the checkpoint that they ended in.

        Number 0, seq 0 and the genesis hash when there is neither.
        """
        query = (
            sa.select(
                TransactionRow.number,
                TransactionRow.first_seq,
                TransactionRow.event_count,
                TransactionRow.hash,
            )
            .where(TransactionRow.journal_id == self.info.id)
            .order_by(TransactionRow.number.desc())
            .limit(1)
        )
        row = next(iter(self._rows(query)), None)
        if row is None:
            kept = self.checkpoint_before()
            if kept is not None:
                return ChainHead(self.info.epoch, kept.number, kept.seq, kept.chain_hash)
            return ChainHead(self.info.epoch, 0, 0, self.info.genesis)
        return ChainHead(self.info.epoch, row.number, row.first_seq + row.event_count - 1, row.hash)

    def anchor(self) -> Anchor:
        """The head, and the newest checkpoint up to it: what to keep elsewhere.

        Raises JournalFormatError for a checkpoint that was changed.
        """
        head = self.head()
        kept = self.checkpoint_before(head.seq)
        named = None if kept is None else CheckpointName(kept.seq, kept.hash)
        return Anchor(head.epoch, head.number, head.seq, head.hash, named)

    def tail(self, *, last_seq: Seq | int) -> Tail:
        """What is missing of a journal whose recorder accepted events up to `last_seq` before it died."""
        last = check_place(last_seq, "a seq", least=0)
        return Tail(Seq(self.head().seq), Seq(last))

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """The transactions from number `first` on, in order, as far as they are stored when they are reached.

        None is the first that is there: number 1, or the one after the last that was pruned. With `upto_seq`
        the last one is the last that ends at or before that seq. Raises JournalFormatError at the first row
        that cannot be decoded, after all transactions before it; an UnreadableRow where it is known which.
        Cost: O(rows), memory bounded by a batch.
        """
        return TransactionBatches(self.engine, self.info.id).read(first, upto_seq=upto_seq)

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        """The newest full state at or before `seq` (None: of all). Cost: one look-up and its bytes.

        Raises InvalidArgument for what is no seq, JournalFormatError for a state that was changed.
        """
        query = sa.select(*_CHECKPOINT_COLUMNS).where(CheckpointRow.journal_id == self.info.id)
        if seq is not None:
            query = query.where(CheckpointRow.seq <= check_place(seq, "a seq"))
        return self._checkpoint(query.order_by(CheckpointRow.seq.desc()))

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        """The oldest full state at or after `seq`; cost and errors as `checkpoint_before`."""
        query = sa.select(*_CHECKPOINT_COLUMNS).where(
            CheckpointRow.journal_id == self.info.id, CheckpointRow.seq >= check_place(seq, "a seq")
        )
        return self._checkpoint(query.order_by(CheckpointRow.seq))

    def checkpoint_seqs(self) -> tuple[Seq, ...]:
        """The seqs at which a full state is stored, rising."""
        query = sa.select(CheckpointRow.seq).where(CheckpointRow.journal_id == self.info.id)
        return tuple(Seq(row.seq) for row in self._rows(query.order_by(CheckpointRow.seq)))

    def checkpoint_places(self) -> Iterator[tuple[TxnId, str]]:
        """Number of the transaction and digest of every full state, in order."""
        query = sa.select(CheckpointRow.number, CheckpointRow.digest).where(
            CheckpointRow.journal_id == self.info.id
        )
        for row in self._rows(query.order_by(CheckpointRow.seq)):
            yield TxnId(row.number), row.digest

    def recorded_config(self) -> dict[str, Any] | None:
        """The cache's configuration as the journal's row has it."""
        return self.info.recorded_config()

    def transaction(self, number: TxnId | int) -> StoredTransaction:
        """The transaction with this number. Raises InvalidArgument if it is not stored."""
        found = next(self.transactions(first=number), None)
        if found is None or found.number != number:
            raise InvalidArgument(f"journal {self.info.id} has no transaction {number}")
        return found

    def transactions_of(self, request_id: RequestId | str) -> Iterator[StoredTransaction]:
        """The transactions made in the name of one request, in order."""
        check_text(request_id, "name")
        for found in self.find_transactions(TransactionFilter(request_id=RequestId(request_id))):
            yield self.transaction(found.number)

    def events(self, wanted: EventFilter | None = None) -> Iterator[StoredEvent]:
        """The events that match, undone ones included, in order of seq. Cost: O(matches), by index."""
        for found in self.find(wanted):
            yield StoredEvent(found.seq, found.undone, found.event)

    @property
    def indexed(self) -> bool:
        """A look-up here costs what it finds."""
        return True

    def beginning(self) -> Beginning:
        """Where what is stored begins: the seq and number of the first transaction that is there.

        Seq 1 and number 1 unless older rows were pruned; where all were, what comes next. Cost: one look-up.
        """
        query = (
            sa.select(TransactionRow.first_seq, TransactionRow.number)
            .where(TransactionRow.journal_id == self.info.id)
            .order_by(TransactionRow.number)
            .limit(1)
        )
        row = next(iter(self._rows(query)), None)
        if row is not None:
            return Beginning(Seq(row.first_seq), TxnId(row.number))
        head = self.head()
        return Beginning(Seq(head.seq + 1), TxnId(head.number + 1))

    def find(
        self,
        wanted: EventFilter | None = None,
        *,
        limit: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundEvent]:
        """As `events`, each with its transaction, and cut where it is asked for; see `EventLookUp.find`."""
        return EventLookUp(self.engine, self.info.id).find(
            wanted or EventFilter(),
            limit=limit,
            after_seq=after_seq,
            before_seq=before_seq,
            newest_first=newest_first,
        )

    def count(self, wanted: EventFilter | None = None, *, upto: int = DEFAULT_COUNT) -> Count:
        """How many events match, exactly up to `upto`; see `EventLookUp.count`."""
        return EventLookUp(self.engine, self.info.id).count(wanted or EventFilter(), upto=upto)

    def find_transactions(
        self,
        wanted: TransactionFilter | None = None,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundTransaction]:
        """The rows of transactions that match, without their events; see `TransactionLookUp.find`."""
        return TransactionLookUp(self.engine, self.info.id).find(
            wanted or TransactionFilter(), limit=limit, after=after, before=before, newest_first=newest_first
        )

    def _info_by_now(self) -> JournalInfo:
        """The journal's row, read again if its cache had not opened when this reader was made."""
        if self.info.config is None:
            row = self._rows(sa.select(JournalRow.__table__).where(JournalRow.id == self.info.id))
            self.info = JournalInfo.from_row(row[0]) if row else self.info
        return self.info

    def _checkpoint(self, query: Any) -> StoredCheckpoint | None:
        row = next(iter(self._rows(query.limit(1))), None)
        if row is None:
            return None
        found = checkpoint_of(row)
        self._info_by_now().check_checkpoint(found)
        return found

    def _rows(self, query: Any) -> Sequence[Any]:
        return read_rows(self.engine, query)
