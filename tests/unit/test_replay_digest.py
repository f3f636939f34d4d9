"""The digest of docs/format.md, layout 1, built here once more, byte by byte and by hand."""

import hashlib

import pytest

from kvledger.core.events import CacheReset
from kvledger.journal.replay import replay
from tests.support.hand_written import Story, allocated, edited, opened, pages
from tests.support.stories import one_request, recovery_without_lock, two_namespaces


def i64(*values: int) -> bytes:
    return b"".join((value % 2**64).to_bytes(8, "little") for value in values)


def string(text: bytes) -> bytes:
    return i64(len(text)) + text


def array(*numbers: int) -> bytes:
    return i64(len(numbers), *numbers)


def int32s(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def sha(*parts: bytes) -> str:
    return hashlib.sha256(b"KVLGR\x00\x01\x00" + b"".join(parts)).hexdigest()


def test_an_empty_cache() -> None:
    state = replay(Story(opened(page_size=4, window=6, full=3, swa=2)).journal()).state
    expected = sha(
        i64(4, 6, 3, 2, 0),
        i64(0),  # nodes
        i64(0),  # leases
        i64(0),  # requests
        array(),  # held by the caller
        array(),
        array(),  # mapping
        array(1, 2, 3),
        array(1, 2),  # free
        array(),
        array(),  # deferred
    )
    assert state.digest() == expected


def test_a_running_request_over_two_nodes() -> None:
    state = replay(one_request(), upto=15).state
    expected = sha(
        i64(4, 4, 16, 8, 0),
        i64(2),
        i64(0, 0, 0, 1, 0, 1) + string(b"") + string(int32s(0, 1, 2, 3)) + array(1) + array(1),
        i64(1, 4, 1, 1, 0, 1) + i64(-1) + string(int32s(4, 5, 6, 7)) + array(2) + array(2),
        i64(1) + i64(2, 2, 8, 4, 0),
        i64(1) + string(b"r1") + string(b"") + i64(2) + array(1, 2, 3, 4, 5),
        array(),
        array(1, 2, 4, 5) + array(1, 2, 4, 5),
        array(*range(6, 17)) + array(3, 6, 7, 8),
        array() + array(),
    )
    assert state.digest() == expected


def test_a_tombstone_a_raw_page_and_a_lease_of_an_older_stamp() -> None:
    state = replay(recovery_without_lock(), upto=7).state
    expected = sha(
        i64(4, 4, 16, 8, 0),
        i64(1),
        i64(0, 0, 0, 0, 0, 0) + string(b"") + string(int32s(0, 1, 2, 3)) + array(1) + array(),
        i64(0),
        i64(0),
        array(2),
        array(2) + array(1),
        array(*range(3, 17)) + array(*range(2, 9)),
        array() + array(),
    )
    assert state.digest() == expected


def test_namespaces_splits_and_a_waiting_order_of_ranks() -> None:
    journal = edited(two_namespaces(), 5, stamp=1)
    journal = edited(edited(journal, 9, first_stamp=1), 12, first_stamp=1)
    state = replay(journal, upto=14).state
    expected = sha(
        i64(4, 4, 16, 8, 0),
        i64(3),
        # All stamps are 1: ranks follow start, then the first Full page.
        i64(0, 0, 0, 1, 0, 1) + string(b"x") + string(int32s(0, 1, 2, 3)) + array(1) + array(1),
        i64(1, 4, 2, 1, 1, 1) + i64(-1) + string(int32s(4, 5, 6, 7)) + array(2) + array(2),
        i64(0, 0, 1, 1, 1, 1) + string(b"y") + string(int32s(0, 1, 2, 3)) + array(3) + array(3),
        i64(2) + i64(1, 2, 8, 4, 1) + i64(2, 3, 4, 0, 1),
        i64(1) + string(b"r1") + string(b"y") + i64(2) + array(3),
        array(),
        array(1, 2, 3) + array(1, 2, 3),
        array(*range(4, 17)) + array(*range(4, 9)),
        array() + array(),
    )
    assert state.digest() == expected


@pytest.mark.parametrize(
    ("seq", "changes"),
    [
        (6, {"namespace": "other"}),
        (7, {"stamp": 0}),
        (7, {"tokens": int32s(9, 9, 9, 9)}),
        (11, {"swa_from": 0}),
        (11, {"length": 4}),
        (13, {"pages": pages(1, 9)}),
        (13, {"lease": None}),
        (4, {"namespace": "other"}),
        (1, {"window": 5}),
        (1, {"swa_pages": 9}),
    ],
)
def test_every_canonical_fact_is_in_it(seq: int, changes: dict[str, object]) -> None:
    journal = edited(one_request(), 10, nodes=(), first_stamp=0)
    assert replay(edited(journal, seq, **changes), upto=13).state.digest() != (
        replay(journal, upto=13).state.digest()
    )


def test_the_generation_is_in_it_and_node_ids_are_not() -> None:
    story = Story().then("alloc", allocated(pages(1))).journal()
    reset = Story().then("alloc", allocated(pages(1))).then("reset", CacheReset(1)).journal()
    assert replay(story).state.digest() != replay(reset).state.digest()
    renamed = edited(edited(edited(recovery_without_lock(), 3, node=7), 5, node=7), 8, node=7)
    assert replay(renamed).state.digest() == replay(recovery_without_lock()).state.digest()
