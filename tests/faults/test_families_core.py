"""Families of faults that caches of this kind have really had, each with the right value.

The numbers are those of docs/planted-faults.md, which says where each family has its tests. Families that a
worked case shows already (1, 3, 5 in part) stand here only with what that case leaves out; 18 is the
scheduler's, and from 32 on they are the journal's (test_families_journal.py).
"""

import itertools

import numpy as np
import pytest

from kvledger.core import HybridCache, Request
from kvledger.core import commit as commit_module
from kvledger.core.errors import InvariantViolation, OutOfSlots
from kvledger.core.events import NodeDeleted, RolledBack
from kvledger.core.insertion import Insertion
from kvledger.core.node import Node
from tests.scenario.dsl import Story, tokens


def lock_counts(cache: HybridCache) -> list[tuple[int, int, int, int]]:
    """(start, end, full lock, SWA lock) of each node, by position."""
    return sorted((node.start, node.end, node.full_lock, node.swa_lock) for node in cache.nodes())


@pytest.mark.parametrize("page", [1, 4, 64])
def test_01_a_locked_node_keeps_its_full_slots_however_often_it_is_healed(page: int) -> None:
    s = Story(page=page, window=2 * page, full=40 * page, swa=40 * page)
    head = range(4 * page)
    s.INS(head)
    kept = list(s.last)
    lease = s.LOCK(head)
    s.RELSWA(lease)
    for _ in range(3):
        assert s.EVICT(0, 40 * page) == (0, 4 * page)
        s.INS(head)
        assert s.SLOTS(head) == kept
    assert s.cache.stats().recoveries_locked == 3 * len(s.cache.nodes())
    assert s.cache.stats().mixed_nodes == len(s.cache.nodes())


def test_02_what_a_running_request_publishes_is_dead_before_its_frontier() -> None:
    s = Story()
    request = s.START("r", "1..20")
    assert s.SLIDE(request) == 15
    s.UNF(request)
    dead = [(node.start, node.end) for node in s.cache.nodes() if node.swa_slots is None]
    live = [(node.start, node.end) for node in s.cache.nodes() if node.swa_slots is not None]
    assert dead == [(0, 15)]
    assert sorted(live)[0][0] == 15
    assert all(node.swa_slots.all() for node in s.cache.nodes() if node.swa_slots is not None)


