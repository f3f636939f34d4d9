"""Worked cases B: a dead window prefix, healing it, and healing it under a Full lock."""

import pytest

from kvledger.core import Lease
from kvledger.core.errors import DoubleFree
from tests.scenario.dsl import Slots, Story


def test_B01_a_window_of_live_swa_after_a_tombstone_is_enough() -> None:
    """empty | INS(1..8, dead=4) | 8 4 0 0 56 60; MATCH 1..8 = 8, 1..7 = 0, 1..4 = 0."""
    s = Story()
    s.INS("1..8", dead=4)
    s.REST("8 4 0 0 56 60")
    assert [s.MATCH("1..8"), s.MATCH("1..7"), s.MATCH("1..4")] == [8, 0, 0]


def test_B02_one_live_token_fewer_than_the_window_is_not() -> None:
    """empty | INS(1..8, dead=5) | 8 3 0 0 56 61; MATCH 1..8 = 0."""
    s = Story()
    s.INS("1..8", dead=5)
    s.REST("8 3 0 0 56 61")
    assert s.MATCH("1..8") == 0
    assert s.cache.match_prefix(list(range(1, 9))).full_length == 8


def test_B03_a_leaf_without_any_swa_stays_as_a_tombstone() -> None:
    """empty | INS(1..4, dead=4) | a tombstone leaf stays: 4 0 0 0 60 64; MATCH 0."""
    s = Story()
    s.INS("1..4", dead=4)
    s.REST("4 0 0 0 60 64")
    assert s.MATCH("1..4") == 0
    assert [node.swa_slots for node in s.cache.nodes()] == [None]


def test_B04_the_match_is_usable_from_one_window_past_the_dead_prefix() -> None:
    """INS(1..20, dead=12) | 20 8 0 0 44 56; MATCH of 20 19 17 16 15 12 8 = 20 19 17 16 0 0 0."""
    s = Story()
    s.INS("1..20", dead=12)
    s.REST("20 8 0 0 44 56")
    matches = [s.MATCH(f"1..{length}") for length in (20, 19, 17, 16, 15, 12, 8)]
    assert matches == [20, 19, 17, 16, 0, 0, 0]


def test_B05_with_pages_the_window_is_counted_in_tokens_and_the_match_in_pages() -> None:
    """P=4 W=2 | INS(1..16, dead=8) | 16 8 0 0 48 56; MATCH 16 12 8 4 = 16 12 0 0."""
    s = Story(page=4, window=2)
    s.INS("1..16", dead=8)
    s.REST("16 8 0 0 48 56")
    assert [s.MATCH(f"1..{length}") for length in (16, 12, 8, 4)] == [16, 12, 0, 0]


def test_B07_an_unlocked_tombstone_takes_the_new_slots_of_both_pools() -> None:
    """INS(1..8, dead=8) A | INS(1..8) B | result 8; MATCH 8 with slots B; 8 8 0 0 56 56."""
    s = Story()
    s.INS("1..8", dead=8)
    assert s.INS("1..8") == 8
    assert s.MATCH("1..8") == 8
    assert s.SLOTS("1..8") == list(s.last)
    s.REST("8 8 0 0 56 56")


def test_B08_a_tombstone_straddling_the_dead_prefix_is_healed_behind_it() -> None:
    """INS(1..8, dead=8) A | INS(1..8, dead=4) B | MATCH 8, slots A[0:4] + B[4:8]; 8 4 0 0 56 60."""
    s = Story()
    s.INS("1..8", dead=8)
    first = s.last
    s.INS("1..8", dead=4)
    assert s.MATCH("1..8") == 8
    assert s.SLOTS("1..8") == [*first[:4], *s.last[4:]]
    s.REST("8 4 0 0 56 60")


def test_B09_a_dead_prefix_heals_nothing() -> None:
    """INS(1..8, dead=8) | INS(1..8, dead=8) | nothing changes, the second set came back."""
    s = Story()
    s.INS("1..8", dead=8)
    first = list(s.last)
    s.INS("1..8", dead=8)
    s.REST("8 0 0 0 56 64")
    assert [list(node.full_slots) for node in s.cache.nodes()] == [first]


def tombstone_under_full_lock(s: Story) -> tuple[Slots, Lease]:
    """B11 up to the healing: 1..4 in slots A, locked in Full, and its SWA evicted."""
    s.INS("1..4")
    slots = s.last
    s.INS("1..4, 100..103")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    assert s.EVICT(0, 8) == (4, 8)
    return slots, lease


