"""A batch makes the same bytes in Python and in C, and whatever array there is comes back out of them."""

import gc
import marshal
import sys
import weakref
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
    Evicted,
    FingerprintReason,
    KvFingerprinted,
    NodeSplit,
    NodeTouched,
    PagesAllocated,
)
from kvledger.core.ids import NodeId, RequestId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.apart import frames, packed, plans
from kvledger.journal.apart.flat import add
from kvledger.journal.apart.frames import BATCH, unpack
from kvledger.journal.apart.plans import HEADER
from kvledger.journal.apart.ring import COUNTERS, PUBLISHED, READ, RingReader
from tests.support.calls_when_pickled import Calls
from tests.support.source_of import source_of
from tests.support.stored_events import events_of, opened, pages, record, seeded, transactions

TWIN = source_of(packed)
MODULES = [pytest.param(TWIN, id="Python")]
if COMPILED:
    MODULES.append(pytest.param(packed, id="C"))

FIRST, LAST = -(2**31), 2**31 - 1
MANY, FEW = packed.MANY_ENTRIES, packed.FEW_ARRAY_BYTES // 4

WHOLE = np.arange(5 * FEW, dtype=np.int32)

ARRAYS: dict[str, Any] = {
    "none": pages([]),
    "one": pages([7]),
    "too few to look for runs": WHOLE[: MANY - 1],
    "one run": WHOLE[:MANY],
    "a long run": WHOLE,
    "a block": WHOLE[:257],
    "a run that ends with a block": np.concatenate([WHOLE[:257], WHOLE[:257]]),
    "a run that begins with the last entry": np.concatenate([WHOLE[:300], pages([5])]),
    "a run that ends with the first entry": np.concatenate([pages([5]), WHOLE[:300]]),
    "as many runs as may be": np.concatenate([WHOLE[:4]] * 100),
    "one run too many": np.concatenate([*[WHOLE[:4]] * 100, pages([9])]),
    "no run": WHOLE * 2,
    "the same again and again": np.zeros(FEW + 1, dtype=np.int32),
    "falling": WHOLE[::-1].copy(),
    "up to the last number": np.arange(LAST - 99, LAST, dtype=np.int32) + 1,
    "past the last number": np.concatenate(
        [np.arange(LAST - 99, LAST, dtype=np.int32) + 1, np.arange(FIRST, FIRST + 99, dtype=np.int32)]
    ),
    "both ends of the numbers": pages([FIRST, LAST] * FEW),
    "every other one": WHOLE[::2],
    "every other one, in a run": np.repeat(WHOLE, 2)[::2],
    "backwards": WHOLE[::-1],
    "backwards and few": WHOLE[9::-1],
    "not aligned": np.frombuffer(b"x" + WHOLE.tobytes(), dtype=np.uint8)[1:].view(np.int32),
    "read-only": np.frombuffer(WHOLE.tobytes(), dtype=np.int32),
}

OTHERS: dict[str, Any] = {
    "int64": WHOLE.astype(np.int64),
    "few of int64": np.arange(3, dtype=np.int64),
    "unsigned": WHOLE.astype(np.uint32),
    "sums": WHOLE.astype(np.uint64),
    "the other order of bytes": WHOLE.astype(">i4" if sys.byteorder == "little" else "<i4"),
    "two dimensions": WHOLE.reshape(5, -1),
    "no dimension": np.array(5),
    "a kind of array": WHOLE.view(np.recarray),
    "a list": [1, 2, 3],
}

SUMS: dict[str, Any] = {
    "few": np.array([2**64 - 1, 0], dtype=np.uint64),
    "past the last one": np.arange(2**64 - 50, 2**64 - 1, dtype=np.uint64) + np.uint64(1),
    "a run": np.arange(2**63 - 40, 2**63 + 40, dtype=np.uint64),
    "a long run": np.arange(2 * FEW, dtype=np.uint64),
    "any": np.arange(1, 2_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15),
    "every other one": np.arange(2 * FEW, dtype=np.uint64)[::2],
    "backwards": np.arange(2**64 - FEW, 2**64 - 1, dtype=np.uint64)[::-1],
    "not aligned": np.frombuffer(bytes(1) + bytes(range(80)), dtype=np.uint8)[1:].view(np.uint64),
}


