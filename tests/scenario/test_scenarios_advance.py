"""Worked cases A: schedulers that keep their own rows insert behind a lease, and move it on.

Tokens from 1 on are a shared prompt, W = 4 and P = 1 unless a case says otherwise.
"""

from dataclasses import replace

import pytest

from kvledger.core import Lease
from kvledger.core.errors import CacheError, InvalidArgument, OutOfSlots, StaleLease
from kvledger.core.events import PrefixMatched
from kvledger.core.ids import RequestId
from tests.scenario.dsl import Slots, Story, tokens


def nothing_happens(s: Story, error: type[CacheError], call: object) -> CacheError:
    """A call raises; digest, sizes and journal are what they were."""
    before = (s.cache.digest(), s.cache.sizes(), len(s.sink.transactions))
    with pytest.raises(error) as caught:
        call()  # type: ignore[operator]
    assert (s.cache.digest(), s.cache.sizes(), len(s.sink.transactions)) == before
    s.see()
    return caught.value


# Growing.


def test_A01_insert_after_continues_what_is_locked_and_the_lock_stays() -> None:
    """INS(1..8); LOCK | 0 4 8 4 56 56 | AFTER(9..12) | prefix_len 8, adopted [(8,12)] twice; MATCH 12;
    4 8 8 4 52 52; the lease has 8 still."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    s.REST("0 4 8 4 56 56")
    journaled = len(s.sink.transactions)
    inserted = s.AFTER(lease, "9..12")
    assert [t.op for t in s.sink.transactions[journaled:]] == ["alloc", "insert"]
    assert inserted.prefix_len == 8
    assert (inserted.adopted_full, inserted.adopted_swa) == ([(8, 12)], [(8, 12)])
    assert s.cache.node(inserted.node_id or 0).end == 12
    assert s.MATCH("1..12") == 12
    assert s.SLOTS("1..12") == [*lease.slots, *s.last]
    assert lease.length == 8
    s.REST("4 8 8 4 52 52")
    s.UNLOCK(lease)
    s.REST("12 12 0 0 52 52")


def test_A02_advance_inserts_and_moves_the_lock_in_one_transaction() -> None:
    """INS(1..8); LOCK | ADVANCE(9..12) | (12, refused 0), SWA from 8; 0 8 12 4 52 52; the old lease is stale;
    UNLOCK: 12 12 0 0 52 52."""
    s = Story()
    s.INS("1..8")
    old = s.LOCK("1..8")
    journaled = len(s.sink.transactions)
    advanced = s.ADVANCE(old, "9..12")
    assert [t.op for t in s.sink.transactions[journaled:]] == ["alloc", "advance"]
    lease = advanced.lease
    assert (lease.length, lease.swa_from, advanced.refused) == (12, 8, 0)
    assert list(lease.slots) == [*old.slots, *s.last] == s.SLOTS("1..12")
    assert s.cache.node(lease.node_id or 0).end == 12
    s.REST("0 8 12 4 52 52")
    nothing_happens(s, StaleLease, lambda: s.cache.release(old))
    s.UNLOCK(lease)
    s.REST("12 12 0 0 52 52")


def test_A03_decode_moves_the_lock_token_by_token() -> None:
    """INS(1..4); LOCK | ADVANCE of 5, 6, ... 20 | one token more each, one window locked; FP 20, SP 4."""
    s = Story()
    s.INS("1..4")
    lease = s.LOCK("1..4")
    for token in range(5, 21):
        advanced = s.ADVANCE(lease, [token])
        lease = advanced.lease
        assert (lease.length, lease.swa_from, advanced.refused) == (token, token - 4, 0)
        s.REST(f"0 {token - 4} {token} 4 {64 - token} {64 - token}")
    assert list(lease.slots) == s.SLOTS("1..20")


def test_A04_a_lock_of_nothing_grows_from_the_root() -> None:
    """LOCK(1..8) of an empty tree: 0 | AFTER(50..53) | MATCH 4 | ADVANCE(1..8) | 8; 4 8 8 4 52 52."""
    s = Story()
    empty = s.LOCK("1..8")
    assert (empty.length, empty.node_id) == (0, None)
    inserted = s.AFTER(empty, "50..53")
    assert (inserted.prefix_len, inserted.adopted_full) == (0, [(0, 4)])
    advanced = s.ADVANCE(empty, "1..8")
    assert (advanced.lease.length, advanced.refused) == (8, 0)
    assert list(advanced.lease.slots) == list(s.last)
    s.REST("4 8 8 4 52 52")
    s.UNLOCK(advanced.lease)
    s.REST("12 12 0 0 52 52")


def test_A05_what_continues_a_lease_is_of_its_namespace() -> None:
    """INS(1..8) in "x" and ""; LOCK in "x"; a lock of nothing in "y" | AFTER, ADVANCE | only those grow."""
    s = Story()
    s.INS("1..8", namespace="x")
    s.INS("1..8")
    lease, empty = s.LOCK("1..8", "x"), s.LOCK("1..4", "y")
    s.AFTER(lease, "9..10")
    s.AFTER(empty, "1..2")
    assert [s.MATCH("1..12", namespace) for namespace in ("", "x", "y")] == [8, 10, 2]
    assert s.ADVANCE(lease, "9..12").lease.length == 12
    assert s.ADVANCE(empty, "1..3").lease.length == 3
    assert [s.MATCH("1..12", namespace) for namespace in ("", "x", "y")] == [8, 12, 3]
    assert {node.namespace for node in s.cache.nodes("y")} == {"y"}


@pytest.mark.parametrize("page", [2, 4, 16, 64])
def test_A06_growth_goes_by_whole_pages(page: int) -> None:
    """W = 2P, INS of 3 pages; LOCK | AFTER and ADVANCE of 3 pages | one duplicate run of 2 pages."""
    s = Story(page=page, window=2 * page, full=16 * page, swa=16 * page)
    row = list(range(6 * page))
    s.INS(row[: 3 * page])
    lease = s.LOCK(row)
    assert s.AFTER(lease, row[3 * page : 5 * page]).adopted_full == [(3 * page, 5 * page)]
    theirs = list(s.last)
    advanced = s.ADVANCE(lease, row[3 * page :])
    assert (advanced.lease.length, advanced.refused) == (6 * page, 0)
    assert list(advanced.lease.slots) == [*lease.slots, *theirs, *s.last[2 * page :]]
    s.REST(f"0 {4 * page} {6 * page} {2 * page} {10 * page} {10 * page}")


def test_A07_nothing_more_changes_nothing_and_is_no_transaction() -> None:
    """INS(1..8); LOCK | AFTER(), ADVANCE(), also with dead=8 | the same lease, nothing journaled."""
    s = Story()
    s.INS("1..8")
    lease, empty = s.LOCK("1..8"), s.LOCK("70")
    digest, journaled = s.cache.digest(), len(s.sink.transactions)
    for dead in (0, 4, 8):
        inserted = s.AFTER(lease, [], dead=dead)
        assert (inserted.prefix_len, inserted.node_id) == (8, lease.node_id)
        assert (inserted.adopted_full, inserted.adopted_swa) == ([], [])
        advanced = s.ADVANCE(lease, [], dead=dead)
        assert (advanced.lease, advanced.refused) == (lease, 0)
    assert s.AFTER(empty, []).node_id is None
    assert s.ADVANCE(empty, []).lease is empty
    assert (s.cache.digest(), len(s.sink.transactions)) == (digest, journaled)
    s.RELSWA(lease)
    digest, journaled = s.cache.digest(), len(s.sink.transactions)
    assert s.ADVANCE(lease, []).lease is lease
    assert (s.cache.digest(), len(s.sink.transactions)) == (digest, journaled)


# What is there already.


def test_A08_what_somebody_else_published_before_takes_the_place_of_ones_own_slots() -> None:
    """INS(1..8); LOCK; INS(1..12) | ADVANCE(9..14) | slots of 9..12 are the tree's, own 4 freed;
    0 10 14 4 50 50."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    s.INS("1..12", own=8)
    theirs = s.SLOTS("1..12")
    advanced = s.ADVANCE(lease, "9..14")
    assert (advanced.lease.length, advanced.refused) == (14, 0)
    assert list(advanced.lease.slots) == [*theirs, *s.last[4:]] == s.SLOTS("1..14")
    s.REST("0 10 14 4 50 50")


