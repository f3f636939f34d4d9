"""Pages are int32, slots and ids are not: nothing made of pages wraps, and any width is read."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from kvledger.api.answers.slot import slot_of, slots_of
from kvledger.api.projection import Standing
from kvledger.api.schemas.common import At
from kvledger.core.events import Cause, PagesFreed, Pool
from kvledger.journal.audit import audit
from kvledger.journal.effects import EFFECTS, end_transaction
from kvledger.journal.places import CALLER, DEFERRED, FREE, OUTSIDE
from kvledger.journal.replay import open_state, replay
from kvledger.journal.restore import decode_state
from kvledger.journal.schema import view_event
from kvledger.journal.snapshot import encode_state
from kvledger.journal.state import State
from kvledger.journal.structure import STRUCTURE
from tests.support.hand_written import Journal, Story, allocated, created, opened, pages
from tests.support.stories import HEALTHY

LARGE_PAGE = 2**20
LATE_ID = 2**40


class Unconvertible(np.ndarray[Any, Any]):
    """Pages that are there, and for whose conversion there is no memory."""

    def astype(self, *_: Any, **__: Any) -> Any:
        raise MemoryError


def with_pages_of(journal: Journal, widths: Callable[[int], Any]) -> Journal:
    """The journal with each page array of the type that `widths` gives for its place among all."""
    count = 0
    told = []
    for transaction in journal:
        events = []
        for stored in transaction.events:
            changes: dict[str, Any] = {}
            for field in fields(stored.event):
                value = getattr(stored.event, field.name)
                if isinstance(value, np.ndarray) and value.dtype == np.int32:
                    changes[field.name] = value.astype(widths(count))
                    count += 1
            events.append(replace(stored, event=replace(stored.event, **changes)))
        told.append(replace(transaction, events=tuple(events)))
    return told


@pytest.mark.parametrize("story", HEALTHY.values(), ids=HEALTHY)
@pytest.mark.parametrize(
    "widths",
    [lambda count: np.int64, lambda count: np.int16, lambda count: (np.int32, np.int64)[count % 2]],
    ids=["wide", "narrow", "mixed"],
)
def test_a_journal_means_the_same_whatever_the_width_of_its_pages(
    story: Callable[[], Journal], widths: Callable[[int], Any]
) -> None:
    journal = story()
    other = with_pages_of(journal, widths)
    expected, found = replay(journal).state, replay(other).state
    assert found.digest() == expected.digest()
    assert encode_state(found) == encode_state(expected)
    assert audit(other) == audit(journal)


@pytest.mark.parametrize("story", HEALTHY.values(), ids=HEALTHY)
def test_a_state_keeps_pages_in_four_bytes(story: Callable[[], Journal]) -> None:
    folded = replay(story()).state
    for state in (folded, decode_state(encode_state(folded))):
        assert {state.mapping.itemsize, state.swa_at.itemsize} == {4}
        for node in state.nodes.values():
            assert node.full.dtype == np.int32
            assert node.swa is None or node.swa.dtype == np.int32
        for request in state.requests.values():
            assert request.row.dtype == np.int32


def test_a_page_is_bound_to_a_node_whose_id_is_past_int32() -> None:
    journal = (
        Story()
        .then("alloc", allocated(pages(1, 2, 3), pages(1, 2, 3)))
        .then("insert", created(LATE_ID, pages(1, 2), pages(1, 2)))
        .journal()
    )
    state = replay(journal).state
    assert state.full_at[:4].tolist() == [OUTSIDE, LATE_ID + 1, LATE_ID + 1, CALLER]
    again = decode_state(encode_state(state))
    assert again.full_at.tolist() == state.full_at.tolist()
    assert again.digest() == state.digest()


def test_pages_wait_for_the_end_of_a_transaction_and_are_free_after_it() -> None:
    state = open_state(opened())
    for full, swa in ((pages(1, 2, 3), pages(1, 2, 0)), (pages(5), pages(6))):
        taken = allocated(full, swa)
        freed = PagesFreed(None, Pool.BOTH, Cause.CALLER, full, swa)
        fold_one(state, taken)
        assert state.mapping[full].tolist() == swa.tolist()
        assert all(state.swa_at[peer] == page for page, peer in zip(full, swa, strict=True) if peer)
        fold_one(state, freed)
        assert state.full_at[full].tolist() == [DEFERRED] * len(full)
        assert state.swa_at[swa[swa > 0]].tolist() == [DEFERRED] * np.count_nonzero(swa)
        assert not state.mapping.any()
    fold_one(state, allocated(pages(2), pages(2)))
    end_transaction(state)
    assert state.full_at[1:7].tolist() == [FREE, CALLER, FREE, FREE, FREE, FREE]
    assert state.swa_at[1:8].tolist() == [FREE, 2, FREE, FREE, FREE, FREE, FREE]


def fold_one(state: State, event: Any) -> None:
    EFFECTS[type(event)](state, event, STRUCTURE[type(event)](state, event))


def test_an_array_that_a_writer_uses_again_is_read_again() -> None:
    state = open_state(opened())
    fold_one(state, allocated(pages(1, 2, 3, 4), pages(1, 2, 3, 4)))
    again = pages(1, 2).copy()
    for values in ((1, 2), (3, 4)):
        again[:] = values
        fold_one(state, PagesFreed(None, Pool.SWA, Cause.CALLER, again, again))
    assert not state.mapping.any()


def test_slots_of_a_large_pool_are_past_int32() -> None:
    numbers = pages(1, 2**11, 2**11 + 1)
    slots = slots_of(numbers, LARGE_PAGE)
    assert slots.dtype == np.int64
    assert slots[::LARGE_PAGE].tolist() == [page * LARGE_PAGE for page in numbers.tolist()]
    assert int(slots[-1]) == (2**11 + 2) * LARGE_PAGE - 1


def test_a_slot_of_a_large_pool_and_the_one_beside_it_are_told() -> None:
    state = open_state(opened(page_size=LARGE_PAGE, full=2**12, swa=2**12))
    fold_one(state, allocated(pages(3_000, 3_001), pages(4_095, 4_096)))
    standing = Standing(state, At(asked=None, seq=2, transaction=2, settled=False))
    told = slot_of(standing, "full", 3_001 * LARGE_PAGE + 7)
    assert (told.page, told.offset, told.place) == (3_001, 7, "caller")
    assert told.beside == 4_096 * LARGE_PAGE + 7
    assert slot_of(standing, "swa", 4_096 * LARGE_PAGE + 7).beside == 3_001 * LARGE_PAGE + 7


def test_the_range_of_the_last_page_ends_past_int32() -> None:
    last = 2**31 - 1
    shown: Any = view_event(allocated(pages(last - 1, last), pages(last, -last - 1)))
    assert shown.full_pages.ranges == [(last - 1, last + 1)]
    assert shown.swa_pages.ranges == [(last, last + 1), (-last - 1, -last)]


def test_an_array_is_looked_up_by_its_own_pages_however_many_came_before() -> None:
    state = open_state(opened())
    arrays = [pages(first, first + 1) for first in range(1, 9)]
    for array in [*arrays, *arrays[::-1], *arrays[:2] * 3]:
        assert state.index(array).tolist() == array.tolist()
    odd_ones: list[Any] = [pages(), pages(5), np.array([5, 6], np.int64), np.array([5, 6], np.int16)]
    for odd in odd_ones:
        assert state.index(odd).tolist() == odd.tolist()
    with pytest.raises((TypeError, IndexError)):
        state.full_at[state.index(np.array([1.0, 2.0]))]


def test_a_conversion_that_fails_leaves_no_wrong_answer() -> None:
    state = open_state(opened())
    first, second = pages(1, 2), pages(3, 4)
    failing: Any = pages(5, 6).view(Unconvertible)
    for converted in (first, second, first):
        assert state.index(converted).tolist() == converted.tolist()
        with pytest.raises(MemoryError):
            state.index(failing)
    assert state.index(second).tolist() == second.tolist()
