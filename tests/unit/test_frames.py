"""A transaction that is handed over to the process that stores it arrives as it was handed over."""

import marshal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core import COMPILED
from kvledger.core.errors import JournalError
from kvledger.core.events import (
    EVENTS,
    CacheOpened,
    CallIgnored,
    Cause,
    Evicted,
    FingerprintReason,
    KvFingerprinted,
    LockReleased,
    NodeCreated,
    NodeDeleted,
    NodeTouched,
    Origin,
    PagesAllocated,
    PrefixInserted,
    RequestClosed,
)
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.apart.flat import add
from kvledger.journal.apart.frames import BATCH, FLUSH, frame, new_batch, unpack
from kvledger.journal.apart.packed import FEW_ARRAY_BYTES, FEW_TOKEN_BYTES
from kvledger.journal.apart.plans import HEADER, Piece
from kvledger.journal.codec import encode_all
from kvledger.journal.rows import Submission
from tests.support.stored_events import (
    allocated,
    any_events,
    events_of,
    facts,
    opened,
    pages,
    record,
    seeded,
    short_story,
    sums,
    transactions,
)


class Name(str):
    """A name that is not quite a str: some schedulers have such ones."""

    __slots__ = ()


def parts(pieces: list[Piece]) -> tuple[int, bytes]:
    """The form and the body of one frame, which is exactly as long as its header says."""
    data = b"".join(pieces)
    length, form = HEADER.unpack_from(data)
    body = data[HEADER.size :]
    assert len(body) == length
    return form, body


def packed(batch: list[Submission]) -> list[Piece]:
    """One frame of a batch."""
    waiting = new_batch()
    for item in batch:
        add(waiting, *item)
    assert waiting.count == len(batch)
    return waiting.take()


def through(batch: list[Submission], *, plain: bool = True) -> list[Submission]:
    """What arrives of a batch, the first of which went `plain` or pickled."""
    form, body = parts(packed(batch))
    assert form == BATCH
    for value in marshal.loads(body)[:1]:
        assert (type(value) is list) == plain
    return unpack(body)


def one(*events: Any) -> Submission:
    return Submission(record(*events), 5, 6)


def only_event(event: Any, *, plain: bool = True) -> Any:
    """What arrives of one event, alone in its transaction."""
    ((arrived, _, _),) = through([one(event)], plain=plain)
    (found,) = arrived.events
    assert type(found) is type(event)
    return found


def told(item: Submission) -> tuple[Any, ...]:
    """A submission as values that compare, without its events."""
    made = item.record
    return (
        (made.op, made.request_id, made.undone, type(made.undone), made.rolled_back, made.reason),
        (item.time_us, item.duration_us, type(item)),
    )


