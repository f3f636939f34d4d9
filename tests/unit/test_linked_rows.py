"""The writer's rows: hashed as a reader hashes them, and encoded alike whatever types the values came in."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core.errors import JournalError
from kvledger.core.events import Evicted, LockReleased, NodeDeleted, NodeSplit, NodeTouched
from kvledger.core.ids import RequestId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.chain import CheckpointName, transaction_hash
from kvledger.journal.codec import encode, encode_all, encode_columns
from kvledger.journal.linking import EVENT_CELLS, TRANSACTION_CELLS, Place, link_batch
from tests.support.stored_events import any_events, pages, seeded

BEFORE = bytes(40)


def linked(*transactions: list[Any], checkpoint: bool = False) -> Any:
    """The rows of transactions made of these events, in a journal that begins."""
    batch = [
        (TransactionRecord("öp", RequestId("r1"), events, bytearray(len(events))), 7 + place, place or None)
        for place, events in enumerate(transactions)
    ]
    encoded = encode_columns([event for events in transactions for event in events])
    named = CheckpointName(9, bytes(32)) if checkpoint else None
    return link_batch(batch, encoded, journal_id=3, place=Place(1, 1, BEFORE), checkpoint=named)


def as_stored(cells: dict[str, Any]) -> dict[str, Any]:
    return {name: value.encode() if isinstance(value, str) else value for name, value in cells.items()}


@seeded
@given(st.lists(st.lists(any_events(), max_size=4), min_size=1, max_size=3), st.booleans())
def test_the_writer_hashes_its_rows_as_a_reader_hashes_what_is_stored(
    transactions: list[list[Any]], checkpoint: bool
) -> None:
    rows = linked(*transactions, checkpoint=checkpoint)
    events = [as_stored(dict(zip(EVENT_CELLS, row, strict=True))) for row in zip(*rows.events, strict=True)]
    previous = BEFORE
    for row in zip(*rows.transactions, strict=True):
        head = as_stored(dict(zip(TRANSACTION_CELLS, row, strict=True)))
        mine = [
            tuple(event[name] for name in EVENT_CELLS[1:])
            for event in events
            if event["txn"] == head["number"]
        ]
        cells: Any = tuple(
            head[name] for name in TRANSACTION_CELLS[1:] if name not in ("previous_hash", "hash")
        )
        assert head["previous_hash"] == previous
        assert head["hash"] == transaction_hash(previous, cells, mine, format_version=2)
        assert (head["checkpoint_seq"] == 9) == (checkpoint and head["number"] == 1)
        assert head["event_count"] == len(mine)
        previous = head["hash"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert rows.end == (len(events) + 1, len(transactions) + 1, previous)
    assert rows.bytes == sum(len(event["payload"]) + len(event["blob"]) for event in events)


def test_links_are_stored_in_the_order_in_which_they_are_made() -> None:
    rows = linked(*[[Evicted(n, 0, 0, 0)] for n in range(300)])
    links = rows.transactions[TRANSACTION_CELLS.index("hash")]
    assert all(before < after for before, after in pairwise([BEFORE, *links]))


@pytest.mark.parametrize(
    ("exact", "other"),
    [
        (Evicted(1, 2, 3, 4), Evicted(np.int64(1), np.int32(2), True + 2, 4)),  # type: ignore[arg-type]
        (
            NodeDeleted(5, None, "capacity", pages([1]), None, 9),  # type: ignore[arg-type]
            NodeDeleted(np.int64(5), None, "capacity", pages([1]).astype(np.int64), None, 9),  # type: ignore[arg-type]
        ),
        (NodeTouched((4, 5), 1), NodeTouched([np.int64(4), 5], 1)),  # type: ignore[arg-type]
        (
            LockReleased(1, 2, "r1", True, False),  # type: ignore[arg-type]
            LockReleased(1, 2, "r1", np.True_, np.False_),  # type: ignore[arg-type]
        ),
    ],
    ids=lambda event: type(event).__name__,
)
def test_values_of_kindred_types_are_stored_as_the_exact_ones_are(exact: Any, other: Any) -> None:
    stored, again = encode(exact), encode(other)
    assert again == stored
    assert type(again.node) is type(stored.node)


@pytest.mark.parametrize(
    "event",
    [
        NodeDeleted(1, None, "capacity", None, None, None),  # type: ignore[arg-type]
        NodeSplit(1, 2, 3, None),  # type: ignore[arg-type]
        NodeSplit(1, 2, 3, b"\x00\x00"),  # type: ignore[arg-type]
        LockReleased(1, "2", None, True, False),  # type: ignore[arg-type]
        LockReleased(1, None, ["r1"], True, False),  # type: ignore[arg-type]
        NodeTouched(5, 1),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused(event: Any) -> None:
    encode(Evicted(1, 2, 3, 4))
    with pytest.raises(JournalError):
        encode_all([Evicted(1, 2, 3, 4), event])
