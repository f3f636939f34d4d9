"""Worked cases C and D: what eviction takes first, and what a lock keeps from it."""

import pytest

from kvledger.core.errors import StaleLease
from tests.scenario.dsl import Story


@pytest.mark.parametrize("touched", [0, 1])
def test_C01_C02_eviction_takes_the_one_that_was_not_touched(touched: int) -> None:
    """INS([1,2]); INS([500,501]); touch one (LOCK, UNLOCK) | EVICT(2,0) | (2,2); the other one goes."""
    s = Story()
    prompts = [[1, 2], [500, 501]]
    for prompt in prompts:
        s.INS(prompt)
    s.UNLOCK(s.LOCK(prompts[touched]))
    assert s.EVICT(2, 0) == (2, 2)
    assert [s.MATCH(prompt) for prompt in prompts] == [2 if i == touched else 0 for i in (0, 1)]
    s.REST("2 2 0 0 62 62")


def test_C03_eviction_stops_when_it_has_enough_and_takes_all_when_asked_for_more() -> None:
    """four disjoint INS of 2 | EVICT(4,0), EVICT(100,0) | (4,4) then 4 4 0 0 60 60; (4,4) then empty."""
    s = Story()
    for head in (1, 11, 21, 31):
        s.INS([head, head + 1])
    assert s.EVICT(4, 0) == (4, 4)
    s.REST("4 4 0 0 60 60")
    assert s.EVICT(100, 0) == (4, 4)
    s.REST("0 0 0 0 64 64")


def test_C04_a_locked_branch_stays_while_its_sibling_goes() -> None:
    """INS([1,2,100,101]); INS([1,2,200,201]); LOCK(second) | EVICT(4,0); UNLOCK; EVICT(100,0)
    | before 2 2 4 4 58 58; (2,2), MATCH second 4, first 2, 0 0 4 4 60 60; then (4,4), empty."""
    s = Story()
    first, second = [1, 2, 100, 101], [1, 2, 200, 201]
    s.INS(first)
    s.INS(second)
    lease = s.LOCK(second)
    s.REST("2 2 4 4 58 58")
    assert s.EVICT(4, 0) == (2, 2)
    assert (s.MATCH(second), s.MATCH(first)) == (4, 2)
    s.REST("0 0 4 4 60 60")
    s.UNLOCK(lease)
    assert s.EVICT(100, 0) == (4, 4)
    s.REST("0 0 0 0 64 64")


def test_C05_a_locked_prompt_outlives_a_younger_one() -> None:
    """INS([1,2]); INS([500,501]); LOCK([1,2]) | EVICT(4,0); UNLOCK; EVICT(2,0)
    | 2 2 2 2 60 60; (2,2); MATCH 2 and 0; (2,2)."""
    s = Story()
    s.INS([1, 2])
    s.INS([500, 501])
    lease = s.LOCK([1, 2])
    s.REST("2 2 2 2 60 60")
    assert s.EVICT(4, 0) == (2, 2)
    assert (s.MATCH([1, 2]), s.MATCH([500, 501])) == (2, 0)
    s.UNLOCK(lease)
    assert s.EVICT(2, 0) == (2, 2)
    s.REST("0 0 0 0 64 64")


def test_C06_a_chain_is_eaten_from_its_end_until_all_is_free() -> None:
    """INS(1..2), INS(1..4), INS(1..6) | EVICT(12,0) | (6,6); everything free."""
    s = Story()
    for length in (2, 4, 6):
        s.INS(f"1..{length}")
    assert s.EVICT(12, 0) == (6, 6)
    s.REST("0 0 0 0 64 64")


def test_C09_swa_eviction_of_the_last_leaf_takes_its_tombstone_parents_along() -> None:
    """INS(1..3); INS(1..3,500..502) | EVICT(0,100) | (6,6): the childless tombstone parent goes too."""
    s = Story()
    s.INS("1..3")
    s.INS("1..3, 500..502")
    assert s.EVICT(0, 100) == (6, 6)
    s.REST("0 0 0 0 64 64")


def test_C12_the_tokens_reported_are_those_that_became_free() -> None:
    """five disjoint INS of 2 | EVICT(FE,0) | (10,10) = fall of FE, SE = rise of FA, SA."""
    s = Story()
    for head in range(0, 100, 20):
        s.INS([head, head + 1])
    before = s.figures()
    assert s.EVICT(before[0], 0) == (10, 10)
    after = s.figures()
    assert [before[0] - after[0], before[1] - after[1]] == [10, 10]
    assert [after[4] - before[4], after[5] - before[5]] == [10, 10]