def test_A09_insert_after_frees_duplicates_and_says_what_was_new() -> None:
    """INS(1..8); LOCK; INS(1..12) | AFTER(9, 10, 50, 51) | prefix_len 10, adopted [(10,12)]; a split at 10;
    MATCH 1..12 = 12, 1..10, 50, 51 = 12; 6 10 8 4 50 50."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    s.INS("1..12", own=8)
    inserted = s.AFTER(lease, "9..10, 50..51")
    assert inserted.prefix_len == 10
    assert (inserted.adopted_full, inserted.adopted_swa) == ([(10, 12)], [(10, 12)])
    assert (s.MATCH("1..12"), s.MATCH("1..10, 50..51")) == (12, 12)
    s.REST("6 10 8 4 50 50")


def test_A10_two_callers_on_one_lease_end_share_what_the_first_brought() -> None:
    """INS(1..8); LOCK twice | ADVANCE(9..12) of both | the same slots; 0 8 12 4 52 52 until both unlock."""
    s = Story()
    s.INS("1..8")
    first, second = s.LOCK("1..8"), s.LOCK("1..8")
    one = s.ADVANCE(first, "9..12").lease
    two = s.ADVANCE(second, "9..12").lease
    assert list(one.slots) == list(two.slots) == s.SLOTS("1..12")
    s.REST("0 8 12 4 52 52")
    s.UNLOCK(one)
    s.REST("0 8 12 4 52 52")
    s.UNLOCK(two)
    s.REST("12 12 0 0 52 52")


def test_A11_a_tombstone_behind_the_lease_takes_the_new_slots_of_both_pools() -> None:
    """INS(1..8); INS(1..16, own 8, dead 16); LOCK: 8 | ADVANCE(9..16) | 16, slots are the new ones;
    0 12 16 4 48 48; 1 recovery, none under a lock."""
    s = Story()
    s.INS("1..8")
    s.INS("1..16", own=8, dead=16)
    lease = s.LOCK("1..16")
    assert lease.length == 8
    advanced = s.ADVANCE(lease, "9..16")
    assert (advanced.lease.length, advanced.refused) == (16, 0)
    assert list(advanced.lease.slots) == [*lease.slots, *s.last]
    s.REST("0 12 16 4 48 48")
    assert (s.cache.stats().recoveries, s.cache.stats().recoveries_locked) == (1, 0)


def locked_tombstones(s: Story, *, live_upto: int = 8) -> tuple[Lease, list[Lease], list[int]]:
    """1..16 in Full, locked; live are 5..8, which the first lease has, and what lies before `live_upto`."""
    s.INS("1..16")
    kept = s.SLOTS("1..16")
    lease, others = s.LOCK("1..8"), [s.LOCK("1..16")]
    if live_upto > 8:
        others.append(s.LOCK(f"1..{live_upto}"))
    s.RELSWA(others[0])
    live = live_upto - 4
    assert s.EVICT(0, 64) == (0, 16 - live)
    s.REST(f"0 0 16 {live} 48 {64 - live}")
    return lease, others, kept


def test_A12_a_locked_tombstone_behind_the_lease_keeps_its_full_and_takes_the_swa() -> None:
    """1..16 locked, 9..16 without SWA | ADVANCE(9..16) | 16, slots as before, SWA the incoming; incoming Full
    is free; 0 8 16 4 48 52; 2 recoveries under a lock."""
    s = Story()
    lease, others, kept = locked_tombstones(s)
    incoming = s.ALLOC(8)
    peers = list(s.cache.swa_slots(incoming))
    advanced = s.ADVANCE(lease, "9..16", incoming)
    assert (advanced.lease.length, advanced.refused) == (16, 0)
    assert list(advanced.lease.slots) == kept
    assert list(s.cache.swa_slots(kept[8:])) == peers
    assert not s.cache.swa_slots(incoming).any()
    s.REST("0 8 16 4 48 52")
    assert s.cache.stats().recoveries_locked == 2
    s.UNLOCK(others[0])
    s.UNLOCK(advanced.lease)
    s.REST("16 12 0 0 48 52")


def test_A13_insert_after_heals_under_a_lock_and_frees_the_incoming_full() -> None:
    """The same | AFTER(9..16) | adopted Full [], SWA [(8,16)]; 0 8 16 4 48 52."""
    s = Story()
    lease, _, kept = locked_tombstones(s)
    inserted = s.AFTER(lease, "9..16")
    assert (inserted.prefix_len, inserted.adopted_full, inserted.adopted_swa) == (16, [], [(8, 16)])
    assert s.SLOTS("1..16") == kept
    s.REST("0 8 16 4 48 52")


def test_A14_with_skip_all_of_an_advance_over_a_locked_tombstone_is_refused_and_stays_the_callers() -> None:
    """skip, the same | ADVANCE(9..16) | the old lease, refused 8; nothing changed but a skipped rollback;
    held 8 and 8; free of them; the old lease is released."""
    s = Story(locked_recovery="skip")
    lease, others, kept = locked_tombstones(s)
    incoming = s.ALLOC(8)
    before = s.cache.digest()
    advanced = s.ADVANCE(lease, "9..16", incoming)
    assert (advanced.lease, advanced.refused) == (lease, 8)
    assert s.cache.digest() == before
    s.HELD(8, 8)
    stats = s.cache.stats()
    assert (stats.skipped, stats.anomalies, stats.recoveries) == (1, 0, 0)
    s.cache.free(incoming)
    s.see()
    s.REST("0 0 16 4 48 60")
    s.UNLOCK(lease)
    s.UNLOCK(others[0])
    s.REST("16 4 0 0 48 60")
    assert s.SLOTS("1..8") == kept[:8]


def test_A15_with_skip_an_advance_goes_as_far_as_the_match_and_the_rest_stays_the_callers() -> None:
    """skip, 9..12 live and locked, 13..16 a locked tombstone | ADVANCE(9..16) | 12, refused 4; 9..12 freed;
    held 4 and 4, the last slots of the row, which can be freed."""
    s = Story(locked_recovery="skip")
    lease, _, kept = locked_tombstones(s, live_upto=12)
    advanced = s.ADVANCE(lease, "9..16")
    rest = s.last[len(s.last) - advanced.refused :]
    assert (advanced.lease.length, advanced.refused, list(rest)) == (12, 4, list(s.last[4:]))
    assert list(advanced.lease.slots) == kept[:12]
    (told,) = [event for event in s.sink.transactions[-1].events if isinstance(event, PrefixMatched)]
    assert (told.length, told.full_length) == (12, 16)
    s.STATE("0 4 16 4 44 52")
    s.HELD(4, 4)
    s.cache.free(rest)
    s.see()
    s.REST("0 4 16 4 48 56")
    again = s.ADVANCE(advanced.lease, "13..16")
    assert (again.lease, again.refused) == (advanced.lease, 4)


def test_A16_with_skip_insert_after_leaves_the_tombstone_and_frees_what_came() -> None:
    """skip, the same as A14 | AFTER(9..16) | prefix_len 16, nothing adopted, nothing held; 0 0 16 4 48 60."""
    s = Story(locked_recovery="skip")
    lease, _, _ = locked_tombstones(s)
    inserted = s.AFTER(lease, "9..16")
    assert (inserted.prefix_len, inserted.adopted_full, inserted.adopted_swa) == (16, [], [])
    s.REST("0 0 16 4 48 60")


# The window.


@pytest.mark.parametrize("keep", [False, True])
def test_A17_what_left_the_window_before_the_insert_becomes_a_tombstone(keep: bool) -> None:
    """INS(1..8); LOCK | ADVANCE(9..20, dead=16) | 20; a tombstone [8,16); MATCH 1..16 = 8; 0 8 20 4 44 52,
    whether its SWA was given back before or comes along."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    advanced = s.ADVANCE(lease, "9..20", dead=16, keep=keep)
    assert (advanced.lease.length, advanced.lease.swa_from, advanced.refused) == (20, 16, 0)
    assert [(node.start, node.end) for node in s.cache.nodes() if node.swa_slots is None] == [(8, 16)]
    assert s.MATCH("1..16") == 8
    s.REST("0 8 20 4 44 52")


