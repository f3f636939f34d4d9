"""Single passes over arrays: the source says what each answers, and the module in C answers the same."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvledger.core import COMPILED, row_passes
from tests.support.source_of import source_of

TABLE_ENTRIES = 700
ENDS = (-(2**31), 2**31 - 1)
SLOT_ENDS = (-(2**63), 2**63 - 1)


SOURCE = source_of(row_passes)

only_in_c = pytest.mark.skipif(not COMPILED, reason="the module in C is built with the compiled core")


def pages(values: Any) -> Any:
    return np.array(list(values), dtype=np.int32)


def slots_from(values: Any) -> Any:
    return np.array(list(values), dtype=np.int64)


def indexes() -> st.SearchStrategy[Any]:
    """Pages of a table, and runs of them, some longer than what one block of a pass holds."""
    entries = st.lists(st.integers(0, TABLE_ENTRIES - 1), max_size=40).map(pages)
    ends = st.tuples(st.integers(0, TABLE_ENTRIES), st.integers(0, TABLE_ENTRIES)).map(sorted)
    return entries | ends.map(lambda two: slice(*two)) | ends.map(lambda two: pages(range(*two)))


def odd_pages() -> st.SearchStrategy[Any]:
    """Anything that an array of int32 can hold, runs with one entry changed among it."""
    anything = st.lists(st.integers(*ENDS) | st.integers(-2, 3), max_size=12).map(pages)
    ends = st.tuples(st.integers(-3, 600), st.integers(-3, 1200)).map(sorted)
    changed = st.tuples(ends, st.integers(0, 1200), st.integers(-2, 2) | st.sampled_from(ENDS)).map(
        one_changed
    )
    return anything | changed


def one_changed(how: tuple[list[int], int, int]) -> Any:
    (first, end), at, value = how
    run = pages(range(first, end))
    if len(run):
        run[at % len(run)] = value
    return run


QUESTIONS = ("all_set", "any_set", "is_ascending", "is_run")


@pytest.mark.parametrize("name", QUESTIONS)
@given(odd_pages())
@example(pages(ENDS[::-1]))
def test_what_is_asked_of_pages_is_answered_as_by_looking_at_each(name: str, array: Any) -> None:
    told = array.tolist()
    expected = {
        "all_set": all(told),
        "any_set": any(told),
        "is_ascending": all(a < b for a, b in pairwise(told)),
        "is_run": all(a + 1 == b for a, b in pairwise(told)),
    }
    for module in (row_passes, SOURCE):
        assert bool(getattr(module, name)(array)) is expected[name]


@given(indexes(), st.sampled_from([np.int64, np.int32, np.int8]), st.integers(-3, 3), st.data())
def test_tables_are_read_and_written_by_an_index_as_entry_by_entry(
    at: Any, dtype: Any, value: int, data: st.DataObject
) -> None:
    table = np.array([data.draw(st.integers(-1, 1))] * TABLE_ENTRIES, dtype=dtype)
    rows = range(*at.indices(TABLE_ENTRIES)) if isinstance(at, slice) else at.tolist()
    for row in data.draw(st.lists(st.sampled_from(rows), max_size=2)) if len(rows) else ():
        table[row] = 2
    for module in (row_passes, SOURCE):
        own = table.copy()
        if dtype is np.int32:
            assert bool(module.all_equal_at(own, at, value)) is all(own[row] == value for row in rows)
            found = module.entries_at(own, at)
            assert found.tolist() == [own[row] for row in rows]
            assert found.dtype == np.int32
            found += 1
            assert own.tolist() == table.tolist()
        module.put_at(own, at, value)
        expected = table.copy()
        for row in rows:
            expected[row] = value
        assert own.tolist() == expected.tolist()
        if dtype is not np.int8:
            each = pages(range(7, 7 + len(rows)))
            module.put_at(own, at, each)
            for row, one in zip(rows, each, strict=True):
                expected[row] = one
            assert own.tolist() == expected.tolist()


@given(st.lists(odd_pages(), min_size=1, max_size=4), st.integers(0, 30), st.integers(0, 30))
def test_parts_and_wholes_hold_what_they_are_made_of(chunks: list[Any], first: int, count: int) -> None:
    whole = [page for chunk in chunks for page in chunk.tolist()]
    for module in (row_passes, SOURCE):
        joined = module.joined(chunks)
        assert joined.tolist() == whole
        assert joined.dtype == np.int32
        assert not any(np.shares_memory(joined, chunk) for chunk in chunks)
        start = min(first, len(joined))
        end = min(start + count, len(joined))
        part = module.copied_part(joined, start, end)
        assert part.tolist() == whole[start:end]
        assert not part.flags.writeable
        assert not np.shares_memory(part, joined)


@given(
    st.sampled_from([1, 2, 3, 64, 1000]),
    st.lists(st.integers(1, 9), max_size=9),
    st.none() | st.tuples(st.integers(0, 10**6), st.integers(-70, 70) | st.sampled_from(SLOT_ENDS)),
)
def test_slots_are_those_of_whole_pages_in_the_pool_or_of_none(
    size: int, own: list[int], change: tuple[int, int] | None
) -> None:
    limit = 9 * size
    slots = slots_from(slot for page in own for slot in range(page * size, page * size + size))
    if change is not None and len(slots):
        at, by = change
        slots[at % len(slots)] = by if by in SLOT_ENDS else slots[at % len(slots)] + by
    told = slots.tolist()
    fits = all(size <= slot < limit for slot in told) and all(
        told[at : at + size] == list(range(told[at], told[at] + size)) and told[at] % size == 0
        for at in range(0, len(told), size)
    )
    for module in (row_passes, SOURCE):
        found = module.pages_of(slots, size, limit)
        assert (found is not None) is fits
        if found is not None:
            assert found.tolist() == [slot // size for slot in told[::size]]
            assert not found.flags.writeable
            assert found.dtype == np.int32
            again = module.slots_of(found, size)
            assert again.tolist() == told
            assert again.dtype == np.int64


@pytest.mark.parametrize("size", [1, 2, 65_536])
def test_slots_of_the_last_pages_are_as_wide_as_they_have_to_be(size: int) -> None:
    last = ENDS[1]
    for module in (row_passes, SOURCE):
        slots = module.slots_of(pages([1, last]), size)
        assert slots.tolist() == [page * size + place for page in (1, last) for place in range(size)]
        assert module.pages_of(slots, size, (last + 1) * size).tolist() == [1, last]
        assert module.pages_of(slots, size, last * size) is None


TABLE = np.zeros(3, dtype=np.int32)


class Changing:
    """A number whose look changes the index it is asked for beside."""

    def __init__(self, index: Any = None) -> None:
        self.index = index

    def __index__(self) -> int:
        if self.index is not None:
            self.index[:] = 10**9
        return 1


def in_itself(module: Any) -> None:
    table = pages([1, 0, 0])
    module.put_at(table, table, 10**7)


IN_C: dict[str, tuple[Callable[[Any], object], type[Exception]]] = {
    "pages that are strided": (lambda c: c.is_run(pages(range(8))[::2]), TypeError),
    "pages of another type": (lambda c: c.all_set(np.zeros(3, dtype=np.int64)), TypeError),
    "pages in two dimensions": (lambda c: c.all_set(np.zeros((2, 2), dtype=np.int32)), TypeError),
    "pages in another byte order": (lambda c: c.any_set(np.zeros(2, dtype=">i4")), TypeError),
    "no array": (lambda c: c.is_ascending([1, 2]), TypeError),
    "an index past the end": (lambda c: c.entries_at(TABLE, pages([0, 3])), IndexError),
    "an index before the beginning": (lambda c: c.entries_at(TABLE, pages([-1])), IndexError),
    "a run past the end": (lambda c: c.put_at(pages(range(3)), slice(1, 4), 0), IndexError),
    "a run with a step": (lambda c: c.put_at(pages(range(3)), slice(0, 3, 2), 0), TypeError),
    "a run from the end": (lambda c: c.put_at(pages(range(3)), slice(-2, 3), 0), IndexError),
    "a run of numbers that are no ints": (
        lambda c: c.put_at(pages(range(3)), slice(Changing(), 2), 0),
        TypeError,
    ),
    "a run to the end": (lambda c: c.put_at(pages(range(3)), slice(1, None), 0), TypeError),
    "an index within the table": (in_itself, ValueError),
    "values within the table": (
        lambda c: (lambda table: c.put_at(table, pages([0, 1]), table[1:3]))(pages(range(3))),
        ValueError,
    ),
    "a value too large": (lambda c: c.put_at(np.zeros(3, dtype=np.int8), pages([1]), 128), OverflowError),
    "a value larger still": (lambda c: c.put_at(pages(range(3)), pages([1]), 2**31), OverflowError),
    "a value past all": (lambda c: c.put_at(slots_from(range(3)), pages([1]), 2**63), OverflowError),
    "a value too few": (lambda c: c.put_at(pages(range(3)), pages([0, 1]), pages([1])), ValueError),
    "values for a table of int8": (
        lambda c: c.put_at(np.zeros(3, dtype=np.int8), pages([1]), pages([1])),
        TypeError,
    ),
    "values that are wide": (
        lambda c: c.put_at(np.zeros(3, dtype=np.int64), pages([0, 1]), slots_from([1, 2])),
        TypeError,
    ),
    "an index that is wide": (lambda c: c.put_at(TABLE, slots_from([0, 1]), 1), TypeError),
    "a table of unsigned": (lambda c: c.put_at(np.zeros(3, dtype=np.uint64), pages([1]), 1), TypeError),
    "a table of int16": (lambda c: c.put_at(np.zeros(3, dtype=np.int16), pages([1]), 1), TypeError),
    "owners of int64": (lambda c: c.all_equal_at(slots_from(range(3)), pages([1]), 1), TypeError),
    "entries of a table of int64": (lambda c: c.entries_at(slots_from(range(3)), pages([1])), TypeError),
    "pages that are not aligned": (
        lambda c: c.is_run(np.frombuffer(bytes(17), np.uint8)[1:].view(np.int32)),
        TypeError,
    ),
    "a part past the end": (lambda c: c.copied_part(pages(range(3)), 1, 4), IndexError),
    "a part before the beginning": (lambda c: c.copied_part(pages(range(3)), -1, 2), IndexError),
    "a part that ends before it begins": (lambda c: c.copied_part(pages(range(3)), 2, 1), IndexError),
    "no chunks": (lambda c: c.joined([]), TypeError),
    "chunks of others": (lambda c: c.joined([pages([1]), [2]]), TypeError),
    "slots of a part of a page": (lambda c: c.pages_of(slots_from(range(3)), 2, 9), ValueError),
    "slots of more pages than there are": (
        lambda c: c.pages_of(slots_from(range(2)), 2, 2**33),
        OverflowError,
    ),
    "slots that are narrow": (lambda c: c.pages_of(pages(range(2)), 2, 9), TypeError),
    "no page size": (lambda c: c.slots_of(pages([1]), 0), ValueError),
    "a page size past all memory": (lambda c: c.slots_of(pages([1, 2]), 2**62), MemoryError),
    "arguments too few": (lambda c: c.pages_of(slots_from([1])), TypeError),
}


@only_in_c
@pytest.mark.parametrize("what", IN_C)
def test_what_the_module_in_c_is_not_made_for_is_refused(what: str) -> None:
    call, error = IN_C[what]
    with pytest.raises(error):
        call(row_passes)


@only_in_c
def test_nothing_is_written_where_a_later_index_lies_outside() -> None:
    table = pages(range(5))
    table.setflags(write=False)
    with pytest.raises(TypeError):
        row_passes.put_at(table, pages([0]), 9)
    table.setflags(write=True)
    with pytest.raises(IndexError):
        row_passes.put_at(table, pages([0, 1, 5]), 9)
    assert table.tolist() == [0, 1, 2, 3, 4]


@only_in_c
@pytest.mark.parametrize("name", ["put_at", "all_equal_at"])
def test_an_index_is_looked_at_after_all_that_could_change_it(name: str) -> None:
    index = pages([0, 1])
    with pytest.raises(IndexError):
        getattr(row_passes, name)(np.zeros(3, dtype=np.int32), index, Changing(index))


@only_in_c
def test_the_module_in_c_has_each_function_of_the_source() -> None:
    told = {
        name
        for name, value in vars(SOURCE).items()
        if not name.startswith("_") and callable(value) and value.__module__ == "row_passes_source"
    }
    assert told == {name for name in vars(row_passes) if not name.startswith("_")}
