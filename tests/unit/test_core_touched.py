"""Which nodes an insert counts as used: those in the last window of its row, and no others. A second."""

import pytest

from tests.scenario.dsl import Story


def stamps(s: Story) -> dict[int, int]:
    """Recency stamp by the position where a node begins."""
    return {node.start: node.last_access for node in s.cache.nodes()}


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("own", [0, 4, 8, 12])
def test_an_insert_over_what_is_there_touches_its_last_window_and_its_last_node(page: int, own: int) -> None:
    s = Story(page=page, window=4 * page, full=64 * page, swa=64 * page)
    row = range(12 * page)
    for end in (4, 8, 12):
        s.INS(row[: end * page], own=(end - 4) * page)
    before = stamps(s)
    assert list(before) == [0, 4 * page, 8 * page]
    s.INS(row, own=own * page)
    after = stamps(s)
    assert [start // page for start in before if after[start] != before[start]] == [8]


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize(("more", "touched"), [(1, [8]), (3, [8]), (4, []), (5, [])])
def test_an_insert_behind_what_is_there_touches_above_it_as_far_as_its_window_reaches(
    page: int, more: int, touched: list[int]
) -> None:
    s = Story(page=page, window=4 * page, full=64 * page, swa=64 * page)
    row = range(20 * page)
    for end in (4, 8, 12):
        s.INS(row[: end * page], own=(end - 4) * page)
    before = stamps(s)
    s.INS(row[: (12 + more) * page], own=12 * page)
    after = stamps(s)
    assert [start // page for start in before if after[start] != before[start]] == touched


@pytest.mark.parametrize("page", [1, 4])
def test_an_insert_that_ends_inside_a_live_node_cuts_nothing(page: int) -> None:
    s = Story(page=page, window=4 * page, full=64 * page, swa=64 * page)
    row = range(12 * page)
    s.INS(row)
    before = [(node.id, node.start, node.end) for node in s.cache.nodes()]
    for end in (1, 3, 6, 8, 9, 12):
        s.INS(row[: end * page])
    assert [(node.id, node.start, node.end) for node in s.cache.nodes()] == before


@pytest.mark.parametrize(("own", "partings"), [(8, 0), (4, 1), (0, 1)])
def test_a_row_that_goes_on_from_where_it_was_locked_to_parts_from_nothing(own: int, partings: int) -> None:
    """What "lru-2" learns of: a row that came from farther up and left another at its end."""
    s = Story(eviction="lru-2", full=128, swa=128)
    s.INS("1..8")
    retention = s.cache._state.retention
    assert retention is not None
    s.INS("1..20", own=own)
    assert retention.margin._seen == partings


@pytest.mark.parametrize("page", [1, 4])
def test_an_end_that_a_row_went_on_from_at_once_is_the_end_of_a_row_no_more(page: int) -> None:
    s = Story(page=page, window=4 * page, full=64 * page, swa=64 * page, eviction="lru-2")
    row = range(16 * page)
    s.INS(row[: 8 * page])
    s.INS(row, own=8 * page)
    ends = {node.end // page: node.ends_row for node in s.cache._state.nodes.values()}
    assert {end for end, is_one in ends.items() if is_one} == {16}
    assert 8 in ends