def arrays_of(event: Any) -> list[np.ndarray]:
    values = [getattr(event, name) for name in event.__slots__]
    return [value for value in values if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("kind", sorted(EVENTS))
@seeded
@given(data=st.data())
def test_an_event_of_every_kind_arrives_as_it_went_and_would_be_stored_the_same(
    kind: str, data: st.DataObject
) -> None:
    event = data.draw(events_of(kind))
    arrived = only_event(event)
    assert facts(arrived) == facts(event)
    assert encode_all([arrived]) == encode_all([event])
    for array in arrays_of(arrived):
        assert array.dtype in (np.int32, np.uint64)
        assert not array.flags.writeable


@seeded
@given(
    st.lists(
        st.tuples(transactions(), st.integers(0, 2**62), st.none() | st.integers(0, 2**40)),
        min_size=1,
        max_size=3,
    )
)
def test_a_batch_arrives_in_order_with_its_names_marks_reasons_and_times(batch: list[Any]) -> None:
    sent = [Submission(*each) for each in batch]
    arrived = through(sent)
    assert [told(item) for item in arrived] == [told(item) for item in sent]
    for before, after in zip(sent, arrived, strict=True):
        assert encode_all(after.record.events) == encode_all(before.record.events)


@seeded
@given(st.lists(any_events(), max_size=4))
def test_both_forms_carry_the_same(events: list[Any]) -> None:
    odd = Submission(record(*events, op="op"), 1, None)
    odd.record.rolled_back = 0  # type: ignore[assignment]
    (plain,) = through([Submission(record(*events), 1, None)])
    (pickled,) = through([odd], plain=False)
    assert [facts(event) for event in pickled.record.events] == [
        facts(event) for event in plain.record.events
    ]


def test_what_was_handed_over_may_change_afterwards() -> None:
    full = np.arange(1, 9, dtype=np.int32)
    item = one(PagesAllocated(None, full, full, None))
    form, body = parts(packed([item]))
    full[:] = 0
    item.record.undone[0] = 1
    item.record.events.clear()
    assert form == BATCH
    (arrived,) = unpack(body)
    assert arrived.record.undone == b"\x00"
    (event,) = arrived.record.events
    assert isinstance(event, PagesAllocated)
    assert event.full_pages.tolist() == list(range(1, 9))


def test_names_and_reasons_that_are_no_unicode_arrive() -> None:
    sent = Submission(record(op="a\0", reason="half a pair: \ud800", request_id="\udfff"), 1, None)
    assert [told(item) for item in through([sent])] == [told(sent)]


def test_a_transaction_without_one_mark_per_event_is_for_the_other_end_to_refuse() -> None:
    wrong = record(Evicted(1, 2, 3, 4), Evicted(1, 2, 3, 4))
    wrong.undone = bytearray(1)
    ((arrived, _, _),) = through([Submission(wrong, 1, None)])
    assert (len(arrived.events), arrived.undone) == (2, bytearray(1))


def test_no_transactions_and_no_body_are_frames_too() -> None:
    assert through([]) == []
    assert parts(frame(FLUSH)) == (FLUSH, b"")


FEW = FEW_ARRAY_BYTES // 4
MANY = 3 * FEW

LONG = {
    "few": list(range(FEW)),
    "one more": list(range(FEW + 1)),
    "one run": list(range(1, MANY + 1)),
    "falling": list(range(MANY, 0, -1)),
    "up to the end of int32": list(range(2**31 - MANY, 2**31)),
    "the ends of int32": [-(2**31), 2**31 - 1] * MANY,
}


@pytest.mark.parametrize("values", LONG.values(), ids=LONG.keys())
def test_a_long_array_arrives_whatever_form_it_takes(values: list[int]) -> None:
    sent = NodeDeleted(NodeId(1), None, Cause.CAPACITY, pages(values), pages(values[::-1]), None)
    arrived = only_event(sent)
    for array, went in ((arrived.full_pages, values), (arrived.swa_pages, values[::-1])):
        assert array.dtype == np.int32
        assert not array.flags.writeable
        assert array.tolist() == went


@pytest.mark.parametrize(
    "size", [0, 1, FEW_TOKEN_BYTES - 1, FEW_TOKEN_BYTES, FEW_TOKEN_BYTES + 1, 100 * FEW_TOKEN_BYTES]
)
def test_tokens_of_any_length_arrive_among_others(size: int) -> None:
    tokens = [bytes([fill]) * size for fill in (1, 2)]
    full = np.arange(MANY, dtype=np.int32)
    first, second = through(
        [one(leaf(tokens=tokens[0]), allocated(None, *full)), one(leaf(tokens=tokens[1]))]
    )
    arrived: list[Any] = [*first.record.events, *second.record.events]
    assert [arrived[0].tokens, arrived[2].tokens] == tokens
    assert arrived[1].full_pages.tolist() == full.tolist()


def test_arrays_that_do_not_lie_in_one_piece_arrive() -> None:
    every_other = np.arange(2 * MANY, dtype=np.int32)[::2]
    backwards = np.arange(9, dtype=np.int32)[::-1]
    arrived = only_event(PagesAllocated(None, every_other, backwards, None))
    assert arrived.full_pages.tolist() == list(range(0, 2 * MANY, 2))
    assert arrived.swa_pages.tolist() == list(range(8, -1, -1))


LEAF: dict[str, Any] = {
    "node": NodeId(7),
    "parent": None,
    "namespace": "n",
    "start": 4,
    "tokens": b"\x01\x00\x00\x00",
    "full_pages": pages([5]),
    "swa_pages": None,
    "stamp": 11,
    "full_origin": Origin(RequestId("r1"), 2),
    "swa_origin": None,
}


def leaf(**changes: Any) -> Any:
    return odd(NodeCreated, **(LEAF | changes))


def odd(event_class: Any, *values: Any, **named: Any) -> Any:
    """An event that holds what it should not. Compiled, most classes refuse it when it is made."""
    try:
        return event_class(*values, **named)
    except TypeError:
        assert COMPILED
        pytest.skip("a compiled event holds no such value")


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "a numpy integer": (lambda: odd(Evicted, np.int64(3), 0, 0, 0), "asked_full"),
    "a bool for an int": (lambda: odd(Evicted, True, 0, 0, 0), "asked_full"),
    "an int for a bool": (lambda: odd(LockReleased, LeaseId(1), None, None, 1, False), "swa_was_held"),
    "a float for an int": (lambda: odd(Evicted, 1.5, 0, 0, 0), "asked_full"),
    "None for an int": (lambda: odd(Evicted, None, 0, 0, 0), "asked_full"),
    "a kind of str": (lambda: leaf(namespace=Name("n")), "namespace"),
    "a kind of str that may be missing": (
        lambda: CallIgnored("free", None, RequestId(Name("r")), 1),
        "request_id",
    ),
    "text for a cause": (lambda: odd(RequestClosed, RequestId("r"), "finish"), "reason"),
    "bytes that can change": (lambda: leaf(tokens=bytearray(b"abcd")), "tokens"),
    "a list for a tuple": (lambda: odd(NodeTouched, [NodeId(1)], 1), "nodes"),
    "a tuple for an origin": (lambda: leaf(full_origin=("r1", 2)), "full_origin"),
}