def test_C15_nothing_locked_is_evicted_and_all_of_it_is_once_unlocked() -> None:
    """Full = SWA = 32, INS(1..4), LOCK | EVICT(4,4); UNLOCK; EVICT(4,0) | (0,0), MATCH 4; (4,4)."""
    s = Story(full=32, swa=32)
    s.INS("1..4")
    lease = s.LOCK("1..4")
    assert s.EVICT(4, 4) == (0, 0)
    assert s.MATCH("1..4") == 4
    s.UNLOCK(lease)
    assert s.EVICT(4, 0) == (4, 4)
    s.REST("0 0 0 0 32 32")


def test_C16_eviction_frees_at_least_a_page_and_never_a_part() -> None:
    """P=4, INS(1..8) | EVICT(1,0) | (4,4) and MATCH 4: the leaf was capped to one window."""
    s = Story(page=4)
    s.INS("1..8")
    assert s.EVICT(1, 0) == (4, 4)
    assert s.MATCH("1..8") == 4
    s.REST("4 4 0 0 60 60")


def test_D01_the_swa_half_of_a_lock_can_be_given_up_early() -> None:
    """SWA 32, INS(1..8), LOCK | RELSWA; UNLOCK | 0 4 8 4, then 0 8 8 0 (MATCH stays 8), then 8 8 0 0."""
    s = Story(swa=32)
    s.INS("1..8")
    lease = s.LOCK("1..8")
    s.STATE("0 4 8 4")
    s.RELSWA(lease)
    s.STATE("0 8 8 0")
    assert s.MATCH("1..8") == 8
    s.UNLOCK(lease)
    s.REST("8 8 0 0")


def test_D03_two_locks_need_two_unlocks_and_a_third_raises() -> None:
    """SWA 32, INS(1..8), LOCK twice | UNLOCK, UNLOCK | 0 4 8 4 after the first, 8 8 0 0 after the second."""
    s = Story(swa=32)
    s.INS("1..8")
    first, second = s.LOCK("1..8"), s.LOCK("1..8")
    s.UNLOCK(first)
    s.STATE("0 4 8 4")
    s.UNLOCK(second)
    s.REST("8 8 0 0")
    for lease in (first, second):
        with pytest.raises(StaleLease):
            s.cache.release(lease)
    s.see()


def test_D05_the_lock_of_a_missing_prefix_locks_nothing() -> None:
    """empty | LOCK of a missing prefix, UNLOCK | 0 0 0 0 64 64 throughout."""
    s = Story()
    lease = s.LOCK([1, 2, 3])
    assert (lease.length, list(lease.slots)) == (0, [])
    s.REST("0 0 0 0 64 64")
    s.UNLOCK(lease)
    s.REST("0 0 0 0 64 64")


def test_D08_a_full_locked_leaf_becomes_a_tombstone_and_outlives_its_unlock() -> None:
    """W=64, INS(1..4), LOCK | RELSWA; EVICT(0,4); UNLOCK | 0 0 4 0 60 64, then 4 0 0 0 60 64."""
    s = Story(window=64)
    s.INS("1..4")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    assert s.EVICT(0, 4) == (0, 4)
    s.REST("0 0 4 0 60 64")
    s.UNLOCK(lease)
    s.REST("4 0 0 0 60 64")


@pytest.mark.parametrize(
    ("page", "window", "length", "locked_swa"), [(2, 4, 4, 4), (8, 4, 16, 8), (4, 6, 8, 8)]
)
def test_D09_with_pages_the_swa_half_is_given_up_whole_and_full_stays(
    page: int, window: int, length: int, locked_swa: int
) -> None:
    """(P,W,n); INS(1..n), LOCK | RELSWA; UNLOCK | SP 4, 8, 8, then 0; FP n until UNLOCK."""
    s = Story(page=page, window=window)
    s.INS(range(1, length + 1))
    lease = s.LOCK(range(1, length + 1))
    s.STATE(f"0 {length - locked_swa} {length} {locked_swa}")
    s.RELSWA(lease)
    s.STATE(f"0 {length} {length} 0")
    s.UNLOCK(lease)
    s.REST(f"{length} {length} 0 0")
