"""Arrays compared by their bytes are compared as numpy would."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.journal.places import CALLER, DEFERRED, FREE
from kvledger.journal.same_pages import (
    all_deferred,
    all_free,
    all_read,
    joined,
    reads,
    same,
    same_in_pieces,
)
from tests.support.stored_events import seeded

VALUES = st.lists(st.integers(0, 3), max_size=6)
PIECES = st.lists(VALUES, max_size=4)
PLACES = [FREE, DEFERRED, CALLER, 7]


TABLES = pytest.mark.parametrize("dtype", [np.int32, np.int64])


def array(values: list[int]) -> Any:
    return np.array(values, np.int32)


@seeded
@given(VALUES, VALUES)
def test_two_arrays_are_the_same_where_all_their_values_are(left: list[int], right: list[int]) -> None:
    assert same(array(left), array(right)) is (left == right)
    assert same(array(left), array(left).astype(np.int64))


@seeded
@given(PIECES, PIECES)
def test_pieces_are_the_same_wherever_they_are_cut(left: list[list[int]], right: list[list[int]]) -> None:
    flat = [value for piece in left for value in piece]
    other = [value for piece in right for value in piece]
    these, those = [array(piece) for piece in left], [array(piece) for piece in right]
    assert joined(these).tolist() == flat
    assert same_in_pieces(these, those) is (flat == other)
    assert same_in_pieces(these, [array(flat)])
    assert same_in_pieces(these, [array(flat).astype(np.int64)])


@TABLES
@seeded
@given(places=st.lists(st.sampled_from(PLACES), min_size=1, max_size=9), data=st.data())
def test_a_table_is_read_as_numpy_reads_it(dtype: Any, places: list[int], data: st.DataObject) -> None:
    table = array(places).astype(dtype)
    pages = array(data.draw(st.lists(st.integers(0, len(places) - 1), max_size=5)))
    for place in PLACES:
        assert all_read(table, pages, place) is bool((table[pages] == place).all())
    assert all_free(table, pages) is bool((table[pages] == FREE).all())
    assert all_deferred(table, pages) is bool((table[pages] == DEFERRED).all())


@seeded
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_a_mapping_reads_what_numpy_reads_in_it(peers: list[int], data: st.DataObject) -> None:
    mapping = array(peers)
    pages = array(data.draw(st.lists(st.integers(0, len(peers) - 1), max_size=5)))
    drawn = data.draw(st.lists(st.integers(0, 3), min_size=len(pages), max_size=len(pages)))
    for values in (array(drawn), mapping[pages]):
        expected = bool((mapping[pages] == values).all())
        assert reads(mapping, pages, values) is expected
        assert reads(mapping, pages.astype(np.intp), values.astype(np.int64)) is expected


@pytest.mark.parametrize("count", [0, 1, 2, 3_000])
def test_one_page_among_many_that_is_elsewhere_is_seen(count: int) -> None:
    table = np.full(count + 1, 5, np.int64)
    pages = np.arange(count + 1, dtype=np.int32)
    assert all_read(table, pages, 5)
    table[count] = 2**40
    assert not all_read(table, pages, 5)
    assert all_read(table, pages[:-1], 5)