def batch_of(module: Any) -> Any:
    return module.Batch(frames.PACKINGS, BATCH, TransactionRecord)


def made_of(module: Any, *records: Any) -> bytes:
    """The frame that transactions of exact types become."""
    batch = batch_of(module)
    for number, each in enumerate(records):
        assert batch.add(each, 2**40 + number, None if number % 2 else number)
    return b"".join(batch.take())


def both(*records: Any) -> bytes:
    """The same, whoever makes it."""
    made = {made_of(module.values[0], *records) for module in MODULES}
    (one,) = made
    return one


def arrived(made: bytes) -> list[Any]:
    return [event for item in unpack(made[HEADER.size :]) for event in item.record.events]


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_an_array_of_pages_arrives(array: Any) -> None:
    (event,) = arrived(both(record(PagesAllocated(RequestId("r"), array, array[:3], 5))))
    assert event.full_pages.dtype == np.int32
    assert not event.full_pages.flags.writeable
    assert event.full_pages.tolist() == array.tolist()
    assert event.swa_pages.tolist() == array[:3].tolist()


@pytest.mark.parametrize("array", SUMS.values(), ids=SUMS.keys())
def test_sums_arrive(array: Any) -> None:
    sent = KvFingerprinted(NodeId(1), FingerprintReason.LOCKED, pages([1]), array, None)
    (event,) = arrived(both(record(sent)))
    assert event.full_sums.dtype == np.uint64
    assert not event.full_sums.flags.writeable
    assert event.full_sums.tolist() == array.tolist()


def test_sums_that_follow_one_another_go_as_their_bytes() -> None:
    sent = KvFingerprinted(NodeId(1), FingerprintReason.LOCKED, pages([1]), SUMS["a long run"], None)
    assert SUMS["a long run"].tobytes() in both(record(sent))


@pytest.mark.parametrize("array", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("module", MODULES)
def test_what_is_no_such_array_is_not_taken(module: Any, array: Any) -> None:
    batch = batch_of(module)
    sent = record(Evicted(1, 2, 3, 4), PagesAllocated(None, array, pages([1]), None))
    assert not batch.add(sent, 1, None)
    assert (batch.count, batch.added, batch.events) == (0, 0, 0)


@pytest.mark.parametrize("array", [WHOLE, np.arange(3), np.arange(3, dtype=">u8"), [1, 2]])
@pytest.mark.parametrize("module", MODULES)
def test_what_are_no_sums_is_not_taken(module: Any, array: Any) -> None:
    batch = batch_of(module)
    sent = record(KvFingerprinted(NodeId(1), FingerprintReason.LOCKED, pages([1]), array, None))
    assert not batch.add(sent, 1, None)
    assert (batch.count, batch.added, batch.events) == (0, 0, 0)


@pytest.mark.parametrize("module", MODULES)
def test_runs_take_fewer_bytes(module: Any) -> None:
    def size(array: Any) -> int:
        return len(made_of(module, record(PagesAllocated(None, array, pages([1]), None))))

    assert size(WHOLE) < 200
    assert size(ARRAYS["past the last number"]) < 200
    assert size(ARRAYS["as many runs as may be"]) < size(ARRAYS["one run too many"]) * 0.6
    assert size(WHOLE * 2) > WHOLE.nbytes


@seeded
@given(st.lists(st.tuples(st.integers(FIRST, LAST), st.integers(1, 700)), min_size=1, max_size=12), st.data())
def test_arrays_of_any_runs_arrive(runs: list[tuple[int, int]], data: st.DataObject) -> None:
    parts = [np.uint32(first % 2**32) + np.arange(count, dtype=np.uint32) for first, count in runs]
    array = np.concatenate(parts).view(np.int32)[:: data.draw(st.sampled_from([1, 1, 1, -1, 2]))]
    (event,) = arrived(both(record(PagesAllocated(None, array, pages([1]), None))))
    assert event.full_pages.tolist() == array.tolist()


@seeded
@given(st.lists(transactions(), min_size=1, max_size=4))
def test_transactions_become_the_same_bytes(records: list[Any]) -> None:
    both(*records)


@pytest.mark.parametrize("kind", sorted(EVENTS))
@seeded
@given(data=st.data())
def test_events_of_every_kind_become_the_same_bytes(kind: str, data: st.DataObject) -> None:
    both(record(data.draw(events_of(kind)), reason="\N{SNOWMAN} and half a pair: \ud800"))


@pytest.mark.parametrize(
    "number", [0, -1, LAST, 2**31, FIRST, -(2**31) - 1, 2**45, 2**63 - 1, -(2**63), 2**63, -(2**70)]
)
def test_an_int_of_any_size_becomes_what_marshal_makes_of_it(number: int) -> None:
    made = both(record(NodeTouched((NodeId(number), (number, 1)), 1)))  # type: ignore[arg-type]
    assert marshal.dumps(number, packed.MARSHAL_VERSION) in made
    (event,) = arrived(made)
    assert event.nodes == (number, (number, 1))


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    "runs",
    [
        b"x",
        bytes(7),
        bytes(8),
        bytearray(8),
        np.array([5, -1], dtype=np.int32).tobytes(),
        np.array([5, 1, 6, -(2**31)], dtype=np.int32).tobytes(),
    ],
)
def test_what_are_no_runs_is_refused(module: Any, runs: Any) -> None:
    with pytest.raises(ValueError, match="run"):
        module.expanded(runs)


