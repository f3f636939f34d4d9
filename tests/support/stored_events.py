"""Events of every kind for tests of the journal: drawn from the vocabulary's type hints, and fixed ones.

Nothing here makes sense as the life of a cache: these events only have the right types.
"""

import dataclasses
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from kvledger.core import events as vocabulary
from kvledger.core.events import EVENTS, Event, Origin
from kvledger.core.ids import NodeId, RequestId
from kvledger.core.sinks import TransactionRecord

seeded = settings(derandomize=True, deadline=None, max_examples=40)
"""The same examples in every run, however slow the machine."""

INT64 = st.integers(-(2**63), 2**63 - 1)
# Half a surrogate pair and a zero are no text that every database's column can hold.
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def pages(values: Any) -> vocabulary.Pages:
    """A read-only int32 array, as events hold it."""
    array = np.array(values, dtype=np.int32)
    array.setflags(write=False)
    return array


def wide_pages(values: Any) -> Any:
    """The same as int64, as a foreign writer of events may give it: any value fits."""
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array


@st.composite
def page_arrays(draw: st.DrawFn) -> vocabulary.Pages:
    """Arrays made of a few runs, rising and falling, single values and neighbours among them."""
    runs = draw(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 40), st.integers(0, 39)), max_size=5))
    return pages([start + i for start, length in runs for i in range(length)])


def sums(*values: int) -> vocabulary.Sums:
    """Read-only checksums, as events hold them."""
    array = np.array(values, dtype=np.uint64)
    array.setflags(write=False)
    return array


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """What a field with this type hint can hold."""
    if get_origin(hint) in (Union, UnionType):
        (arm,) = [arm for arm in get_args(hint) if arm is not NoneType]
        return st.none() | values_of(arm)
    hint = getattr(hint, "__supertype__", hint)
    if hint == vocabulary.Sums:
        return st.lists(st.integers(0, 2**64 - 1), max_size=4).map(lambda values: sums(*values))
    if get_origin(hint) is np.ndarray:
        return page_arrays()
    if get_origin(hint) is tuple:
        item, *rest = get_args(hint)
        if rest == [Ellipsis]:
            return st.lists(values_of(item), max_size=4).map(tuple)
        return st.tuples(values_of(item), *[values_of(other) for other in rest])
    if get_origin(hint) is dict:
        value = get_args(hint)[1]
        json_value = (
            st.none() | st.booleans() | INT64 | NAMES | st.floats(allow_nan=False, allow_infinity=False)
        )
        return st.dictionaries(NAMES, INT64 if value is int else json_value, max_size=4)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    if hint is Origin:
        return st.builds(Origin, request_id=st.none() | NAMES, epoch=INT64)
    simple = {
        int: INT64,
        bool: st.booleans(),
        str: NAMES,
        bytes: st.binary(max_size=10).map(lambda half: half * 4),
    }
    return simple[hint]


def events_of(kind: str) -> st.SearchStrategy[Any]:
    """Any event of this kind."""
    event_class: Any = EVENTS[kind]
    hints = get_type_hints(event_class, vars(vocabulary))
    fields = {field.name: values_of(hints[field.name]) for field in dataclasses.fields(event_class)}
    return st.builds(event_class, **fields)


def any_events() -> st.SearchStrategy[Any]:
    """Any event of any kind."""
    return st.sampled_from(sorted(EVENTS)).flatmap(events_of)


@st.composite
def transactions(draw: st.DrawFn) -> TransactionRecord:
    """Any transaction of up to five events, some of them undone."""
    events = draw(st.lists(any_events(), max_size=5))
    undone = draw(st.lists(st.integers(0, 1), min_size=len(events), max_size=len(events)))
    return TransactionRecord(
        op=draw(NAMES),
        request_id=draw(st.none() | NAMES.map(RequestId)),
        events=events,
        undone=bytearray(undone),
        rolled_back=draw(st.booleans()),
        reason=draw(NAMES),
    )


def facts(event: Event) -> tuple[Any, ...]:
    """An event as values that compare: events themselves are equal only to themselves."""
    found: list[Any] = [event.kind]
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if isinstance(value, np.ndarray):
            found.append(("array", value.dtype.kind, value.tolist()))
        else:
            found.append((type(value), value))
    return tuple(found)


def record(*events: Event, op: str = "op", request_id: Any = None, **more: Any) -> TransactionRecord:
    """A transaction of these events, none of them undone."""
    return TransactionRecord(op, request_id, list(events), bytearray(len(events)), **more)


def opened(**config: Any) -> Event:
    """A `cache_opened` event."""
    return vocabulary.CacheOpened(1, 4, 64, 64, "remap", {"page_size": 1, **config})


def allocated(owner: Any, *numbers: int) -> Event:
    """A `pages_allocated` event of these pages, each with its own number as peer."""
    return vocabulary.PagesAllocated(owner, pages(numbers), pages(numbers), None)


def short_story() -> list[TransactionRecord]:
    """Six transactions that use every column of every table, an empty and a rolled back one among them."""
    split = vocabulary.NodeSplit(NodeId(3), NodeId(4), 2, b"\x01\x00\x00\x00")
    undone = record(split, allocated(None, 9), op="insert", rolled_back=True, reason="refused")
    undone.undone[:] = b"\x01\x01"
    return [
        record(opened(), op="open"),
        record(allocated("r1", 1, 2, 3), allocated("r1", 7), op="extend", request_id="r1"),
        record(op="release"),
        undone,
        record(split, allocated("r2", 5, 6), op="extend", request_id="r2"),
        record(vocabulary.Evicted(1, 2, 3, 4), op="evict"),
    ]
