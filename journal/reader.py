"""Reading one journal: its transactions in order, and its events by what they are about.

Reads are short: each batch is one read transaction that ends before its rows are handed on, so a reader that
takes its time holds no lock and keeps no write-ahead log alive. Rows are only ever added at the end and
pruned from the beginning, which is why batches read one after the other still show one consistent journal.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument, JournalFormatError, StoreUnavailable
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.journal.chain import Anchor, ChainHead, CheckpointName, Owner, checkpoint_hash, genesis_hash
from kvledger.journal.codec import decode
from kvledger.journal.database import database_errors
from kvledger.journal.fields import canonical_json
from kvledger.journal.lookup import EventLookUp
from kvledger.journal.models import READABLE_FORMATS, CheckpointRow, EventRow, JournalRow, TransactionRow
from kvledger.journal.questions import (
    DEFAULT_COUNT,
    Beginning,
    Count,
    EventFilter,
    FoundEvent,
    FoundTransaction,
    TransactionFilter,
)
from kvledger.journal.records import (
    CHECKPOINT_COLUMNS,
    StoredCheckpoint,
    StoredEvent,
    StoredTransaction,
    UnreadableRow,
    checkpoint_of,
)
from kvledger.journal.tail import Tail
from kvledger.journal.transactions import TransactionLookUp

BATCH_TRANSACTIONS = 512
BATCH_EVENTS = 8_192
"""One read transaction covers at most this many rows, unless a single transaction has more events."""

_TRANSACTION_COLUMNS = (
    TransactionRow.number,
    TransactionRow.op,
    TransactionRow.request_id,
    TransactionRow.status,
    TransactionRow.reason,
    TransactionRow.time_us,
    TransactionRow.first_seq,
    TransactionRow.event_count,
    TransactionRow.previous_hash,
    TransactionRow.hash,
    TransactionRow.duration_us,
)
_EVENT_COLUMNS = (
    EventRow.seq,
    EventRow.kind,
    EventRow.version,
    EventRow.undone,
    EventRow.payload,
    EventRow.blob,
)

_CHECKPOINT_COLUMNS = [getattr(CheckpointRow, name) for name in CHECKPOINT_COLUMNS]

UNDECODABLE = "Could not decode to UTF-8"
"""How the sqlite3 module tells of text that is none: it has no class and no code of its own for it."""

SEQ_LIMIT = 2**63
"""Seqs and numbers stay below this: no database's integer holds more."""