@pytest.mark.parametrize("keep", [False, True])
def test_A18_insert_after_publishes_also_what_no_match_returns(keep: bool) -> None:
    """INS(1..8); LOCK | AFTER(9..12, dead=12) | a tombstone leaf; adopted Full [(8,12)], SWA []; MATCH 8;
    4 4 8 4 52 56."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    inserted = s.AFTER(lease, "9..12", dead=12, keep=keep)
    assert (inserted.adopted_full, inserted.adopted_swa) == ([(8, 12)], [])
    assert s.MATCH("1..12") == 8
    s.REST("4 4 8 4 52 56")


@pytest.mark.parametrize(
    ("end", "dead", "refused"), [(20, 17, True), (20, 16, False), (9, 9, True), (9, 8, False)]
)
def test_A19_an_advance_that_nobody_could_reuse_is_refused_before_its_first_event(
    end: int, dead: int, refused: bool
) -> None:
    """INS(1..8); LOCK | ADVANCE(9..end, dead) | InvalidArgument where end < dead + 4 and dead > 8."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    row = tokens(f"9..{end}")
    slots = s.ALLOC(len(row))
    if refused:
        nothing_happens(s, InvalidArgument, lambda: s.cache.advance(lease, row, slots, swa_evicted_len=dead))
        s.HELD(len(row), len(row))
    else:
        assert s.ADVANCE(lease, row, slots, dead=dead, keep=True).lease.length == end


