"""What comes out of a journal: stored transactions with their events, in order.

Replay and audit take any iterable of `StoredTransaction`, whatever it was read from, so a test can
edit one and an exported file can stand in for a database.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import Event
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.core.sinks import TransactionRecord


class UnreadableRow(JournalFormatError):
    """A stored row that cannot be read, or one that is missing, and where it stands.

    Attributes: `number` of the transaction, `seq`, and the `invariant` that this breaks.
    """

    def __init__(
        self, sentence: str, *, number: int, seq: int, invariant: Literal["sequence", "well-formed"]
    ) -> None:
        super().__init__(sentence)
        self.number = number
        self.seq = seq
        self.invariant = invariant


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event at its place in the journal. `undone`: it was rolled back, readers skip it."""

    seq: Seq
    undone: bool
    event: Event


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """One outermost transaction. `time_us` is when it was recorded, microseconds since 1970: data, not order.

    `first_seq` is the seq of its first event, or the seq the next event will get if it has none.
    """

    number: TxnId
    op: str
    request_id: RequestId | None
    rolled_back: bool
    reason: str
    time_us: int
    first_seq: Seq
    events: Sequence[StoredEvent]
    previous_hash: bytes = b""
    hash: bytes = b""

    @property
    def last_seq(self) -> Seq:
        """Seq of its last event; one below `first_seq` when it has none."""
        return Seq(self.first_seq + len(self.events) - 1)


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A full state after transaction `number`, whose last seq is `seq` and whose hash is `chain_hash`.

    `state` is what `restore.decode_state` reads, `hash` covers all else of the checkpoint.
    """

    seq: Seq
    number: TxnId
    chain_hash: bytes
    digest: str
    state: bytes
    hash: bytes


class JournalSource(Protocol):
    """One journal, wherever it is kept: in a database, in exported files, in both."""

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """Transactions from number `first` on (None: from the first that is there), in order.

        With `upto_seq` the last one is the last that ends at or before that seq.
        """

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        """The newest checkpoint at or before `seq` (None: of all)."""

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        """The oldest checkpoint at or after `seq`."""

    def checkpoint_places(self) -> Iterator[tuple[TxnId, str]]:
        """Number of the transaction and digest of every checkpoint, in order."""


def number_transactions(records: Iterable[TransactionRecord]) -> list[StoredTransaction]:
    """Give seqs and numbers to transactions that were never stored, as a recorder would."""
    stored: list[StoredTransaction] = []
    seq = 1
    for number, record in enumerate(records, start=1):
        events = tuple(
            StoredEvent(Seq(seq + i), bool(record.undone[i]), event) for i, event in enumerate(record.events)
        )
        stored.append(
            StoredTransaction(
                number=TxnId(number),
                op=record.op,
                request_id=record.request_id,
                rolled_back=record.rolled_back,
                reason=record.reason,
                time_us=0,
                first_seq=Seq(seq),
                events=events,
            )
        )
        seq += len(events)
    return stored