def test_B11_healing_under_a_full_lock_keeps_the_locked_full_and_takes_the_swa() -> None:
    """INS(1..4) A; INS(1..4,100..103); LOCK; RELSWA; EVICT(0,8) = (4,8) | 0 0 4 0 60 64 | INS(1..4) B
    | MATCH 4 with slots A; B's SWA is A's; B's Full is free and maps to nothing; 0 4 4 0 60 60; UNLOCK."""
    s = Story()
    kept, lease = tombstone_under_full_lock(s)
    s.REST("0 0 4 0 60 64")
    assert s.MATCH("1..4, 100..103") == 0
    incoming = s.ALLOC(4)
    peers = list(s.cache.swa_slots(incoming))
    s.INSERT("1..4", incoming)
    assert s.MATCH("1..4") == 4
    assert s.SLOTS("1..4") == list(kept)
    assert list(s.cache.swa_slots(kept)) == peers
    assert list(s.cache.swa_slots(incoming)) == [0, 0, 0, 0]
    with pytest.raises(DoubleFree):
        s.cache.free(incoming)
    s.REST("0 4 4 0 60 60")
    s.UNLOCK(lease)
    s.REST("4 4 0 0 60 60")
    assert (s.cache.stats().recoveries, s.cache.stats().recoveries_locked) == (1, 1)


def test_B12_without_the_lock_everything_goes_and_the_new_slots_stay() -> None:
    """B11 without the lock | EVICT(0,8); INS(1..4) B | (8,8); result 0; MATCH 4 with B; 4 4 0 0 60 60."""
    s = Story()
    s.INS("1..4")
    s.INS("1..4, 100..103")
    assert s.EVICT(0, 8) == (8, 8)
    s.REST("0 0 0 0 64 64")
    assert s.INS("1..4") == 0
    assert s.MATCH("1..4") == 4
    assert s.SLOTS("1..4") == list(s.last)
    s.REST("4 4 0 0 60 60")


def test_B13_a_straddling_tombstone_is_healed_behind_the_dead_prefix_under_a_lock() -> None:
    """INS(1..8) A; INS(1..8,100..103); LOCK(1..8); RELSWA; EVICT(0,16) = (4,12); 0 0 8 0 56 64
    | INS(1..8, dead=4) B | MATCH 8 with A; the SWA of A[4:8] is B's; 0 4 8 0 56 60. UNLOCK: 8 4 0 0."""
    s = Story()
    s.INS("1..8")
    kept = s.last
    s.INS("1..8, 100..103")
    lease = s.LOCK("1..8")
    s.RELSWA(lease)
    assert s.EVICT(0, 16) == (4, 12)
    s.REST("0 0 8 0 56 64")
    incoming = s.ALLOC(8)
    s.cache.free_swa(incoming[:4])
    peers = list(s.cache.swa_slots(incoming[4:]))
    s.INSERT("1..8", incoming, dead=4)
    assert s.MATCH("1..8") == 8
    assert s.SLOTS("1..8") == list(kept)
    assert list(s.cache.swa_slots(kept)) == [0, 0, 0, 0, *peers]
    s.REST("0 4 8 0 56 60")
    s.UNLOCK(lease)
    s.REST("8 4 0 0 56 60")


def test_B11_with_skip_the_locked_tombstone_stays_and_the_incoming_slots_come_back() -> None:
    """DESIGN 5: "skip" leaves the tombstone."""
    s = Story(locked_recovery="skip")
    kept, lease = tombstone_under_full_lock(s)
    inserted = s.INSERT("1..4")
    assert (inserted.prefix_len, list(inserted.adopted_full), list(inserted.adopted_swa)) == (4, [], [])
    assert s.MATCH("1..4") == 0
    assert list(s.cache.swa_slots(kept)) == [0, 0, 0, 0]
    s.REST("0 0 4 0 60 64")
    s.UNLOCK(lease)
    s.REST("4 0 0 0 60 64")


@pytest.mark.parametrize("page", [2, 4, 16, 64])
def test_B11_and_B13_hold_page_by_page_for_larger_pages(page: int) -> None:
    """The heart at page sizes above one: four pages locked, the head of two stays dead, the tail heals."""
    s = Story(page=page, window=2 * page, full=16 * page, swa=16 * page)
    head, tail = range(4 * page), range(1000, 1000 + 4 * page)
    s.INS(head)
    kept = s.last
    s.INS([*head, *tail])
    lease = s.LOCK(head)
    s.RELSWA(lease)
    assert s.EVICT(0, 8 * page) == (4 * page, 8 * page)
    incoming = s.ALLOC(4 * page)
    s.cache.free_swa(incoming[: 2 * page])
    peers = list(s.cache.swa_slots(incoming[2 * page :]))
    inserted = s.INSERT(head, incoming, dead=2 * page)
    assert list(inserted.adopted_full) == []
    assert list(inserted.adopted_swa) == [(2 * page, 4 * page)]
    assert s.SLOTS(head) == list(kept)
    assert list(s.cache.swa_slots(kept[2 * page :])) == peers
    assert not s.cache.swa_slots(incoming).any()
    s.UNLOCK(lease)
    s.REST(f"{4 * page} {2 * page} 0 0 {12 * page} {14 * page}")
