"""A batch as rows: every cell of its transactions and events, numbered, and linked into the chain.

A pure function of the batch and of where the journal stands. Seqs and numbers are dense: the rows go on from
the `Place` that they are given and end at another, from which the next batch goes on once they are stored.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kvledger.core.sinks import TransactionRecord
from kvledger.journal.chain import hash_rows
from kvledger.journal.codec import EncodedCells

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


class Place(NamedTuple):
    """Where a journal goes on: the seq and the number that come next, and the hash that they follow."""

    seq: int
    number: int
    hash: bytes


class LinkedRows(NamedTuple):
    """The rows of a batch, where the journal goes on after them, and how long payloads and blobs are."""

    transactions: list[tuple[Any, ...]]
    events: list[tuple[Any, ...]]
    end: Place
    bytes: int


def link_batch(
    batch: Iterable[tuple[TransactionRecord, int]],
    encoded: Sequence[EncodedCells],
    *,
    journal_id: int,
    place: Place,
) -> LinkedRows:
    """The rows of `batch`, transactions each with the time they were handed over, from `place` on.

    `encoded` has the cells of all their events, in order. Cost: O(events + bytes).
    """
    seq, number, link = place
    transactions: list[tuple[Any, ...]] = []
    events: list[tuple[Any, ...]] = []
    size = taken = 0
    for record, time_us in batch:
        first_seq, begin = seq, taken
        rows = []
        for undone in record.undone:
            kind, version, node, request, payload, blob = encoded[taken]
            mark = 1 if undone else 0
            rows.append((journal_id, seq, number, kind, version, node, request, mark, payload, blob))
            seq += 1
            taken += 1
        events += rows
        op, reason = _storable(record.op), _storable(record.reason)
        status = "rolled_back" if record.rolled_back else "committed"
        name = None if record.request_id is None else record.request_id.encode()
        count = taken - begin
        head = (number, op, name, status.encode(), reason, time_us, first_seq, count)
        previous, (link, hashed) = link, hash_rows(link, head, rows)
        size += hashed
        transactions.append(
            (
                journal_id,
                number,
                op.decode(),
                record.request_id,
                status,
                reason.decode(),
                time_us,
                first_seq,
                count,
                previous,
                link,
            )
        )
        number += 1
    return LinkedRows(transactions, events, Place(seq, number, link), size)


def _storable(text: str) -> bytes:
    """A label or a reason as it is stored. It may quote anything, half a surrogate pair or a zero included,
    which not every database can hold, and must not stop the journal."""
    return text.encode(errors="backslashreplace").replace(b"\0", b"\\x00")
