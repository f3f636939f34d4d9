"""A batch as rows, column by column: every cell of its transactions and events, numbered and linked.

A pure function of the batch and of where the journal stands. Seqs and numbers are dense: the rows go on from
the `Place` that they are given and end at another, from which the next batch goes on once they are stored.
"""

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from kvledger.core.sinks import TransactionRecord
from kvledger.journal.chain import PIECES, CheckpointName, event_pieces, hash_pieces
from kvledger.journal.codec import EncodedColumns
from kvledger.journal.models import COMMITTED, ROLLED_BACK

TRANSACTION_CELLS = [
    "journal_id",
    "number",
    "op",
    "request_id",
    "status",
    "reason",
    "time_us",
    "first_seq",
    "event_count",
    "previous_hash",
    "hash",
    "duration_us",
    "checkpoint_seq",
    "checkpoint_hash",
]
"""The columns of a transaction's row, in the order that `link_batch` puts them."""

EVENT_CELLS = [
    "journal_id",
    "seq",
    "txn",
    "kind",
    "version",
    "node",
    "request_id",
    "undone",
    "payload",
    "blob",
]
"""The columns of an event's row, in the order that `link_batch` puts them."""


NOT_NAMED = (None, None)
"""What stands in a transaction's row that names no checkpoint."""


class Place(NamedTuple):
    """Where a journal goes on: the seq and the number that come next, and the hash that they follow."""

    seq: int
    number: int
    hash: bytes


Columns = tuple[Sequence[Any], ...]
"""Rows as they go to the database: for each column the values of all rows."""


class LinkedRows(NamedTuple):
    """The rows of a batch, where the journal goes on after them, and how long payloads and blobs are."""

    transactions: Columns
    events: Columns
    end: Place
    bytes: int


def link_batch(
    batch: Sequence[tuple[TransactionRecord, int, int | None]],
    encoded: EncodedColumns,
    *,
    journal_id: int,
    place: Place,
    checkpoint: CheckpointName | None = None,
) -> LinkedRows:
    """The rows of `batch` from `place` on: transactions, each with the time when it was handed over and how
    long it took, both in microseconds.

    `encoded` has the cells of all their events, in order; the first of them names `checkpoint`. Cost:
    O(events + bytes), column by column: nothing is made for each row but what is hashed.
    """
    kinds, versions, nodes, requests, payloads, blobs = encoded
    seqs = range(place.seq, place.seq + len(kinds))
    undone = [1 if mark else 0 for record, *_ in batch for mark in record.undone]
    counts = [len(record.events) for record, *_ in batch]
    numbers = range(place.number, place.number + len(batch))
    txns = list(chain.from_iterable(map(repeat, numbers, counts)))
    pieces = event_pieces(encoded, seqs=seqs, txns=txns, undone=undone)

    heads: list[Any] = []
    texts = _Storable()
    taken, link = 0, place.hash
    for (record, time_us, duration_us), number, count in zip(batch, numbers, counts, strict=True):
        op, op_bytes = texts[record.op]
        reason, reason_bytes = texts[record.reason]
        status = ROLLED_BACK if record.rolled_back else COMMITTED
        name = None if record.request_id is None else record.request_id.encode()
        named, checkpoint = NOT_NAMED if checkpoint is None else checkpoint, None
        first_seq = place.seq + taken
        numbered = (time_us, first_seq, count)
        cells = (number, op_bytes, name, status.encode(), reason_bytes, *numbered, duration_us, *named)
        previous = link
        link = hash_pieces(link, cells, pieces[taken * PIECES : (taken + count) * PIECES])
        heads += (op, record.request_id, status, reason, *numbered, previous, link, duration_us, *named)
        taken += count
    width = len(TRANSACTION_CELLS) - 2
    return LinkedRows(
        transactions=([journal_id] * len(batch), numbers, *(heads[i::width] for i in range(width))),
        events=(
            [journal_id] * len(kinds), seqs, txns, kinds, versions, nodes, requests, undone, payloads, blobs
        ),
        end=Place(seqs.stop, numbers.stop, link),
        bytes=sum(map(len, payloads)) + sum(map(len, blobs)),
    )  # fmt: skip


class _Storable(dict[str, tuple[str, bytes]]):
    """Labels and reasons as they are stored, and their bytes; each is worked out once."""

    def __missing__(self, text: str) -> tuple[str, bytes]:
        stored = _storable(text)
        self[text] = both = (stored.decode(), stored)
        return both


def _storable(text: str) -> bytes:
    """A label or a reason as it is stored. It may quote anything, half a surrogate pair or a zero included,
    which not every database can hold, and must not stop the journal."""
    return text.encode(errors="backslashreplace").replace(b"\0", b"\\x00")