@pytest.mark.parametrize("module", MODULES)
def test_runs_go_on_past_the_last_number(module: Any) -> None:
    runs = np.array([LAST, 2, FIRST, 1, -1, 2], dtype=np.int32).tobytes()
    found = np.frombuffer(module.expanded(runs), dtype=np.int32)
    assert found.tolist() == [LAST, FIRST, FIRST, -1, 0]
    assert module.expanded(b"") == b""


def test_both_have_the_same_limits() -> None:
    names = [name for name in dir(TWIN) if name.isupper() and isinstance(getattr(TWIN, name), int)]
    own = [name for name in names if name not in dir(plans)]
    assert len(own) == 7
    for name in own:
        assert getattr(packed, name) == getattr(TWIN, name)


def test_both_batches_have_the_same_public_names() -> None:
    def names(batch: type) -> set[str]:
        return {name for name in dir(batch) if not name.startswith("_")}

    assert names(packed.Batch) == names(TWIN.Batch)


WELL = 7

NO_EVENT: Any = "no event"


def ring_of(size: int) -> tuple[memoryview, memoryview]:
    return memoryview(bytearray(size)), memoryview(bytearray(8 * COUNTERS)).cast("q")


@pytest.mark.compiled
def test_what_is_compiled_adds_at_once_while_all_is_well_and_no_more_than_a_step() -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    batch: Any = packed.Batch(frames.PACKINGS, BATCH, TransactionRecord)
    phase = memoryview(bytearray(8)).cast("q")
    plain = record(Evicted(1, 2, 3, 4), Evicted(1, 2, 3, 4))
    assert not batch.add_now(plain), "it was not opened"
    batch.open(phase, WELL, *ring_of(4_096), 5)
    assert not batch.add_now(plain), "all is not well"
    phase[0] = WELL
    for refused in (
        record(opened()),
        record(NodeTouched((NodeId(1), None), 1)),  # type: ignore[arg-type]
        record(PagesAllocated(None, OTHERS["int64"], WHOLE, None)),
        record(NO_EVENT),
        "no transaction",
    ):
        assert not batch.add_now(refused)
    assert [batch.add_now(plain) for _ in range(5)] == [True, True, True, False, False]
    assert (batch.count, batch.events, batch.added, batch.accepted) == (3, 6, 3, 6)
    assert batch.write()
    assert batch.add_now(plain)
    phase[0] = WELL + 1
    assert not batch.add_now(plain)
    phase[0] = WELL
    batch.shut()
    assert not batch.add_now(plain)
    assert batch.add(plain, 1, 2)
    assert (batch.count, batch.events, batch.added, batch.accepted, batch.frames) == (2, 4, 5, 10, 1)


