"""What comes out of a journal: stored transactions with their events, in order.

Replay and audit take any iterable of `StoredTransaction`, whatever it was read from, so a test can
edit one and an exported file can stand in for a database.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, dataclass_transform

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import Event
from kvledger.core.ids import RequestId, Seq, TxnId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.chain import CheckpointName


@dataclass_transform(frozen_default=True)
def record(cls: type) -> type:
    """Make a slotted record, frozen for type checkers and cheap to build: readers make one for each event."""
    return dataclass(slots=True)(cls)


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


@record
class StoredEvent:
    """One event at its place in the journal. `undone`: it was rolled back, readers skip it."""

    seq: Seq
    undone: bool
    event: Event


@record
class StoredTransaction:
    """One outermost transaction. `time_us` is when it was recorded, microseconds since 1970: data, not order.

    `first_seq` is the seq of its first event, or the seq the next event will get if it has none.
    `duration_us` is how many microseconds it took on the scheduler's thread, None where nobody measured it.
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
    duration_us: int | None = None

    @property
    def last_seq(self) -> Seq:
        """Seq of its last event; one below `first_seq` when it has none."""
        return Seq(self.first_seq + len(self.events) - 1)


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A full state after transaction `number`, whose last seq is `seq` and whose hash is `chain_hash`.

    `state` is what `restore.decode_state` reads, `hash` covers all else of the checkpoint. `previous` is the
    checkpoint that was stored before it: None for the first of a journal, and in all of format 1.
    """

    seq: Seq
    number: TxnId
    chain_hash: bytes
    digest: str
    state: bytes
    hash: bytes
    previous: CheckpointName | None = None


CHECKPOINT_COLUMNS = (
    "seq", "number", "chain_hash", "digest", "state", "hash", "previous_seq", "previous_hash",
)  # fmt: skip
"""The columns of a checkpoint's row, in the order in which `checkpoint_of` takes them."""


def checkpoint_of(row: Sequence[Any]) -> StoredCheckpoint:
    """The checkpoint in a row of `CHECKPOINT_COLUMNS`."""
    seq, number, chain_hash, digest, state, stored, *previous = row
    return StoredCheckpoint(seq, number, chain_hash, digest, state, stored, name_of(*previous))


def name_of(seq: Any, stored: Any) -> CheckpointName | None:
    """The checkpoint that two cells of a row name; None where both are NULL."""
    return None if seq is None and stored is None else CheckpointName(seq, stored)


def checkpoint_cells(checkpoint: StoredCheckpoint) -> dict[str, Any]:
    """The cells of its row, by column."""
    cells: dict[str, Any] = {name: getattr(checkpoint, name) for name in CHECKPOINT_COLUMNS[:6]}
    previous_seq, previous_hash = checkpoint.previous or (None, None)
    return cells | {"previous_seq": previous_seq, "previous_hash": previous_hash}


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

    def recorded_config(self) -> dict[str, Any] | None:
        """The configuration in the journal's own row, which outlives pruning; None where there is none."""


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
