"""The compiled ways to write and read events: canonical, and of one mind with the careful ones."""

import dataclasses
import json
from enum import StrEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import EVENTS, Origin
from kvledger.journal import codec
from kvledger.journal.arrays import (
    COUNTED_PAGES,
    pack_arrays,
    pack_together,
    packed_size,
    quick_array,
    unpack_array,
)
from kvledger.journal.codec import decode, encode
from kvledger.journal.fields import canonical_json
from tests.support.stored_events import events_of, facts, page_arrays, pages, seeded

KINDS = sorted(EVENTS)


def in_json(value: Any) -> Any:
    """A field's value as docs/format.md says that it stands in the payload."""
    if isinstance(value, np.ndarray):
        if value.dtype == np.uint64:
            return len(value)
        elements, runs, _ = pack_arrays([value])[0]
        return [elements, runs]
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Origin):
        return [value.request_id, value.epoch]
    if isinstance(value, tuple):
        return [in_json(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def kindred(value: Any) -> Any:
    """The same value in types that no cache uses."""
    if type(value) is int:
        return np.int64(value)
    if type(value) is bool:
        return np.bool_(value)
    if isinstance(value, np.ndarray):
        return value.astype(">u8" if value.dtype == np.uint64 else np.int64)
    if isinstance(value, Origin):
        return Origin(value.request_id, kindred(value.epoch))
    if isinstance(value, tuple):
        return [kindred(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def fields_of(event: Any) -> dict[str, Any]:
    return {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}


@pytest.mark.parametrize("kind", KINDS)
@seeded
@given(data=st.data())
def test_a_payload_is_the_canonical_text_of_its_fields(kind: str, data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    stands = {name: in_json(value) for name, value in fields_of(event).items()}
    assert encode(event).payload == canonical_json(stands)


@pytest.mark.parametrize("kind", KINDS)
@seeded
@given(data=st.data())
def test_the_careful_way_writes_what_the_quick_one_does(kind: str, data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    # An object of a configuration is JSON already, and counters are checked by their reader alone.
    other = {
        name: value if isinstance(value, dict) else kindred(value) for name, value in fields_of(event).items()
    }
    again = encode(type(event)(**other))
    assert again == encode(event)
    assert type(again.node) in (int, type(None))


@pytest.mark.parametrize("kind", KINDS)
@seeded
@given(data=st.data())
def test_the_quick_way_reads_whatever_was_written(kind: str, data: st.DataObject) -> None:
    event = data.draw(events_of(kind))
    stored = encode(event)
    plan = codec._PLANS[kind]
    quick = plan.decode(stored.payload, stored.blob)
    careful = codec._decode_carefully(plan, stored.version, stored.payload, stored.blob)
    assert facts(quick) == facts(careful) == facts(event)
    for name, value in fields_of(quick).items():
        if isinstance(value, np.ndarray):
            assert value.dtype == (np.uint64 if name.endswith("_sums") else np.int32)
            assert value.flags.aligned
            assert not value.flags.writeable


JUNK: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", KINDS)
@seeded
@given(data=st.data())
def test_damage_is_refused_in_the_same_words_whichever_way_it_comes(kind: str, data: st.DataObject) -> None:
    stored = encode(data.draw(events_of(kind)))
    payload, blob = json.loads(stored.payload), stored.blob
    name = data.draw(st.sampled_from(sorted(payload)))
    damage = data.draw(st.sampled_from(["value", "missing", "surplus", "number", "blob"]))
    if damage == "value":
        payload[name] = data.draw(JUNK)
    elif damage == "missing":
        del payload[name]
    elif damage == "surplus":
        payload[name + "s"] = payload[name]
    elif damage == "number" and isinstance(payload[name], list) and payload[name]:
        payload[name][data.draw(st.integers(0, len(payload[name]) - 1))] = data.draw(JUNK)
    else:
        blob = data.draw(st.binary(max_size=16))
    text = json.dumps(payload)
    found: list[Any] = []
    for read in (decode, lambda kind, *cells: codec._decode_carefully(codec._PLANS[kind], *cells)):
        try:
            found.append(facts(read(kind, stored.version, text, blob)))
        except JournalFormatError as error:
            found.append(str(error))
    # NaN is unequal to itself; as text it is not.
    assert str(found[0]) == str(found[1])


@seeded
@given(
    page_arrays() | st.integers(COUNTED_PAGES - 9, COUNTED_PAGES + 9).map(lambda n: pages(range(n, n + 9)))
)
def test_an_array_reads_the_same_whichever_way_it_is_read(array: Any) -> None:
    elements, runs, ends, data = pack_together([array])
    entry = [elements[0], runs[0]]
    values, end = quick_array(entry[0], entry[1], b"pad " + data, 4)
    assert values is not None
    assert (values.tolist(), end) == (array.tolist(), 4 + ends[1])
    again = unpack_array(entry, b"pads " + data, 5)
    assert values.tolist() == again.tolist()
    for read in (values, again):
        assert read.dtype == np.int32
        assert read.flags.aligned
        assert not read.flags.writeable


def test_an_array_keeps_nothing_else_of_the_blob() -> None:
    plain, many = pages([9, 3, 7]), pages(range(0, 2_000, 2))
    elements, runs, ends, data = pack_together([many, plain])
    assert runs == [0, 0]
    blob = b"pads " + data
    for at, begin in enumerate(ends[:-1]):
        for read in (
            quick_array(elements[at], 0, blob, 5 + begin)[0],
            unpack_array([elements[at], 0], blob, 5 + begin),
        ):
            assert read is not None
            kept: Any = read if read.base is None else read.base
            assert memoryview(kept).nbytes == read.nbytes


RUNS = st.lists(st.tuples(st.integers(-3, 9), st.integers(-2, 4)), max_size=4)


@seeded
@given(st.integers(-1, 12), st.integers(-1, 4), RUNS)
def test_runs_that_do_not_add_up_are_never_read_quickly(elements: int, runs: int, pairs: Any) -> None:
    entry, data = [elements, runs], np.array(pairs, dtype="<i4").tobytes()
    quick, _ = quick_array(entry[0], entry[1], data, 0) if _reads(entry, data) else _refused(entry, data)
    if quick is not None:
        assert quick.tolist() == unpack_array(entry, data, 0).tolist()


def _reads(entry: list[int], data: bytes) -> bool:
    try:
        if packed_size(entry) > len(data):
            return False
        unpack_array(entry, data, 0)
    except JournalError:
        return False
    return True


def _refused(entry: list[int], data: bytes) -> tuple[None, int]:
    """The quick way must refuse too, by None or by the careful way's own error."""
    try:
        values, _ = quick_array(entry[0], entry[1], data, 0)
    except JournalFormatError:
        values = None
    assert values is None
    return None, 0