@pytest.mark.parametrize(("make", "name"), ODD.values(), ids=ODD.keys())
def test_a_value_of_another_type_arrives_as_it_was(make: Callable[[], Any], name: str) -> None:
    event = make()
    sent = getattr(event, name)
    # A compiled event may hold the plain value instead, which is what arrives then.
    arrived = getattr(only_event(event, plain=type(sent) is int and name == "asked_full"), name)
    assert (type(arrived), arrived) == (type(sent), sent)


@pytest.mark.parametrize(
    "values",
    [(Name("r"), 1), ("r", np.int64(1)), (None, True)],
    ids=["a kind of str", "a numpy integer", "a bool"],
)
def test_an_origin_of_other_types_arrives_as_it_was(values: Any) -> None:
    origin = odd(Origin, *values)
    held = (origin.request_id, origin.epoch)
    arrived = only_event(leaf(swa_origin=origin), plain=list(map(type, held)) == [type(None), int]).swa_origin
    assert type(arrived) is Origin
    for sent, got in zip(held, (arrived.request_id, arrived.epoch), strict=True):
        assert (type(got), got) == (type(sent), sent)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(3, dtype=np.int64),
        np.arange(2**40, 2**40 + MANY, dtype=np.int64),
        np.arange(3, dtype=np.int16),
        np.arange(3, dtype=">i4"),
        np.arange(3, dtype=np.float64),
        np.arange(4, dtype=np.int32).reshape(2, 2),
        np.array(5),
        np.arange(3, dtype=np.int32).view(np.ma.MaskedArray),
    ],
    ids=[
        "int64",
        "many of int64",
        "int16",
        "the other order of bytes",
        "floats",
        "two dimensions",
        "none",
        "a kind of array",
    ],
)
def test_an_array_of_another_kind_arrives_as_it_was(array: Any) -> None:
    arrived = only_event(PagesAllocated(None, array, pages([1]), None), plain=False).full_pages
    assert (type(arrived), arrived.dtype, arrived.shape) == (type(array), array.dtype, array.shape)
    assert arrived.tolist() == array.tolist()


def test_checksums_arrive_unsigned_and_other_numbers_as_they_were() -> None:
    def fingerprinted(full: Any) -> Any:
        return KvFingerprinted(NodeId(1), FingerprintReason.LOCKED, pages([1, 2]), full, None)

    arrived = only_event(fingerprinted(sums(2**64 - 1, 0)))
    assert (arrived.full_sums.dtype, arrived.full_sums.tolist()) == (np.uint64, [2**64 - 1, 0])
    assert arrived.swa_sums is None
    signed = only_event(fingerprinted(np.array([1, 2], dtype=np.int64)), plain=False)
    assert (signed.full_sums.dtype, signed.full_sums.tolist()) == (np.int64, [1, 2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("request_id", 5),
        ("rolled_back", 1),
        ("undone", b"\x00"),
        ("undone", [0]),
    ],
)
def test_what_a_transaction_holds_of_another_type_arrives_as_it_was(name: str, value: Any) -> None:
    sent = record(Evicted(1, 2, 3, 4))
    setattr(sent, name, value)
    ((arrived, _, _),) = through([Submission(sent, 1, None)], plain=False)
    found = getattr(arrived, name)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("name", "value"), [("op", "op"), ("request_id", "r1"), ("reason", "why")])
def test_a_text_of_a_class_of_the_callers_own_arrives_as_a_text(name: str, value: str) -> None:
    sent = record(Evicted(1, 2, 3, 4))
    setattr(sent, name, Name(value))
    ((arrived, _, _),) = through([Submission(sent, 1, None)])
    found = getattr(arrived, name)
    assert (type(found), found) == (str, value)


def test_what_is_inside_of_containers_may_be_of_any_type() -> None:
    config = {"a": Name("b"), "c": [1.5, None, {"d": np.int64(2)}], "e": (1, 2)}
    arrived = only_event(opened(**config)).config
    assert arrived == {"page_size": 1, **config}
    assert [type(arrived["a"]), type(arrived["c"][2]["d"]), type(arrived["e"])] == [Name, np.int64, tuple]
    nodes = (NodeId(1), np.int64(2), True)
    touched = only_event(NodeTouched(nodes, 1)).nodes  # type: ignore[arg-type]
    assert [(type(node), node) for node in touched] == [(int, 1), (np.int64, 2), (bool, True)]