@pytest.mark.compiled
def test_what_is_compiled_writes_into_the_ring_what_it_would_be_taken_as_where_it_fits_in_one_place() -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    sent = [record(PagesAllocated(None, WHOLE * 2, pages([1]), number)) for number in range(3)]
    expected = made_of(TWIN, *sent)
    ring = ring_of(len(expected) + 1)
    batch: Any = packed.Batch(frames.PACKINGS, BATCH, TransactionRecord)
    assert not batch.write(), "it was not opened"
    phase = memoryview(bytearray(8)).cast("q")
    batch.open(phase, WELL, *ring, 5)
    phase[0] = WELL
    assert not batch.write(), "nothing waits"

    def add_all() -> None:
        for number, each in enumerate(sent):
            assert batch.add(each, 2**40 + number, None if number % 2 else number)

    add_all()
    assert batch.write()
    assert batch.count == 0
    add_all()
    assert not batch.write(), "there is no room"
    assert RingReader(*ring).read() == expected
    assert ring[1].tolist() == [len(expected)] * COUNTERS
    assert not batch.write(), "there is room, but not in one place"
    assert (batch.count, batch.frames) == (3, 1)
    ring[1][PUBLISHED] = ring[1][READ] = 2 * len(ring[0])
    assert batch.write()
    assert ring[1][READ] == 2 * len(ring[0])
    assert RingReader(*ring).read() == expected
    add_all()
    phase[0] = WELL + 1
    assert not batch.write(), "all is not well"
    phase[0] = WELL
    batch.shut()
    assert not batch.write(), "it was shut"
    assert b"".join(batch.take()) == expected


def add_long(batch: Any, tokens: bytes, array: Any) -> None:
    sent = record(PagesAllocated(None, array, pages([1]), 1), NodeSplit(NodeId(1), NodeId(2), 4, tokens))
    assert batch.add(sent, 1, None)
    sent.events.clear()


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("module", MODULES)
def test_what_is_long_is_kept_by_reference_until_it_is_handed_over_or_taken_back(
    module: Any, is_long: bool
) -> None:
    tokens, array = bytes(packed.FEW_TOKEN_BYTES + is_long), WHOLE[: FEW + is_long] * 2
    not_held = sys.getrefcount(tokens), sys.getrefcount(array)
    batch = batch_of(module)
    for end in (batch.take, batch.take_back):
        add_long(batch, tokens, array)
        assert (sys.getrefcount(tokens) > not_held[0]) == is_long
        assert (sys.getrefcount(array) > not_held[1]) == is_long
        end()
        batch.let_go()
        assert (sys.getrefcount(tokens), sys.getrefcount(array)) == not_held
    add_long(batch, tokens, array)
    del batch, end
    gc.collect()
    assert (sys.getrefcount(tokens), sys.getrefcount(array)) == not_held


def refuse(batch: Any, sent: TransactionRecord) -> None:
    sent.events.append(NO_EVENT)
    assert not batch.add(sent, 1, None)


def take(batch: Any, sent: TransactionRecord) -> None:
    assert batch.add(sent, 1, None)
    batch.take()


def take_back(batch: Any, sent: TransactionRecord) -> None:
    assert batch.add(sent, 1, None)
    assert batch.take_back()


def write(batch: Any, sent: TransactionRecord) -> None:
    batch.open(memoryview(bytearray(8)), 0, *ring_of(2**22), 1_000)
    assert batch.add(sent, 1, None)
    if not batch.write():
        batch.take()


@pytest.mark.parametrize("way", [refuse, take, take_back, write])
@pytest.mark.parametrize("module", MODULES)
def test_what_an_object_runs_at_its_end_runs_when_it_is_let_go_and_finds_the_batch_whole(
    module: Any, way: Callable[[Any, TransactionRecord], None]
) -> None:
    batch, ends = batch_of(module), list[int]()
    wide = WHOLE * 2

    def end(one: object) -> None:
        ends.append(batch.count)
        assert batch.add(record(*[PagesAllocated(None, wide, wide, None)] * 20), 1, None)

    def sent() -> tuple[TransactionRecord, list[Any]]:
        arrays = [WHOLE * 3 for _ in range(8)]
        watched = [weakref.ref(array, end) for array in arrays]
        return record(*(PagesAllocated(None, array, pages([1]), None) for array in arrays)), watched

    one, watched = sent()
    way(batch, one)
    assert ends == []
    # What was refused is the caller's alone, or is let go with the rest.
    one.events.clear()
    assert ends == [] or way is refuse
    made = list[Any]()
    for _ in watched:
        # What was added meanwhile lies over the rest, which goes with it.
        batch.let_go()
        made += arrived(b"".join(batch.take()))
    assert (len(ends), len(made)) == (len(watched), 20 * len(watched))