def test_A20_behind_a_lease_that_gave_its_swa_back_an_advance_brings_a_window_of_its_own() -> None:
    """INS(1..8); LOCK; RELSWA; EVICT(0,64) = (0,8) | ADVANCE of 3 | InvalidArgument, also before that;
    of 4: 12, SWA locked from 8; 0 0 12 4 52 60."""
    s = Story()
    s.INS("1..8")
    lease = s.LOCK("1..8")
    s.RELSWA(lease)
    slots = s.ALLOC(4)
    row = tokens("9..12")
    nothing_happens(s, InvalidArgument, lambda: s.cache.advance(lease, row[:3], slots[:3]))
    assert s.EVICT(0, 64) == (0, 8)
    nothing_happens(s, InvalidArgument, lambda: s.cache.advance(lease, row[:3], slots[:3]))
    advanced = s.ADVANCE(lease, row, slots)
    assert (advanced.lease.length, advanced.lease.swa_from, advanced.refused) == (12, 8, 0)
    s.REST("0 0 12 4 52 60")
    s.RELSWA(advanced.lease)
    s.UNLOCK(advanced.lease)
    s.REST("12 4 0 0 52 60")


def test_A21_a_lock_of_nothing_that_gave_its_swa_back_needs_no_window() -> None:
    """LOCK of nothing; RELSWA | ADVANCE of 1 | 1: there is no tombstone before it."""
    s = Story()
    empty = s.LOCK("1")
    s.RELSWA(empty)
    assert s.ADVANCE(empty, "1").lease.length == 1
    s.REST("0 0 1 1 63 63")