def test_an_odd_transaction_among_others_arrives_in_its_place() -> None:
    story = [Submission(each, number, None) for number, each in enumerate(short_story())]
    odd = Submission(record(Evicted(1, 2, 3, 4), allocated(None, 1)), 9, 9)
    odd.record.rolled_back = 0  # type: ignore[assignment]
    batch = [*story, odd, *story, odd]
    arrived = through(batch)
    assert [told(item) for item in arrived] == [told(item) for item in batch]
    for before, after in zip(batch, arrived, strict=True):
        assert encode_all(after.record.events) == encode_all(before.record.events)


def test_what_is_taken_back_or_refused_leaves_the_rest_as_it_was() -> None:
    waiting = new_batch()
    assert not waiting.take_back()
    full = np.arange(0, 2 * MANY, 2, dtype=np.int32)
    first = one(PagesAllocated(None, full, full, None))
    long = leaf(tokens=bytes(2 * FEW_TOKEN_BYTES))
    add(waiting, *first)
    for taken_back in (
        one(long, PagesAllocated(None, full, full, None)),
        one(PagesAllocated(None, full.astype(np.int64), full, None), long),
    ):
        add(waiting, *taken_back)
        assert (waiting.count, waiting.events, waiting.added, waiting.accepted) == (2, 3, 2, 3)
        assert waiting.take_back()
        assert (waiting.count, waiting.events, waiting.added, waiting.accepted) == (1, 1, 1, 1)
    with pytest.raises(JournalError):
        add(waiting, *one(long, NodeTouched((threading.Lock(),), 1)))  # type: ignore[arg-type]
    last = one(leaf(tokens=b"12" * FEW_TOKEN_BYTES))
    add(waiting, *last)
    assert (waiting.count, waiting.events, waiting.frames) == (2, 2, 0)
    _, body = parts(waiting.take())
    for before, after in zip((first, last), unpack(body), strict=True):
        assert encode_all(after.record.events) == encode_all(before.record.events)
    assert not waiting.take_back(), "what was handed over is gone"
    assert (waiting.count, waiting.events, waiting.frames) == (0, 0, 1)
    assert (waiting.added, waiting.accepted) == (2, 2)


def test_what_is_no_event_arrives_for_the_encoder_to_refuse() -> None:
    ((arrived, _, _),) = through([one("no event")], plain=False)
    found: list[Any] = list(arrived.events)
    assert found == ["no event"]
    with pytest.raises(JournalError):
        encode_all(arrived.events)


def inserted(**changes: Any) -> Any:
    fields: dict[str, Any] = dict.fromkeys(PrefixInserted.__slots__, 0)
    texts_and_ranges = {"namespace": "n", "request_id": None, "adopted_full": (), "adopted_swa": ()}
    return PrefixInserted(**(fields | texts_and_ranges | changes))


CANNOT: dict[str, Any] = {
    "a lock": threading.Lock(),
    "a function without a name": lambda: 1,
    "bytes that belong to somebody": memoryview(b"abcd"),
}


@pytest.mark.parametrize("value", CANNOT.values(), ids=CANNOT.keys())
@pytest.mark.parametrize(
    "within",
    [
        lambda value: odd(Evicted, value, 0, 0, 0),
        lambda value: leaf(tokens=value),
        lambda value: CacheOpened(1, 4, 64, 64, "remap", {"a": value}),
        lambda value: NodeTouched((value,), 1),
        lambda value: inserted(adopted_full=((0, value),)),
    ],
    ids=["a number", "bytes", "a setting", "a node among many", "a range among many"],
)
def test_what_cannot_be_pickled_is_refused_in_a_sentence(value: Any, within: Any) -> None:
    with pytest.raises(JournalError, match="cannot be handed to the process that stores it"):
        packed([one(Evicted(1, 2, 3, 4)), one(within(value))])


def test_a_setting_that_holds_itself_arrives_for_the_encoder_to_refuse() -> None:
    config: dict[str, Any] = {}
    config["again"] = config
    arrived = only_event(CacheOpened(1, 4, 64, 64, "remap", config)).config
    assert arrived["again"] is arrived


def test_an_object_nested_too_deep_to_pickle_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    try:
        with pytest.raises(JournalError, match="cannot be handed"):
            packed([one(CacheOpened(1, 4, 64, 64, "remap", {"deep": deep}))])
    finally:
        while deep:  # One by one: what is freed at once is freed as deep.
            deep = deep.pop()


def test_a_transaction_is_the_same_record_again() -> None:
    ((arrived, time_us, duration_us),) = through([one()])
    assert arrived == TransactionRecord("op", None, [], bytearray())
    assert (time_us, duration_us) == (5, 6)