def heal_short(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let the match in a commit end `at` pages, as if the insert had promised too much."""
    found = commit_module._accepted

    def short(insertion: Insertion, start: Node | None, base: int) -> tuple[int, Node | None]:
        found(insertion, start, base)
        if at < base:
            return base - 1, None
        return at, next(step.node for step in insertion.steps if step.end == at)

    monkeypatch.setattr(commit_module, "_accepted", short)


@pytest.mark.interpreted
def test_04_what_a_commit_offers_beyond_the_match_is_undone_and_told_as_an_anomaly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Story()
    s.INS("1..4, 90")
    request = s.START("r", "1..4, 5..8")
    s.INS("1..4, 5..6")
    row = list(request.slots)
    heal_short(monkeypatch, 6)
    committed = s.UNF(request)
    assert (committed.length, committed.refused) == (6, 2)
    assert s.MATCH("1..8") == 6
    assert list(request.slots[6:]) == row[6:]
    s.HELD(2, 2)
    last = s.sink.transactions[-1]
    undone = [event.kind for event, mark in zip(last.events, last.undone, strict=True) if mark]
    assert "node_created" in undone
    assert [str(event.cause) for event in last.events if isinstance(event, RolledBack)] == ["refused"]
    assert s.cache.stats().anomalies == 1


@pytest.mark.interpreted
def test_04_a_match_below_the_protected_length_is_a_broken_invariant_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Story()
    s.INS("1..4")
    request = s.START("r", "1..9")
    digest, row = s.cache.digest(), list(request.slots)
    heal_short(monkeypatch, 2)
    with pytest.raises(InvariantViolation) as caught:
        request.commit()
    assert [invariant for invariant, _ in caught.value.violations] == ["insert-match"]
    assert (s.cache.digest(), list(request.slots)) == (digest, row)
    s.see()


def test_04_with_skip_a_request_keeps_all_its_own_slots_where_nothing_of_it_would_match() -> None:
    s = Story(locked_recovery="skip")
    request = s.START("r", "1..9")
    s.INS("1..8")
    lost = s.LOCK("1..8")
    s.RELSWA(lost)
    assert s.EVICT(0, 64) == (0, 8)
    own = list(request.slots)
    committed = s.UNF(request)
    assert (committed.length, list(committed.row_changed), committed.refused) == (0, [], 9)
    assert list(request.slots) == own
    s.HELD(9, 9)
    assert (s.cache.stats().skipped, s.cache.stats().anomalies) == (1, 0)


def test_04_with_skip_a_commit_ends_at_the_locked_tombstone_where_its_head_is_usable() -> None:
    s = Story(locked_recovery="skip", window=2)
    request = s.START("r", "1..9")
    s.INS("1..4")
    s.INS("1..8")
    lost = s.LOCK("1..8")
    s.RELSWA(lost)
    live = s.LOCK("1..2")
    s.EVICT(0, 64)
    assert (s.MATCH("1..2"), s.MATCH("1..8")) == (2, 2)
    own = list(request.slots)
    committed = s.UNF(request)
    assert (committed.length, list(committed.row_changed), committed.refused) == (2, [(0, 2)], 7)
    assert list(request.slots) == [*s.SLOTS("1..2"), *own[2:]]
    s.HELD(7, 7)
    s.UNLOCK(live)
    s.UNLOCK(lost)
    s.FIN(request)
    assert s.MATCH("1..9") == 9


@pytest.mark.parametrize(
    ("page", "window"), [(1, 1), (1, 5), (2, 3), (4, 1), (4, 4), (4, 6), (8, 3), (16, 4), (16, 17)]
)
def test_05_after_sliding_a_finished_request_matches_to_its_last_whole_page(page: int, window: int) -> None:
    for length in range(1, 6 * page + 2 * window, max(1, page // 3)):
        s = Story(page=page, window=window, full=160, swa=160)
        request = s.START("r", range(length))
        s.SLIDE(request)
        s.FIN(request)
        assert s.MATCH(range(length)) == length // page * page


@pytest.mark.parametrize(("page", "window"), [(1, 4), (4, 6), (8, 3)])
def test_06_what_is_published_is_dead_up_to_the_frontier_and_live_from_there_on(
    page: int, window: int
) -> None:
    """Frontier and key are counted in the same tokens, whatever the length: none is off by a page."""
    for length in range(1, 6 * page + 2 * window, max(1, page // 3)):
        s = Story(page=page, window=window, full=160, swa=160)
        request = s.START("r", range(length))
        s.SLIDE(request)
        frontier = request.frontier
        s.FIN(request)
        dead = [node.end for node in s.cache.nodes() if node.swa_slots is None]
        live = [node.start for node in s.cache.nodes() if node.swa_slots is not None]
        assert max(dead, default=0) == min(live, default=frontier) == frontier


def test_07_the_last_page_of_a_running_request_is_not_published() -> None:
    s = Story(page=4)
    request = s.START("r", "1..6")
    assert s.UNF(request).length == 4
    s.STATE("0 0 4 4 56 56")
    s.HELD(4, 4)
    request.append([7, 8])
    s.EXTEND(request, 2)
    request.computed()
    assert s.UNF(request).length == 8
    s.REST("0 4 8 4 56 56")


@pytest.mark.parametrize("dead", [0, 8], ids=["live", "tombstone"])
@pytest.mark.parametrize("page", [1, 2])
def test_08_a_protected_length_inside_a_node_leaves_its_head_alone(dead: int, page: int) -> None:
    s = Story(page=page)
    s.INS("1..8", dead=dead)
    kept = s.last.copy()
    mine = np.concatenate([kept[:4], s.ALLOC(8)])
    inserted = s.INSERT("1..12", mine, own=4)
    assert inserted.prefix_len == 8
    assert s.SLOTS("1..12")[:4] == list(kept[:4])
    healed = dead > 0
    assert list(inserted.adopted_full) == [(4, 12) if healed else (8, 12)]
    assert s.SLOTS("1..12")[4:8] == list(mine[4:8] if healed else kept[4:8])
    s.REST(f"12 {8 if healed else 12} 0 0 52 {56 if healed else 52}")


def test_09_a_waiting_requests_row_node_length_and_lease_change_as_one_event() -> None:
    s = Story()
    request = s.OPEN("r", "1..9")
    assert request.prefix_len == 0
    s.INS("1..8")
    s.REFRESH(request)
    events = s.sink.transactions[-1].events
    assert [event.kind for event in events].count("request_row_changed") == 1
    assert (request.prefix_len, request.protected_len, len(request.slots)) == (8, 8, 8)
    assert request.lease is not None
    assert request.lease.length == 8
    s.ABORT(request)
    s.REST("8 8 0 0 56 56")


def test_10_committing_twice_without_a_new_page_inserts_nothing() -> None:
    s = Story(page=4)
    request = s.START("r", "1..10")
    assert s.UNF(request).length == 8
    before, sizes, journaled = s.cache.digest(), s.cache.sizes(), len(s.sink.transactions)
    again = s.UNF(request)
    assert (again.length, list(again.row_changed), again.refused) == (8, [], 0)
    assert s.cache.sizes() == sizes
    assert s.cache.digest() == before
    later = [event.kind for record in s.sink.transactions[journaled:] for event in record.events]
    assert "prefix_inserted" not in later


def test_11_a_tombstone_maps_to_nothing_and_its_recovery_frees_no_swa_of_somebody_else() -> None:
    s = Story()
    s.INS("1..4")
    old = s.last
    s.INS("1..4, 100..103")
    lease = s.LOCK("1..4, 100..103")
    s.RELSWA(lease)
    s.EVICT(0, 64)
    assert not s.cache.swa_slots(old).any()
    others = s.ALLOC(8)
    peers = list(s.cache.swa_slots(others))
    s.INS("1..4")
    s.UNLOCK(lease)
    s.INS("1..4, 100..103")
    assert list(s.cache.swa_slots(others)) == peers
    s.cache.free(others)
    s.see()


def test_12_a_free_of_an_earlier_step_frees_what_it_named_then() -> None:
    s = Story()
    s.INS("1..4")
    kept = s.last
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    s.EVICT(0, 64)
    first, second = s.ALLOC(4), s.ALLOC(4)
    gone = list(s.cache.swa_slots(first))
    moved = list(s.cache.swa_slots(second))
    with s.cache.transaction("group"):
        s.cache.free(first)
        s.cache.insert(tokens("1..4"), second)
        assert not s.cache.swa_slots(first).any()
        assert list(s.cache.swa_slots(kept)) == moved
        s.HELD(8, 4)
    s.see()
    assert list(s.cache.swa_slots(kept)) == moved
    s.STATE("0 4 4 0 60 60")
    s.HELD(0, 0)
    assert set(gone) <= set(s.cache.swa_slots(s.ALLOC(60)))


def test_12_a_tombstone_recovered_and_lost_again_in_one_transaction_frees_each_page_once() -> None:
    s = Story()
    s.INS("1..4")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    s.EVICT(0, 64)
    incoming = s.ALLOC(4)
    with s.cache.transaction("group"):
        s.cache.insert(tokens("1..4"), incoming)
        s.cache.evict(swa_tokens=4)
        again = s.cache.alloc(4)
        s.cache.free_swa(again)
    s.see()
    s.STATE("0 0 4 0 56 64")
    s.HELD(4, 0)


def test_13_frees_of_nested_groups_take_effect_once_when_the_outermost_ends() -> None:
    s = Story()
    first, second, third = s.ALLOC(4), s.ALLOC(4), s.ALLOC(4)
    with s.cache.transaction("outer"):
        s.cache.free(first)
        with s.cache.transaction("inner"):
            s.cache.free(second)
        s.HELD(12, 12)
        with s.cache.transaction("undone") as t:
            s.cache.free(third)
            t.rollback()
        s.HELD(12, 12)
    s.see()
    s.HELD(4, 4)
    s.cache.free(third)
    s.see()
    s.REST("0 0 0 0 64 64")


@pytest.mark.parametrize("page", [2, 4, 16])
def test_14_one_page_freed_clears_all_its_entries_and_no_others(page: int) -> None:
    s = Story(page=page, full=8 * page, swa=8 * page)
    slots = s.ALLOC(4 * page)
    before = s.cache.swa_slots(slots)
    s.cache.free_swa(slots[page : 2 * page])
    s.see()
    after = s.cache.swa_slots(slots)
    assert not after[page : 2 * page].any()
    assert list(after[:page]) == list(before[:page])
    assert list(after[2 * page :]) == list(before[2 * page :])
    s.HELD(4 * page, 3 * page)


@pytest.mark.parametrize("ending", ["commit", "finish", "abort", "retract"])
def test_20_an_swa_lock_given_up_early_is_not_given_up_again(ending: str) -> None:
    s = Story()
    s.INS("1..8")
    other = s.LOCK("1..8")
    request = s.START("r", "1..8, 900..920")
    assert s.figures()[3] == 4
    s.SLIDE(request)
    assert s.figures()[3] == 4
    getattr(request, ending)()
    s.see()
    locks = {(node.start, node.end): node.swa_lock for node in s.cache.nodes()}
    assert locks[4, 8] == 1
    if ending == "commit":
        s.ABORT(request)
    assert s.figures()[3] == 4
    s.UNLOCK(other)
    assert s.figures()[3] == 0


def test_20_a_lock_that_a_commit_moved_behind_the_frontier_is_given_up_by_the_next_slide() -> None:
    """The frontier does not have to move for it: being at the lease's end is enough."""
    s = Story(locked_recovery="skip", window=2)
    request = s.START("r", "1..8")
    assert s.SLIDE(request) == 5
    s.INS("1..5")
    s.INS("1..8")
    lost, live = s.LOCK("1..8"), s.LOCK("1..5")
    s.RELSWA(lost)
    s.EVICT(0, 64)
    committed = s.UNF(request)
    assert (committed.length, committed.refused) == (5, 3)
    s.UNLOCK(lost)
    s.UNLOCK(live)
    assert s.figures()[2:4] == [5, 2]
    assert s.SLIDE(request) == 0
    assert s.figures()[2:4] == [5, 0]


def test_21_a_split_leaves_both_halves_with_both_counts_and_the_reach_where_it_was() -> None:
    s = Story(window=6)
    s.INS("1..5")
    s.INS("1..12")
    long = s.LOCK("1..12")
    assert long.swa_from == 6
    before = lock_counts(s.cache)
    assert [count for count in before if count[3]] == [(6, 12, 1, 1)]
    short = s.LOCK("1..9")
    assert short.swa_from == 3
    counts = {(start, end): (full, swa) for start, end, full, swa in lock_counts(s.cache)}
    assert counts[9, 12] == (1, 1)
    assert counts[6, 9] == (2, 2)
    assert {key: value for key, value in counts.items() if key[1] <= 6 and key[0] >= 3} == {
        key: (2, 1) for key in counts if key[0] >= 3 and key[1] <= 6
    }
    s.RELSWA(long)
    s.STATE("0 6 12 6")
    s.UNLOCK(short)
    s.STATE("0 12 12 0")
    s.UNLOCK(long)
    s.REST("12 12 0 0 52 52")
    assert all(full == swa == 0 for _, _, full, swa in lock_counts(s.cache))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_21_locks_of_different_reach_can_be_given_back_in_any_order(order: tuple[int, ...]) -> None:
    s = Story()
    s.INS("1..20")
    leases = [s.LOCK(f"1..{length}") for length in (20, 13, 7)]
    for number, which in enumerate(order):
        if number % 2:
            s.RELSWA(leases[which])
        s.UNLOCK(leases[which])
    s.REST("20 20 0 0 44 44")


def test_22_the_matched_node_itself_is_locked_and_so_is_the_way_to_the_root() -> None:
    s = Story()
    s.INS("1..4")
    s.INS("1..8")
    lease = s.LOCK("1..8")
    assert lease.node_id is not None
    at: int | None = lease.node_id
    while at is not None:
        view = s.cache.node(at)
        assert view.full_lock == 1
        at = view.parent
    assert s.EVICT(64, 64) == (0, 4)


def test_23_resuming_again_and_again_leaves_one_lock_and_closing_leaves_none() -> None:
    s = Story(page=4)
    request = s.START("r", "1..10")
    for _ in range(3):
        s.RETRACT(request)
        s.REST("8 8 0 0 56 56")
        s.REFRESH(request)
        assert {count[2] for count in lock_counts(s.cache)} == {1}
        s.REFRESH(request)
        assert {count[2] for count in lock_counts(s.cache)} == {1}
    s.ABORT(request)
    s.REST("8 8 0 0 56 56")


def test_24_a_refused_admission_leaves_the_waiting_request_as_it_was() -> None:
    s = Story(full=16, swa=16)
    s.INS("1..8")
    raw = s.ALLOC(6)
    request = s.OPEN("r", "1..20")
    digest, figures = s.cache.digest(), s.figures()
    assert not s.cache.can_fit(tokens("1..20"), 12)
    with pytest.raises(OutOfSlots):
        request.extend(12)
    assert (s.cache.digest(), s.figures(), request.reserved) == (digest, figures, 8)
    s.REFRESH(request)
    assert request.prefix_len == 8
    s.ABORT(request)
    s.cache.free(raw)
    s.see()
    s.REST("8 8 0 0 8 8")


def test_25_a_hit_refreshes_the_window_and_the_end_and_nothing_older() -> None:
    s = Story(window=4)
    for length in (4, 8, 12, 16):
        s.INS(f"1..{length}")
    s.INS("50..53")
    before = {node.start: node.last_access for node in s.cache.nodes() if node.tokens[0] != 50}
    s.UNLOCK(s.LOCK("1..16"))
    after = {node.start: node.last_access for node in s.cache.nodes() if node.tokens[0] != 50}
    newest = max(node.last_access for node in s.cache.nodes())
    assert after[12] == newest
    assert {start: after[start] for start in (0, 4, 8)} == {start: before[start] for start in (0, 4, 8)}
    assert s.EVICT(4, 0) == (4, 4)
    assert (s.MATCH("1..16"), s.MATCH("50..53")) == (16, 0)


def test_25_stamps_rise_from_the_root_to_the_leaf_within_one_operation() -> None:
    s = Story(window=10)
    for length in (4, 7, 9, 12):
        s.INS(f"1..{length}")
    s.INS("50..53")
    s.UNLOCK(s.LOCK("1..12"))
    stamps = [node.last_access for node in sorted(s.cache.nodes(), key=lambda n: n.start) if node.start >= 2]
    assert stamps == sorted(stamps)
    assert len(set(stamps)) == len(stamps)


def test_25_an_insert_refreshes_what_it_finds_like_a_hit() -> None:
    s = Story()
    s.INS([1, 2])
    s.INS([50, 51])
    s.INS([1, 2])
    assert s.EVICT(2, 0) == (2, 2)
    assert (s.MATCH([1, 2]), s.MATCH([50, 51])) == (2, 0)


def test_25_a_finished_request_refreshes_what_it_publishes_over() -> None:
    s = Story()
    request = s.START("r", [1, 2])
    s.INS([1, 2])
    s.INS([50, 51])
    s.FIN(request)
    assert s.EVICT(2, 0) == (2, 2)
    assert (s.MATCH([1, 2]), s.MATCH([50, 51])) == (2, 0)


def test_25_a_recovered_node_takes_the_current_stamp() -> None:
    s = Story()
    s.INS("1..4", dead=4)
    s.INS("50..53")
    s.INS("1..4")
    assert s.EVICT(4, 0) == (4, 4)
    assert (s.MATCH("1..4"), s.MATCH("50..53")) == (4, 0)


def test_25_what_is_published_under_a_lock_is_no_older_for_being_recovered_by_another() -> None:
    s = Story()
    s.INS("1..4")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    s.EVICT(0, 64)
    s.INS("50..53")
    s.INS("1..4")
    s.UNLOCK(lease)
    assert s.EVICT(4, 0) == (4, 4)
    assert (s.MATCH("1..4"), s.MATCH("50..53")) == (4, 0)


def test_25_a_parent_that_becomes_a_leaf_takes_the_larger_stamp_over() -> None:
    s = Story(window=2)
    s.INS("1..4")
    s.INS("1..8")
    s.INS("50..53")
    s.UNLOCK(s.LOCK("1..8"))
    leaf = max(node.last_access for node in s.cache.nodes())
    assert s.EVICT(1, 0) == (2, 2)
    assert s.MATCH("50..53") == 2
    assert s.EVICT(2, 0) == (2, 2)
    assert s.MATCH("50..53") == 0
    assert s.EVICT(1, 0) == (2, 2)
    assert leaf in {node.last_access for node in s.cache.nodes()}


def test_25_swa_inside_a_window_of_a_place_further_down_is_inside_and_goes_by_its_stamp() -> None:
    """[4, 8) lies inside: the leaf below it ends less than a window past it. [0, 4) lies outside."""
    s = Story()
    s.INS("50..53")
    s.INS("1..8")
    s.INS("1..10")
    chain = [(node.start, node.end) for node in s.cache.nodes() if node.tokens[0] < 50]
    assert chain == [(0, 4), (4, 8), (8, 10)]
    assert s.EVICT(0, 1) == (0, 4)
    assert (s.MATCH("1..10"), s.MATCH("50..53")) == (10, 4)
    assert s.EVICT(0, 1) == (4, 4)
    assert (s.MATCH("1..10"), s.MATCH("50..53")) == (10, 0)


@pytest.mark.parametrize(("full", "swa"), [(4, 0), (0, 4)], ids=["full", "swa"])
def test_26_a_cascade_follows_either_eviction_and_stops_at_a_lock(full: int, swa: int) -> None:
    s = Story()
    s.INS("1..4", dead=4)
    s.INS("1..12", dead=8)
    assert len(s.cache.nodes()) >= 2
    assert s.EVICT(full, swa) == (12, 4)
    s.REST("0 0 0 0 64 64")
    s.INS("1..4")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    s.EVICT(0, 64)
    s.INS("1..12", dead=8)
    assert s.EVICT(full, swa) == (8, 4)
    s.REST("0 0 4 0 60 64")


def test_27_an_eviction_returns_what_became_free_the_cascade_included() -> None:
    s = Story(page=4, window=4)
    s.INS(range(16), dead=12)
    free = s.figures()[4:]
    assert s.EVICT(1, 0) == (16, 4)
    assert [now - before for now, before in zip(s.figures()[4:], free, strict=True)] == [16, 4]


def test_28_names_that_would_join_to_the_same_string_do_not_meet() -> None:
    s = Story()
    names = ["", "a", "a|", "a|b", "|", "a b", "a\x00b", "\x00", "1", "é", "e\u0301", "a" * 300]
    for number, name in enumerate(names):
        s.INS([7, number], namespace=name)
    for number, name in enumerate(names):
        assert s.MATCH([7, number], name) == 2
        assert [s.MATCH([7, other], name) for other in range(len(names)) if other != number] == [1] * (
            len(names) - 1
        )


@pytest.mark.parametrize("page", [1, 2, 4, 64])
def test_29_one_other_token_anywhere_is_another_prefix(page: int) -> None:
    s = Story(page=page, full=4 * page, swa=4 * page)
    row = list(range(3 * page))
    s.INS(row)
    for position in {0, 1, page - 1, page, 2 * page - 1, 2 * page, 3 * page - 1} & set(range(3 * page)):
        for other in (-1, -2, row[position] + 2**16, row[position] ^ 1):
            changed = [*row[:position], other, *row[position + 1 :]]
            assert s.MATCH(changed) == (0 if position < page else position // page * page)


def test_29_what_differs_in_more_than_the_hash_of_a_page_is_told_apart() -> None:
    s = Story()
    assert hash(-1) == hash(-2)
    s.INS([-1, -1])
    assert s.MATCH([-2, -2]) == 0
    s.INS([-2, -2])
    assert not set(s.SLOTS([-1, -1])) & set(s.SLOTS([-2, -2]))


def test_30_an_unlock_in_one_namespace_leaves_the_other_locked() -> None:
    s = Story()
    s.INS("1..8", namespace="x")
    s.INS("1..8", namespace="y")
    first, second = s.LOCK("1..8", "x"), s.LOCK("1..8", "y")
    s.STATE("0 8 16 8")
    s.RELSWA(first)
    s.UNLOCK(first)
    s.STATE("8 12 8 4")
    assert all(node.full_lock == 1 for node in s.cache.nodes("y"))
    assert all(node.full_lock == 0 for node in s.cache.nodes("x"))
    s.UNLOCK(second)
    s.REST("16 16 0 0 48 48")


def test_31_every_node_that_is_gone_was_told_by_an_event_of_its_own() -> None:
    s = Story()
    s.INS("1..12", dead=8)
    s.INS("50..70")
    s.INS("1..4, 80..83", namespace="x")
    held = s.LOCK("50..70")
    steps = (lambda: s.EVICT(4, 0), lambda: s.UNLOCK(held), lambda: s.EVICT(0, 64), s.cache.reset)
    gone = 0
    for step in steps:
        before, journaled = {node.id for node in s.cache.nodes()}, len(s.sink.transactions)
        step()
        s.see()
        told = [
            event.node
            for record in s.sink.transactions[journaled:]
            for event in record.events
            if isinstance(event, NodeDeleted)
        ]
        lost = before - {node.id for node in s.cache.nodes()}
        assert sorted(told) == sorted(lost)
        gone += len(lost)
    assert gone > 4
    assert not s.cache.nodes()


def test_every_slot_of_a_committed_row_is_its_own_or_on_its_locked_path() -> None:
    s = Story()
    for name in ("a", "b", "c"):
        request: Request = s.START(name, "1..16")
        s.UNF(request, 9)
        path = set(s.cache.match_prefix(tokens("1..9")).slots)
        assert set(request.slots[: request.protected_len]) <= path
    s.HELD(21, 21)
