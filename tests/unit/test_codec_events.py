"""An event becomes canonical JSON and a blob and comes back the same; anything else is refused."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import (
    EVENTS,
    Cause,
    Evicted,
    FingerprintReason,
    KvFingerprinted,
    NodeCreated,
    NodeDeleted,
    NodeTouched,
    Origin,
)
from kvledger.core.ids import NodeId, RequestId
from kvledger.journal.arrays import COUNTED_PAGES, FEW_ARRAYS, pack_arrays, pack_together, unpack_array
from kvledger.journal.codec import decode, encode, encode_all
from tests.support.stored_events import (
    any_events,
    events_of,
    facts,
    page_arrays,
    pages,
    seeded,
    sums,
    wide_pages,
)

LEAF = NodeCreated(
    node=NodeId(7),
    parent=None,
    namespace="ä",
    start=4,
    tokens=b"\x01\x00\x00\x00\x02\x00\x00\x00",
    full_pages=pages([5, 6, 7, 8]),
    swa_pages=pages([9, 3]),
    stamp=11,
    full_origin=Origin(RequestId("r1"), 2),
    swa_origin=None,
)


@pytest.mark.parametrize("kind", sorted(EVENTS))
@seeded
@given(data=st.data())
def test_every_event_kind_comes_back_as_it_went_in(kind: str, data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    stored = encode(event)
    assert (stored.kind, stored.version) == (kind, event.version)
    assert facts(decode(stored.kind, stored.version, stored.payload, stored.blob)) == facts(event)


@seeded
@given(st.lists(any_events(), max_size=6))
def test_encoding_many_events_at_once_gives_what_encoding_each_gives(events: list[Any]) -> None:
    assert encode_all(events) == [encode(event) for event in events]


@seeded
@given(any_events())
def test_a_payload_is_canonical_json(event: Any) -> None:
    payload = encode(event).payload
    again = json.dumps(json.loads(payload), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    assert payload == again


def test_a_leaf_is_stored_as_docs_format_says() -> None:
    stored = encode(LEAF)
    assert stored.payload == (
        '{"full_origin":["r1",2],"full_pages":[4,1],"namespace":"\\u00e4","node":7,"parent":null,"stamp":11,'
        '"start":4,"swa_origin":null,"swa_pages":[2,0],"tokens":8}'
    )
    assert stored.blob == b"".join(
        [np.array([5, 4, 9, 3], dtype="<i4").tobytes(), b"\x01\x00\x00\x00\x02\x00\x00\x00"]
    )
    assert (stored.node, stored.request_id) == (7, None)


def in_stretches(stretches: list[tuple[int, int]]) -> Any:
    return pages([page for first, length in stretches for page in range(first, first + length)])


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ([], 0),
        ([5], 0),
        ([5, 6], 0),  # a tie: plain
        ([5, 6, 7], 1),
        ([5, 6, 7, 9], 0),  # a tie: plain
        ([5, 6, 7, 9, 10], 2),
        ([7, 6, 5], 0),
        ([5, 5, 5], 0),
        ([1, 2, 3, 2, 3, 4], 2),
        (list(range(1000)), 1),
    ],
)
def test_an_array_is_stored_in_the_shorter_of_two_forms(values: list[int], runs: int) -> None:
    ((elements, found, data),) = pack_arrays([pages(values)])
    assert (elements, found) == (len(values), runs)
    assert len(data) == (8 * runs if runs else 4 * len(values))
    assert unpack_array([elements, found], data, 0).tolist() == values


@seeded
@given(st.lists(page_arrays(), max_size=8))
def test_a_run_never_reaches_over_the_end_of_its_array(arrays: list[Any]) -> None:
    assert pack_arrays(arrays) == [pack_arrays([array])[0] for array in arrays]


EDGES = st.sampled_from([0, 1, COUNTED_PAGES - 3, COUNTED_PAGES, 2**31 - 9, -4, -(2**31)])
STRETCHES = st.lists(st.tuples(EDGES, st.integers(1, 6)), max_size=4)


@seeded
@given(st.lists(page_arrays() | STRETCHES.map(in_stretches), min_size=1, max_size=FEW_ARRAYS))
def test_few_arrays_are_packed_as_the_same_among_many(arrays: list[Any]) -> None:
    among_many = pack_arrays([*arrays, *[pages([1, 2, 4])] * FEW_ARRAYS])
    assert pack_arrays(arrays) == among_many[: len(arrays)]


@pytest.mark.parametrize(
    "values",
    [[2**31], [-(2**31) - 1], [2**31 - 2, 2**31 - 1, 2**31], [0, 9, 2**31], [5, 6, 7, 2**31 - 1, 2**31]],
)
@pytest.mark.parametrize("others", [0, FEW_ARRAYS])
def test_a_page_outside_int32_is_refused_whichever_way_it_is_packed(values: list[int], others: int) -> None:
    with pytest.raises(JournalError, match="outside int32"):
        pack_together([pages([3]), wide_pages(values), *[pages([1])] * others])


@seeded
@given(st.lists(page_arrays() | STRETCHES.map(in_stretches), min_size=1, max_size=2 * FEW_ARRAYS))
def test_pages_of_any_width_are_packed_as_int32_is(arrays: list[Any]) -> None:
    packed = pack_arrays([array.astype(np.int32) for array in arrays])
    for dtype in ("i8", ">i4", ">i8"):
        assert pack_arrays([array.astype(dtype) for array in arrays]) == packed
    mixed = [array.astype(dtype) for array, dtype in zip(arrays, itertools.cycle(["i4", "i8", ">i4"]))]
    assert pack_arrays(mixed) == packed


@pytest.mark.parametrize("others", [0, FEW_ARRAYS])
@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ([2**31 - 1, -(2**31)], 0),
        ([2**31 - 2, 2**31 - 1, -(2**31), 1 - 2**31], 0),
        ([2**31 - 5, 2**31 - 4, 2**31 - 3, 2**31 - 2, 2**31 - 1], 1),
        ([*range(2**31 - 9, 2**31), *range(-(2**31), 9 - 2**31)], 2),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_no_run_reaches_from_the_last_int32_to_the_first(
    dtype: Any, values: list[int], runs: int, others: int
) -> None:
    arrays = [np.array(values, dtype), *[pages([1])] * others]
    elements, found, data = pack_arrays(arrays)[0]
    assert (elements, found) == (len(values), runs)
    assert unpack_array([elements, found], data, 0).tolist() == values


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_narrow_pages_are_packed_without_a_wrap(dtype: Any) -> None:
    last = np.iinfo(dtype).max
    values = [last - 2, last - 1, last, -last - 1, -last]
    elements, runs, data = pack_arrays([np.array(values, dtype)])[0]
    assert unpack_array([elements, runs], data, 0).tolist() == values


def test_decoded_arrays_are_read_only_int32() -> None:
    stored = encode(LEAF)
    leaf: Any = decode(stored.kind, stored.version, stored.payload, stored.blob)
    for array in (leaf.full_pages, leaf.swa_pages):
        assert array.dtype == np.int32
        assert not array.flags.writeable


@pytest.mark.parametrize(
    "array",
    [wide_pages([2**31]), wide_pages([-(2**31) - 1]), np.array([[1]]), np.array([1.0]), [1, 2]],
    ids=["above int32", "below int32", "two dimensions", "floats", "a list"],
)
def test_an_array_that_cannot_be_stored_is_refused(array: Any) -> None:
    with pytest.raises(JournalError):
        encode(NodeDeleted(NodeId(1), None, Cause.CAPACITY, array, None, None))


def test_checksums_are_stored_as_docs_format_says() -> None:
    event = KvFingerprinted(
        NodeId(7), FingerprintReason.LOCKED, pages([5, 6, 7]), sums(1, 2**64 - 1, 3), sums(4, 5, 6)
    )
    stored = encode(event)
    assert stored.payload == ('{"full_pages":[3,1],"full_sums":3,"node":7,"reason":"locked","swa_sums":3}')
    assert (
        stored.blob
        == np.array([5, 3], "<i4").tobytes() + np.array([1, 2**64 - 1, 3, 4, 5, 6], "<u8").tobytes()
    )


@pytest.mark.parametrize(
    "wrong",
    [np.array([1]), np.array([[1]], np.uint64), np.array([1], np.uint32), np.array([1.0]), [1], None, b""],
    ids=["signed", "two dimensions", "narrow", "floats", "a list", "nothing", "bytes"],
)
def test_checksums_that_cannot_be_stored_are_refused(wrong: Any) -> None:
    with pytest.raises(JournalError):
        encode(KvFingerprinted(NodeId(1), FingerprintReason.LOCKED, pages([1]), wrong, None))


@pytest.mark.parametrize(
    "event",
    [
        "no event",
        Evicted(1.5, 0, 0, 0),  # type: ignore[arg-type]
        Evicted(None, 0, 0, 0),  # type: ignore[arg-type]
        NodeDeleted(NodeId(1), None, "hunger", pages([1]), None, None),  # type: ignore[arg-type]
        NodeTouched((NodeId(1), None), 1),  # type: ignore[arg-type]
        EVENTS["request_closed"](5, Cause.FINISH),
        EVENTS["request_closed"]("\ud800", Cause.FINISH),
    ],
)
def test_a_value_of_another_type_is_refused_when_it_is_encoded(event: Any) -> None:
    with pytest.raises(JournalError):
        encode(event)


def _leaf(**changes: Any) -> str:
    fields = json.loads(encode(LEAF).payload)
    fields.update(changes)
    return json.dumps({name: value for name, value in fields.items() if value is not ...})


@pytest.mark.parametrize(
    ("kind", "version", "payload", "blob", "said"),
    [
        ("leaf_made", 1, _leaf(), None, "unknown"),
        ("node_created", 2, _leaf(), None, "version"),
        ("node_created", 1, _leaf(stamp=...), None, "without stamp"),
        ("node_created", 1, _leaf(colour=1), None, "unknown fields colour"),
        ("node_created", 1, "[]", None, "list"),
        ("node_created", 1, "{", None, "no JSON"),
        ("node_created", 1, _leaf(stamp=True), None, "integer"),
        ("node_created", 1, _leaf(stamp=1.0), None, "integer"),
        ("node_created", 1, _leaf(stamp=2**63), None, "integer"),
        ("node_created", 1, _leaf(stamp=None), None, "integer"),
        ("node_created", 1, _leaf(namespace=None), None, "str"),
        ("node_created", 1, _leaf(full_origin=None), None, "origin"),
        ("node_created", 1, _leaf(full_origin=["r1"]), None, "origin"),
        ("node_created", 1, _leaf(full_pages=None), None, "array"),
        ("node_created", 1, _leaf(full_pages=[4]), None, "array"),
        ("node_created", 1, _leaf(full_pages=[5, 1]), None, "runs"),
        ("node_created", 1, _leaf(full_pages=[2**40, 1]), None, "array"),
        ("node_created", 1, _leaf(full_pages=[4, 5]), None, "array"),
        ("node_created", 1, _leaf(full_pages=[4, True]), None, "array"),
        ("node_created", 1, _leaf(swa_pages=None), None, "directory"),
        ("node_created", 1, _leaf(tokens=-8), None, "bytes"),
        ("node_created", 1, _leaf(tokens=12), None, "ends at byte"),
        ("node_created", 1, _leaf(tokens=6), None, "bytes"),
        ("node_created", 1, _leaf(), encode(LEAF).blob + b"\x00", "directory"),
        ("node_created", 1, _leaf(), encode(LEAF).blob[:-1], "ends at byte"),
        ("node_created", 1, _leaf(), "text", "no bytes"),
        ("evicted", 1, encode(Evicted(1, 2, 3, 4)).payload, b"\x00", "without arrays"),
        ("request_closed", 1, '{"reason":"hunger","request_id":"r"}', b"", "Cause"),
        ("node_touched", 1, '{"first_stamp":1,"nodes":5}', b"", "list"),
    ],
)
def test_what_no_encoder_wrote_is_refused_in_a_sentence(
    kind: str, version: int, payload: str, blob: Any, said: str
) -> None:
    with pytest.raises(JournalFormatError, match=said):
        decode(kind, version, payload, encode(LEAF).blob if blob is None else blob)