def test_a_transaction_that_waits_is_whole_where_one_after_it_was_refused_or_taken_back() -> None:
    def made(module: Any) -> bytes:
        batch = batch_of(module)
        for number in range(3):
            sent = record(PagesAllocated(None, WHOLE * 2, WHOLE * 3, number))
            for way in (take_back, refuse):
                assert batch.add(sent, number, None)
                way(batch, record(PagesAllocated(None, WHOLE * 5, pages([1]), None)))
                if number == 1:
                    batch.let_go()
        return b"".join(batch.take())

    (one,) = {made(module.values[0]) for module in MODULES}
    assert [event.row_start for event in arrived(one)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.compiled
def test_a_batch_that_is_compiled_refuses_what_the_transaction_calls_that_is_being_added() -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    batch: Any = packed.Batch(frames.PACKINGS, BATCH, TransactionRecord)
    batch.open(memoryview(bytearray(8)), 0, *ring_of(4_096), 100)
    plain, calls = record(Evicted(1, 2, 3, 4)), []

    def call() -> None:
        calls.append((batch.add_now(plain), batch.write(), batch.take_back()))
        for refused in (
            batch.take,
            lambda: batch.add(plain, 1, None),
            lambda: batch.add_pickled(b"", 1),
        ):
            with pytest.raises(RuntimeError, match="inside"):
                refused()
        batch.let_go()

    wide = PagesAllocated(None, WHOLE * 2, pages([1]), None)
    assert batch.add(plain, 1, None)
    assert batch.add(record(wide, NodeTouched((Calls(call),), 1), wide), 1, None)  # type: ignore[arg-type]
    assert calls == [(False, False, False)]
    assert (batch.count, batch.events) == (2, 4)
    assert len(arrived(b"".join(batch.take()))) == 4


@pytest.mark.compiled
def test_memory_that_cannot_be_given_back_is_kept() -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    testing = pytest.importorskip("_testcapi")
    batch: Any = packed.Batch(frames.PACKINGS, BATCH, TransactionRecord)
    batch.open(memoryview(bytearray(8)), 0, *ring_of(2**23), 100_000)
    sent = record(*[Evicted(1, 2, 3, 4)] * 60_000)
    assert batch.add(sent, 1, None)
    testing.set_nomemory(0, 0)
    try:
        written = batch.write()
    finally:
        testing.remove_mem_hooks()
    assert written
    assert batch.add(sent, 1, None)
    assert len(arrived(b"".join(batch.take()))) == 60_000


def test_what_is_larger_than_marshal_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TWIN, "MOST_BYTES", WHOLE.nbytes)
    batch: Any = batch_of(TWIN)
    batch.add_pickled(bytes(TWIN.MOST_BYTES), 1)
    with pytest.raises(OverflowError, match="too large"):
        batch.add_pickled(bytes(TWIN.MOST_BYTES + 1), 1)
    for size, taken in ((0, True), (1, False)):
        tokens = bytes(TWIN.MOST_BYTES + size)
        assert batch.add(record(NodeSplit(NodeId(1), NodeId(2), 4, tokens)), 1, None) == taken
    # Nor are there more runs than that: it goes as it is.
    array = np.concatenate([WHOLE[:4]] * 100)
    runs = len(made_of(TWIN, record(PagesAllocated(None, array, pages([1]), None))))
    monkeypatch.setattr(TWIN, "MOST_BYTES", 8 * 100 - 1)
    assert len(made_of(TWIN, record(PagesAllocated(None, array, pages([1]), None)))) > runs


def test_more_entries_than_the_length_of_a_run_can_say_go_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def size(array: Any) -> int:
        return len(made_of(TWIN, record(PagesAllocated(None, array, pages([1]), None))))

    assert np.iinfo(np.int32).max == TWIN.MOST_ENTRIES
    monkeypatch.setattr(TWIN, "MOST_ENTRIES", len(WHOLE) - 1)
    assert size(WHOLE) > WHOLE.nbytes
    assert size(WHOLE[1:]) < 200


def test_a_transaction_too_large_to_be_pickled_is_told_as_such() -> None:
    class Full:
        """Stands for a batch for which everything is too large."""

        def add(self, *transaction: Any) -> bool:
            return False

        def add_pickled(self, pickled: bytes, events: int) -> None:
            raise OverflowError("a transaction is too large")

    full: Any = Full()
    with pytest.raises(JournalError, match=r"cannot be handed to .* too large"):
        add(full, record(), 1, None)