# Leases that no longer hold.


def both(s: Story, lease: Lease, row: str, slots: Slots) -> list[object]:
    """The two calls on one lease."""
    return [
        lambda: s.cache.insert_after(lease, tokens(row), slots),
        lambda: s.cache.advance(lease, tokens(row), slots),
        lambda: s.cache.insert_after(lease, [], []),
        lambda: s.cache.advance(lease, [], []),
    ]


def test_A22_a_lease_that_was_released_moved_on_or_reset_is_stale() -> None:
    """INS(1..8); LOCK three times, one each of UNLOCK, ADVANCE and RESET | AFTER and ADVANCE | StaleLease."""
    s = Story()
    s.INS("1..8")
    released, moved, cut = s.LOCK("1..8"), s.LOCK("1..8"), s.LOCK("1..8")
    s.UNLOCK(released)
    s.ADVANCE(moved, "9..10")
    slots = s.ALLOC(2)
    for lease in (released, moved):
        for call in both(s, lease, "9..10", slots):
            nothing_happens(s, StaleLease, call)
    s.cache.reset()
    s.see()
    for call in both(s, cut, "9..10", slots):
        nothing_happens(s, StaleLease, call)
    s.HELD(2, 2)


def test_A23_a_rollback_takes_the_move_back_and_the_old_lease_holds_again() -> None:
    """INS(1..8); LOCK | in a transaction: ADVANCE(9..12), rollback | the old lease holds, the new one is
    stale, the slots are the caller's | ADVANCE again: 12."""
    s = Story()
    s.INS("1..8")
    old = s.LOCK("1..8")
    slots = s.ALLOC(4)
    before = s.cache.digest()
    with s.cache.transaction("try") as t:
        moved = s.cache.advance(old, tokens("9..12"), slots).lease
        t.rollback(reason="changed its mind")
        assert s.cache.digest() == before
    s.see()
    s.HELD(4, 4)
    for call in (*both(s, moved, "13..14", slots[:2]), lambda: s.cache.release(moved)):
        nothing_happens(s, StaleLease, call)
    assert s.ADVANCE(old, "9..12", slots).lease.length == 12


