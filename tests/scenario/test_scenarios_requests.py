"""Worked cases E: whole requests, from the prompt to what they leave behind."""

import pytest

from tests.scenario.dsl import Story


def test_E01_a_request_leaves_its_prompt_and_its_output_in_the_cache() -> None:
    """empty | START(1..3); append one, extend(1), computed(); FIN | hit 0; MATCH 4; 4 4 0 0 60 60."""
    s = Story()
    request = s.START("r", "1..3")
    assert request.prefix_len == 0
    request.append([4])
    s.EXTEND(request, 1)
    request.computed()
    s.FIN(request)
    assert s.MATCH("1..4") == 4
    s.REST("4 4 0 0 60 60")


def test_E02_an_aborted_request_leaves_nothing() -> None:
    """empty | START(1..2), abort | MATCH 0; as before START."""
    s = Story()
    request = s.START("r", "1..2")
    s.HELD(2, 2)
    s.ABORT(request)
    assert s.MATCH("1..2") == 0
    s.REST("0 0 0 0 64 64")


def test_E03_what_an_unfinished_request_published_is_locked_until_it_finishes() -> None:
    """empty | START(1..3), UNF, FIN | 0 0 3 3 61 61; then 3 3 0 0 61 61."""
    s = Story()
    request = s.START("r", "1..3")
    committed = s.UNF(request)
    assert (committed.length, list(committed.row_changed), committed.refused) == (3, [], 0)
    s.REST("0 0 3 3 61 61")
    s.FIN(request)
    s.REST("3 3 0 0 61 61")


@pytest.mark.parametrize(
    ("length", "given_back"), [(6, 1), (7, 2), (8, 3), (10, 5), (15, 10), (20, 15), (29, 24)]
)
def test_E05_sliding_gives_back_all_but_the_window_and_the_last_token(length: int, given_back: int) -> None:
    """n = 6 7 8 10 15 20 29 | START(n), SLIDE, FIN | given back 1 2 3 5 10 15 24; MATCH n; SE 5."""
    s = Story()
    request = s.START("r", range(length))
    assert s.SLIDE(request) == given_back
    assert s.SLIDE(request) == 0
    s.FIN(request)
    assert s.MATCH(range(length)) == length
    s.REST(f"{length} 5 0 0 {64 - length} 59")


@pytest.mark.parametrize(
    ("page", "window", "length", "given_back", "match"),
    [
        (8, 4, 10, 0, 8),
        (8, 2, 16, 0, 16),
        (8, 2, 25, 16, 24),
        (4, 8, 13, 4, 12),
        (4, 8, 17, 8, 16),
        (4, 8, 33, 24, 32),
        (16, 4, 40, 16, 32),
        (4, 6, 30, 20, 28),
        (4, 5, 18, 8, 16),
    ],
)
def test_E06_with_pages_sliding_leaves_a_window_before_the_last_whole_page(
    page: int, window: int, length: int, given_back: int, match: int
) -> None:
    """Full = SWA = 512 | START, SLIDE, FIN | given back 0 0 16 4 8 24 16 20 8; FE = MATCH."""
    s = Story(page=page, window=window, full=512, swa=512)
    request = s.START("r", range(length))
    assert s.SLIDE(request) == given_back
    s.FIN(request)
    assert s.MATCH(range(length)) == match
    s.REST(f"{match} {match - given_back} 0 0 {512 - match} {512 - match + given_back}")


def test_E07_a_follow_up_reuses_the_first_request_whole() -> None:
    """1..10 finished | START(1..10,50..53), FIN | hit 10; FP 10 SP 4; 14 14 0 0 50 50; MATCH 14."""
    s = Story()
    s.FIN(s.START("first", "1..10"))
    request = s.START("second", "1..10, 50..53")
    assert request.prefix_len == 10
    s.STATE("0 6 10 4")
    s.FIN(request)
    s.REST("14 14 0 0 50 50")
    assert s.MATCH("1..10, 50..53") == 14


def test_E08_two_requests_that_computed_the_same_end_up_on_the_same_slots() -> None:
    """two requests 1..8 at once | UNF both, FIN both | second hit 0; duplicates free; rows equal; FE 8."""
    s = Story()
    first, second = s.START("first", "1..8"), s.START("second", "1..8")
    assert second.prefix_len == 0
    assert not set(first.slots) & set(second.slots)
    s.UNF(first)
    committed = s.UNF(second)
    assert list(committed.row_changed) == [(0, 8)]
    assert list(first.slots) == list(second.slots) == s.SLOTS("1..8")
    s.REST("0 4 8 4 56 56")
    s.FIN(first)
    s.FIN(second)
    s.REST("8 8 0 0 56 56")


def test_E09_the_tail_of_an_unfinished_page_comes_back() -> None:
    """P=4, request of 6 tokens | FIN | 8 slots taken; MATCH 4; 4 4 0 0 60 60."""
    s = Story(page=4)
    request = s.START("r", "1..6")
    s.HELD(8, 8)
    assert len(request.slots) == 6
    s.FIN(request)
    assert s.MATCH("1..6") == 4
    s.REST("4 4 0 0 60 60")


def test_E12_a_commit_that_heals_under_a_lock_moves_the_row_to_the_locked_slots() -> None:
    """Full 128; 1..4 and 1..4,100 finished; INS(1..4,300..303); LOCK(1..4); RELSWA; EVICT(0,64) = (5,9)
    | START(1..4,200), UNF | hit 0; 4 Full come back; MATCH 1..4 = 4, OLD slots; the row names them."""
    s = Story(full=128)
    s.FIN(s.START("a", "1..4"))
    old = s.SLOTS("1..4")
    s.FIN(s.START("b", "1..4, 100"))
    s.INS("1..4, 300..303")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    assert s.EVICT(0, 64) == (5, 9)
    assert s.MATCH("1..4") == 0
    request = s.START("c", "1..4, 200")
    assert request.prefix_len == 0
    own = list(request.slots)
    free_before = s.cache.sizes().full.free
    committed = s.UNF(request)
    assert (committed.length, committed.refused) == (5, 0)
    assert list(committed.row_changed) == [(0, 4)]
    assert s.cache.sizes().full.free == free_before + 4
    assert s.MATCH("1..4") == 4
    assert s.SLOTS("1..4") == old
    assert list(request.slots) == [*old, own[4]]
    s.UNLOCK(lease)
    s.FIN(request)
    s.REST("5 5 0 0 123 59")
    assert s.cache.stats().recoveries_locked == 1