@pytest.mark.parametrize("module", MODULES)
def test_fewer_events_than_none_are_refused(module: Any) -> None:
    batch = batch_of(module)
    with pytest.raises(ValueError, match="-1 events"):
        batch.add_pickled(b"", -1)
    assert (batch.count, batch.accepted) == (0, 0)


@pytest.mark.parametrize("module", MODULES)
def test_a_batch_takes_no_keywords(module: Any) -> None:
    with pytest.raises(TypeError):
        module.Batch({}, BATCH, TransactionRecord, more=1)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("way", "type_"),
    [
        (plans.PAGE_ARRAY, np.dtype(np.int8)),
        (plans.PAGE_ARRAY, np.dtype(np.float32)),
        (plans.PAGE_ARRAY, np.dtype(np.int64)),
        (plans.PAGE_ARRAY, np.dtype(np.uint32)),
        (plans.PAGE_ARRAY | plans.OPTIONAL, np.dtype(np.uint64)),
        (plans.PAGE_ARRAY, OTHERS["the other order of bytes"].dtype),
        (plans.PAGE_ARRAY, None),
        (plans.SUM_ARRAY, np.dtype(np.int32)),
        (plans.SUM_ARRAY, np.dtype(np.int64)),
        (plans.SUM_ARRAY, np.dtype(">u8" if sys.byteorder == "little" else "<u8")),
        (plans.SUM_ARRAY | plans.OPTIONAL, np.dtype("M8[s]")),
        (plans.SUM_ARRAY, None),
        (plans.CHOICE, int),
        (plans.CHOICE | plans.OPTIONAL, None),
    ],
)
def test_what_is_compiled_refuses_ways_that_do_not_fit_their_types(way: int, type_: Any) -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    with pytest.raises(TypeError, match="int32"):
        packed.Batch({Evicted: (1, Evicted.values, bytes([way]), (type_,))}, BATCH, TransactionRecord)


@pytest.mark.compiled
def test_what_is_compiled_follows_no_word_and_no_ring_that_it_cannot_read() -> None:
    if not COMPILED:
        pytest.skip("the interpreted core")
    batch: Any = packed.Batch(frames.PACKINGS, BATCH, TransactionRecord)
    phase, (ring, counters) = memoryview(bytearray(24)), ring_of(4_096)
    bytewise = memoryview(bytearray(64))
    for read, published in ((-1, 0), (1, 0), (0, -1)):
        counters[READ], counters[PUBLISHED] = read, published
        with pytest.raises(ValueError, match="aligned"):
            batch.open(phase[:8], 0, ring, counters, 10)
    counters[READ] = counters[PUBLISHED] = 0
    for unfit in (
        (phase[1:9], 0, ring, counters),
        (phase[:7], 0, ring, counters),
        (phase[:8], 0, ring[:0], counters),
        (phase[:8], 0, ring, counters[:1]),
        (phase[:8], 0, ring, bytewise[1:17]),
    ):
        with pytest.raises(ValueError, match="aligned"):
            batch.open(*unfit, 10)
    assert not batch.add_now(record())
    batch.open(phase[:8], 0, ring, counters, 10)
    assert batch.add_now(record())
    with pytest.raises(TypeError, match="already"):
        batch.open(phase[:8], 0, ring, counters, 10)
    for read, published in ((-1, -1), (-1, 0), (1, 0)):
        counters[READ], counters[PUBLISHED] = read, published
        assert not batch.write()


@pytest.mark.parametrize("module", MODULES)
def test_a_transaction_took_as_long_as_since_the_last_beginning_and_only_one_does(module: Any) -> None:
    batch = batch_of(module)
    assert batch.times()[1] is None
    batch.begin()
    time_us, duration_us = batch.times()
    assert time_us > 0
    assert duration_us >= 0
    assert batch.times()[1] is None


def test_what_is_too_odd_is_told_by_name() -> None:
    batch = frames.new_batch()
    with pytest.raises(JournalError, match="cannot be handed to"):
        add(batch, record(NodeTouched((memoryview(b""),), 1)), 1, None)  # type: ignore[arg-type]
    assert (batch.count, batch.added) == (0, 0)
