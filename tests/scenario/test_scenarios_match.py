"""Worked cases A: match, insert and split, with exact numbers (`FE SE FP SP FA SA`, see dsl.py)."""

import pytest

from tests.scenario.dsl import Story


def test_A01_a_prompt_that_grows_by_a_token_shares_its_head() -> None:
    """empty | INS([1,2]); INS([1,2,1000]) | 0, 2. MATCH [1,2,1000] 3, [1,2,9000] 2, [5000,5001] 0."""
    s = Story()
    assert s.INS([1, 2]) == 0
    assert s.INS([1, 2, 1000]) == 2
    assert s.MATCH([1, 2, 1000]) == 3
    assert s.MATCH([1, 2, 9000]) == 2
    assert s.MATCH([5000, 5001]) == 0
    s.REST("3 3 0 0 61 61")


def test_A02_two_prompts_that_part_share_the_node_before_the_parting() -> None:
    """empty | INS([1,2]); INS([1,2,100,101]); INS([1,2,200,201]) | 0, 2, 2. MATCH 4 4; [1,2,999] 2."""
    s = Story()
    assert [s.INS([1, 2]), s.INS([1, 2, 100, 101]), s.INS([1, 2, 200, 201])] == [0, 2, 2]
    assert s.MATCH([1, 2, 100, 101]) == 4
    assert s.MATCH([1, 2, 200, 201]) == 4
    assert s.MATCH([1, 2, 999]) == 2
    s.REST("6 6 0 0 58 58")


def test_A03_a_duplicate_comes_back_and_a_protected_head_is_not_taken_again() -> None:
    """empty | INS([1]); INS([1,2]); INS([1,2,3], own=2) | Full taken 1, 2, then 3; results 0, 1, 2."""
    s = Story()
    assert s.INS([1]) == 0
    s.REST("1 1 0 0 63 63")
    first = s.SLOTS([1])
    assert s.INS([1, 2]) == 1
    s.REST("2 2 0 0 62 62")
    assert s.SLOTS([1]) == first
    kept = s.SLOTS([1, 2])
    assert s.INS([1, 2, 3], own=2) == 2
    s.REST("3 3 0 0 61 61")
    assert s.SLOTS([1, 2, 3])[:2] == kept


def test_A04_a_match_ends_on_a_page() -> None:
    """P=4, INS(1..8) | MATCH(1..8 and 3 foreign); MATCH([1,2,3]) | 8; 0. 8 8 0 0 56 56."""
    s = Story(page=4)
    s.INS("1..8")
    assert s.MATCH("1..8, 900..902") == 8
    assert s.MATCH([1, 2, 3]) == 0
    s.REST("8 8 0 0 56 56")


def test_A06_a_shorter_prefix_names_the_first_of_the_same_slots() -> None:
    """INS(1..6) | MATCH(1..6), MATCH(1..3) | 6, 3; the three slots are the first three of the six."""
    s = Story()
    s.INS("1..6")
    assert (s.MATCH("1..6"), s.MATCH("1..3")) == (6, 3)
    assert s.SLOTS("1..3") == s.SLOTS("1..6")[:3]
    assert len(s.SLOTS("1..6")) == 6
    s.REST("6 6 0 0 58 58")


def test_A07_a_lock_protects_the_whole_of_full_and_one_window_of_swa() -> None:
    """Full 128, INS(1..12) | LOCK(1..12), UNLOCK | 12 12 0 0 116 52; 0 8 12 4 116 52; then as before."""
    s = Story(full=128)
    s.INS("1..12")
    s.REST("12 12 0 0 116 52")
    lease = s.LOCK("1..12")
    s.REST("0 8 12 4 116 52")
    s.UNLOCK(lease)
    s.REST("12 12 0 0 116 52")


@pytest.mark.parametrize(
    ("window", "page", "length", "locked_swa"),
    [
        (4, 1, 12, 4),
        (4, 1, 5, 4),
        (1, 1, 5, 1),
        (4, 2, 12, 4),
        (8, 2, 12, 8),
        (3, 2, 12, 4),
        (5, 4, 12, 8),
        (4, 1, 3, 3),
        (8, 2, 4, 4),
        (4, 4, 4, 4),
    ],
)
def test_A08_a_lock_pins_the_window_rounded_up_to_pages(
    window: int, page: int, length: int, locked_swa: int
) -> None:
    """Full 128, INS(0..n-1), LOCK | SP = min(n, W rounded up to pages); FP = n."""
    s = Story(window=window, page=page, full=128)
    s.INS(range(length))
    lease = s.LOCK(range(length))
    s.REST(f"0 {length - locked_swa} {length} {locked_swa} {128 - length} {64 - length}")
    assert lease.swa_from == length - locked_swa


def test_A09_an_empty_cache_matches_nothing_and_has_nothing_to_evict() -> None:
    """empty | MATCH([1,2,3]), EVICT(10,10) | 0; (0,0); 0 0 0 0 64 64."""
    s = Story()
    assert s.MATCH([1, 2, 3]) == 0
    assert s.EVICT(10, 10) == (0, 0)
    s.REST("0 0 0 0 64 64")


def test_A10_equal_tokens_in_two_namespaces_are_two_prefixes() -> None:
    """INS([1,2,3]) in namespace x and again in y | MATCH in x, y, none | 3, 3, 0. 6 6 0 0 58 58."""
    s = Story()
    s.INS([1, 2, 3], namespace="x")
    s.INS([1, 2, 3], namespace="y")
    assert [s.MATCH([1, 2, 3], namespace) for namespace in ("x", "y", "")] == [3, 3, 0]
    assert not set(s.SLOTS([1, 2, 3], "x")) & set(s.SLOTS([1, 2, 3], "y"))
    s.REST("6 6 0 0 58 58")


def test_A11_a_duplicate_of_live_slots_comes_back_whole() -> None:
    """SWA 32, INS(1..5) slots A | INS(1..5) slots B | MATCH gives A; all of B came back: 5 5 0 0 59 27."""
    s = Story(swa=32)
    s.INS("1..5")
    first = list(s.last)
    s.INS("1..5")
    assert s.SLOTS("1..5") == first
    s.REST("5 5 0 0 59 27")