@dataclass(frozen=True, slots=True)
class JournalInfo:
    """The row of a journal. `config` is the recorded CacheConfig as JSON; None before `cache_opened`."""

    id: int
    epoch: str
    name: str
    config: dict[str, Any] | None
    token_policy: str
    format_version: int
    created_us: int

    @classmethod
    def from_row(cls, row: Any) -> "JournalInfo":
        """Read a row of the journals table. Raises JournalFormatError for a config that is no JSON object."""
        config = None
        if row.config is not None:
            try:
                config = json.loads(row.config)
            except ValueError as error:
                raise JournalFormatError(f"the config of journal {row.id} is no JSON: {error}") from error
        return cls(row.id, row.epoch, row.name, config, row.token_policy, row.format_version, row.created_us)

    def check_format(self) -> None:
        """Raise JournalFormatError for a journal of a format that this version does not read."""
        if self.format_version not in READABLE_FORMATS:
            raise JournalFormatError(
                f"journal {self.id} is of format version {self.format_version}; this version reads "
                f"{' and '.join(map(str, READABLE_FORMATS))}"
            )

    @property
    def genesis(self) -> bytes:
        """The hash before the first transaction."""
        return genesis_hash(
            format_version=self.format_version,
            created_us=self.created_us,
            epoch=self.epoch,
            name=self.name,
            token_policy=self.token_policy,
        )


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
            sa.select(*_TRANSACTION_COLUMNS)
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
        return Tail(Seq(self.head().seq), Seq(last_seq))

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """The transactions from number `first` on, in order, as far as they are stored when they are reached.

        None is the first that is there: number 1, or the one after the last that was pruned. With `upto_seq`
        the last one is the last that ends at or before that seq. Raises JournalFormatError at the first row
        that cannot be decoded, after all transactions before it; an UnreadableRow where it is known which.
        Cost: O(rows), memory bounded by a batch.
        """
        first = 1 if first is None else first
        if first < 1 or (upto_seq is not None and upto_seq < 0):
            raise InvalidArgument("transactions count from 1 and seqs from 0 on")
        after, size = int(first) - 1, BATCH_TRANSACTIONS
        while True:
            try:
                heads, events = self._batch(after, upto_seq, size)
            except JournalFormatError:
                if size == 1:
                    raise
                # One by one up to the row that cannot be read: those before it are sound.
                size = 1
                continue
            if not heads:
                return
            yield from _assemble(heads, events)
            after = heads[-1].number

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        """The newest full state at or before `seq` (None: of all). Cost: one look-up and its bytes."""
        query = sa.select(*_CHECKPOINT_COLUMNS).where(CheckpointRow.journal_id == self.info.id)
        if seq is not None:
            query = query.where(CheckpointRow.seq <= seq)
        return self._checkpoint(query.order_by(CheckpointRow.seq.desc()))

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        """The oldest full state at or after `seq`. Cost: one look-up and its bytes."""
        query = sa.select(*_CHECKPOINT_COLUMNS).where(
            CheckpointRow.journal_id == self.info.id, CheckpointRow.seq >= seq
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
        if found.hash != hash_of(found, self._info_by_now()):
            raise JournalFormatError(
                f"the checkpoint at seq {found.seq} was changed: its hash is not that of its row"
            )
        return found

    def transaction(self, number: TxnId | int) -> StoredTransaction:
        """The transaction with this number. Raises InvalidArgument if it is not stored."""
        found = next(self.transactions(first=number), None)
        if found is None or found.number != number:
            raise InvalidArgument(f"journal {self.info.id} has no transaction {number}")
        return found

    def transactions_of(self, request_id: RequestId | str) -> Iterator[StoredTransaction]:
        """The transactions made in the name of one request, in order."""
        query = sa.select(TransactionRow.number).where(
            TransactionRow.journal_id == self.info.id, TransactionRow.request_id == request_id
        )
        for number in self._ascending(query, TransactionRow.number, BATCH_TRANSACTIONS):
            yield self.transaction(number[0])

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

    def _batch(self, after: int, upto_seq: int | None, size: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """At most `size` transactions after number `after`, and their events, from one read transaction."""
        query = (
            sa.select(*_TRANSACTION_COLUMNS)
            .where(TransactionRow.journal_id == self.info.id, TransactionRow.number > after)
            .order_by(TransactionRow.number)
            .limit(size)
        )
        if upto_seq is not None:
            query = query.where(TransactionRow.first_seq + TransactionRow.event_count - 1 <= upto_seq)
        with _read_errors(), self.engine.connect() as connection:
            heads = connection.execute(query).all()
            total = 0
            for i, head in enumerate(heads):
                wrong = _range_fault(head)
                if wrong is not None and not i:
                    raise wrong
                if wrong is None:
                    total += head.event_count
                if i and (wrong is not None or total > BATCH_EVENTS):
                    heads = heads[:i]
                    break
            if not heads:
                return (), ()
            if heads[0].event_count > BATCH_EVENTS:
                self._check_end(connection, heads[0])
            events = connection.execute(
                sa.select(*_EVENT_COLUMNS)
                .where(
                    EventRow.journal_id == self.info.id,
                    EventRow.seq >= heads[0].first_seq,
                    EventRow.seq < heads[-1].first_seq + heads[-1].event_count,
                )
                .order_by(EventRow.seq)
            ).all()
        return heads, events

    def _check_end(self, connection: sa.Connection, head: Any) -> None:
        """Raise UnreadableRow unless the last event of a large transaction is there.

        A count that was changed must not read the rest of the journal into memory.
        """
        last = head.first_seq + head.event_count - 1
        query = sa.select(EventRow.txn).where(EventRow.journal_id == self.info.id, EventRow.seq == last)
        if connection.execute(query).scalar_one_or_none() != head.number:
            raise _missing(head.number, head.first_seq, head.event_count)

    def _ascending(self, query: Any, key: Any, limit: int) -> Iterator[Any]:
        """The rows of `query` by rising `key`, its first column, read `limit` at a time."""
        after: int | None = None
        while True:
            page = query if after is None else query.where(key > after)
            rows = self._rows(page.order_by(key).limit(limit))
            yield from rows
            if len(rows) < limit:
                return
            after = rows[-1][0]

    def _rows(self, query: Any) -> Sequence[Any]:
        with _read_errors(), self.engine.connect() as connection:
            return connection.execute(query).all()


@contextmanager
def _read_errors() -> Iterator[None]:
    """As `database_errors`; a cell that is no text, or no number of the store, is a JournalFormatError."""
    try:
        with database_errors("the journal cannot be read"):
            yield
    except StoreUnavailable as error:
        if UNDECODABLE in str(error):
            raise JournalFormatError(str(error)) from error
        raise
    except OverflowError as error:
        raise JournalFormatError(f"the journal cannot be read: {error}") from error


def _range_fault(head: Any) -> UnreadableRow | None:
    """What is wrong with the range of seqs that a transaction's row names, if anything."""
    first_seq, count = head.first_seq, head.event_count
    numbers = type(first_seq) is int and type(count) is int
    if numbers and first_seq >= 0 and count >= 0 and first_seq + count < SEQ_LIMIT:
        return None
    return UnreadableRow(
        f"transaction {head.number} names {count} events from seq {first_seq} on, which cannot be",
        number=head.number,
        seq=first_seq if type(first_seq) is int else 0,
        invariant="sequence",
    )


def _missing(number: int, first_seq: int, count: int) -> UnreadableRow:
    return UnreadableRow(
        f"transaction {number} holds {count} events from seq {first_seq} on, and not all are there",
        number=number,
        seq=first_seq,
        invariant="sequence",
    )


def _assemble(heads: Sequence[Any], rows: Sequence[Any]) -> Iterator[StoredTransaction]:
    taken = 0
    for number, op, request, status, reason, time_us, first_seq, count, previous, link, duration_us in heads:
        mine = rows[taken : taken + count]
        taken += count
        # The rows are in order of seq and none is there twice: the ends tell whether all are there.
        if len(mine) != count or (
            count and (mine[0].seq, mine[-1].seq) != (first_seq, first_seq + count - 1)
        ):
            raise _missing(number, first_seq, count)
        yield StoredTransaction(
            number=TxnId(number),
            op=op,
            request_id=None if request is None else RequestId(request),
            rolled_back=status == "rolled_back",
            reason=reason,
            time_us=time_us,
            first_seq=Seq(first_seq),
            events=tuple([_event(row, number) for row in mine]),
            previous_hash=previous,
            hash=link,
            duration_us=duration_us,
        )


def _event(row: Sequence[Any], number: int) -> StoredEvent:
    seq, kind, version, undone, payload, blob = row
    try:
        return StoredEvent(Seq(seq), bool(undone), decode(kind, version, payload, blob))
    except JournalFormatError as error:
        raise UnreadableRow(f"seq {seq}: {error}", number=number, seq=seq, invariant="well-formed") from error


def hash_of(checkpoint: StoredCheckpoint, info: JournalInfo) -> bytes | None:
    """The hash that a checkpoint of this journal has to have; None where it holds what none of it can."""
    try:
        return checkpoint_hash(
            Owner(
                info.format_version,
                info.epoch,
                info.genesis,
                None if info.config is None else canonical_json(info.config).encode(),
            ),
            seq=checkpoint.seq,
            number=checkpoint.number,
            chain_hash=checkpoint.chain_hash,
            digest=checkpoint.digest.encode(),
            state=checkpoint.state,
            previous=checkpoint.previous,
        )
    except (struct.error, TypeError):
        return None