def test_A24_moves_add_up_in_a_transaction_and_its_savepoints_serve_across_a_refusal() -> None:
    """skip, A15's tree | in a transaction: savepoint, ADVANCE(9..16): 12 and 4 refused, ADVANCE(50..53),
    rollback to the savepoint | as before; the same without a rollback: lease 16, held 4."""
    s = Story(locked_recovery="skip")
    lease, _, _ = locked_tombstones(s, live_upto=12)
    slots, more = s.ALLOC(8), s.ALLOC(4)
    before = s.cache.digest()
    with s.cache.transaction("step") as t:
        start = t.savepoint()
        first = s.cache.advance(lease, tokens("9..16"), slots)
        assert (first.lease.length, first.refused) == (12, 4)
        between = t.savepoint()
        s.cache.advance(first.lease, tokens("50..53"), more)
        t.rollback(between, reason="the second alone")
        t.rollback(start, reason="both")
        assert s.cache.digest() == before
    s.see()
    with s.cache.transaction("step"):
        first = s.cache.advance(lease, tokens("9..16"), slots)
        second = s.cache.advance(first.lease, tokens("50..53"), more)
    s.see()
    assert (second.lease.length, second.refused) == (16, 0)
    s.HELD(4, 4)
    assert list(second.lease.slots) == s.SLOTS("1..12, 50..53")


@pytest.mark.parametrize("what", [None, 1, "lease", object()])
def test_A25_what_is_no_lease_is_refused(what: object) -> None:
    s = Story()
    slots = s.ALLOC(2)
    for call in both(s, what, "1..2", slots):  # type: ignore[arg-type]
        nothing_happens(s, InvalidArgument, call)


def test_A26_a_lease_of_a_request_or_of_another_cache_is_refused() -> None:
    """A request moves its own lock; a receipt is good where it was given."""
    s, other = Story(), Story()
    for story in (s, other):
        story.INS("1..8")
    slots = s.ALLOC(2)
    mine, theirs = s.LOCK("1..8"), other.LOCK("1..8")
    assert mine.id == theirs.id
    for call in both(s, theirs, "9..10", slots):
        nothing_happens(s, StaleLease, call)
    for call in both(s, replace(mine, request_id=RequestId("r")), "9..10", slots):
        nothing_happens(s, InvalidArgument, call)


def test_A27_a_scheduler_with_rows_of_its_own_serves_until_the_pools_are_full() -> None:
    """Full = SWA = 32, P=2 W=4 | ten prompts that share a head of 8: lock, alloc (evicting), advance, decode,
    give SWA back, insert what is left, unlock | no slot is lost, 9 of 10 hit."""
    s = Story(page=2, window=4, full=32, swa=32)
    hits = 0
    for number in range(10):
        prompt = [*range(8), *range(100 + 4 * number, 104 + 4 * number)]
        lease = s.LOCK(prompt[:-1])
        hits += lease.length > 0
        need = len(prompt) + 4 - lease.length
        try:
            slots = s.ALLOC(need)
        except OutOfSlots:
            s.EVICT(need, need)
            slots = s.ALLOC(need)
        fresh = len(prompt) - lease.length
        lease = s.ADVANCE(lease, prompt[lease.length :], slots[:fresh]).lease
        assert lease.length == len(prompt)
        s.AFTER(lease, range(500 + 4 * number, 504 + 4 * number), slots[fresh:])
        s.UNLOCK(lease)
        s.HELD(0, 0)
    assert hits == 9
    s.EVICT(32, 32)
    s.REST("0 0 0 0 32 32")
