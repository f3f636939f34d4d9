"""Worked cases H and N: rules that are easy to miss."""

import pytest

from kvledger.core.errors import InvalidArgument, OutOfSlots, StaleLease
from tests.scenario.dsl import Story, tokens


def test_H1_a_leaf_and_the_tombstones_above_it_make_room_in_the_same_transaction() -> None:
    """Full = SWA = 16, INS(1..16, dead=12) | open 201..216, extend(16) | succeeds; 0 0 0 0 0 0."""
    s = Story(full=16, swa=16)
    s.INS("1..16", dead=12)
    request = s.OPEN("r", "201..216")
    transactions = len(s.sink.transactions)
    s.EXTEND(request, 16)
    assert len(s.sink.transactions) == transactions + 1
    s.STATE("0 0 0 0 0 0")
    s.HELD(16, 16)


def test_H2_a_lock_pins_one_window_also_inside_a_long_node() -> None:
    """Full = SWA = 128, START(1..100), FIN | START(1..100) | prefix_len 99; FP 99, SP 4."""
    s = Story(full=128, swa=128)
    s.FIN(s.START("first", "1..100"))
    request = s.START("second", "1..100")
    assert request.prefix_len == 99
    s.STATE("1 96 99 4")


def test_H3_swa_that_a_lock_does_not_pin_makes_room_for_the_request_that_locks() -> None:
    """Full 128, SWA 64, INS(1..60) | open 1..50 and 20 foreign tokens, extend(20) | SP 4; succeeds."""
    s = Story(full=128, swa=64)
    s.INS("1..60")
    row = tokens("1..50, 900..919")
    assert s.cache.can_fit(row, 20)
    request = s.OPEN("r", row)
    assert s.figures()[3] == 4
    s.EXTEND(request, 20)
    assert len(request.slots) == 70


def test_H4_with_skip_a_commit_over_a_locked_tombstone_is_undone_whole() -> None:
    """skip: INS(1..4); START(1..9), SLIDE (0); INS(1..8); LOCK(1..8); RELSWA; EVICT(0,64) = (0,8)
    | UNF; FIN; UNLOCK | Committed(4, [], refused 5), the row unchanged; 9 1 0 0 55 63."""
    s = Story(locked_recovery="skip")
    s.INS("1..4")
    request = s.START("r", "1..9")
    assert s.SLIDE(request) == 0
    s.INS("1..8")
    lease = s.LOCK("1..8")
    s.RELSWA(lease)
    assert s.EVICT(0, 64) == (0, 8)
    row = list(request.slots)
    committed = s.UNF(request)
    assert (committed.length, list(committed.row_changed), committed.refused) == (4, [], 5)
    assert list(request.slots) == row
    assert request.protected_len == 4
    s.FIN(request)
    s.UNLOCK(lease)
    s.REST("9 1 0 0 55 63")


def test_H5_a_commit_too_close_to_the_frontier_is_refused_and_changes_nothing() -> None:
    """START(1..20), SLIDE = 15 | commit(18); commit(19) | InvalidArgument, digest unchanged; 19, 0."""
    s = Story()
    request = s.START("r", "1..20")
    assert s.SLIDE(request) == 15
    digest, journaled = s.cache.digest(), len(s.sink.transactions)
    with pytest.raises(InvalidArgument):
        request.commit(18)
    assert (s.cache.digest(), len(s.sink.transactions)) == (digest, journaled)
    committed = s.UNF(request, 19)
    assert (committed.length, committed.refused) == (19, 0)


def test_N1_swa_outside_every_window_goes_before_older_swa_inside_one() -> None:
    """INS([50,51]), INS(1..4), INS(1..8) | EVICT(0,1) | (0,4): 1..4 goes before the older [50,51];
    MATCH 1..8 = 8, [50,51] = 2, 1..4 = 0; 10 6 0 0 54 58."""
    s = Story()
    s.INS([50, 51])
    s.INS("1..4")
    s.INS("1..8")
    assert s.EVICT(0, 1) == (0, 4)
    assert (s.MATCH("1..8"), s.MATCH([50, 51]), s.MATCH("1..4")) == (8, 2, 0)
    s.REST("10 6 0 0 54 58")


def test_N2_what_a_caller_frees_is_not_to_be_had_before_the_commit() -> None:
    """alloc(64) = s | in one transaction: free(s), alloc(1) | OutOfSlots inside, held 64; then empty."""
    s = Story()
    slots = s.ALLOC(64)
    with s.cache.transaction("swap"):
        s.cache.free(slots)
        with pytest.raises(OutOfSlots):
            s.cache.alloc(1)
        s.HELD(64, 64)
    s.see()
    s.REST("0 0 0 0 64 64")


@pytest.mark.parametrize(
    ("foreign", "given_back", "locked_after"), [(3, 0, 4), (4, 0, 4), (5, 0, 0), (8, 3, 0)]
)
def test_N3_the_swa_lock_is_given_up_when_the_frontier_passes_the_reused_prefix(
    foreign: int, given_back: int, locked_after: int
) -> None:
    """START(1..8), FIN | START(1..8 and n foreign), SLIDE | prefix_len 8, SP 4; back 0 0 0 3; SP 4 4 0 0."""
    s = Story()
    s.FIN(s.START("first", "1..8"))
    request = s.START("second", f"1..8, 900..{899 + foreign}")
    assert request.prefix_len == 8
    assert s.figures()[2:4] == [8, 4]
    assert s.SLIDE(request) == given_back
    assert s.figures()[2:4] == [8, locked_after]


def test_N4_a_branch_point_that_is_published_in_time_is_reusable() -> None:
    """START(1..20), SLIDE, FIN | open 1..12 and 8 foreign: extend(20), computed(12), commit(branch_len),
    computed(), SLIDE, FIN | prefix_len 0, branch_len 12; Committed 12; MATCH 1..12 = 12; next hits 12."""
    s = Story()
    first = s.START("first", "1..20")
    s.SLIDE(first)
    s.FIN(first)
    request = s.OPEN("second", "1..12, 900..907")
    assert (request.prefix_len, request.branch_len) == (0, 12)
    s.EXTEND(request, 20)
    request.computed(12)
    committed = s.UNF(request, request.branch_len)
    assert (committed.length, committed.refused) == (12, 0)
    request.computed()
    s.SLIDE(request)
    s.FIN(request)
    assert s.MATCH("1..12") == 12
    assert s.OPEN("third", "1..12, 800..807").prefix_len == 12


def test_N5_an_insert_over_a_protected_dead_head_heals_the_rest() -> None:
    """INS(1..8, dead=8) A | alloc 4 = B; insert(1..8, A[0:4] + B, protected_len=4)
    | prefix_len 8, adopted Full and SWA [(4,8)]; MATCH 8; 8 4 0 0 56 60."""
    s = Story()
    s.INS("1..8", dead=8)
    slots = s.last.copy()
    slots[4:] = s.ALLOC(4)
    inserted = s.INSERT("1..8", slots, own=4)
    assert inserted.prefix_len == 8
    assert list(inserted.adopted_full) == [(4, 8)]
    assert list(inserted.adopted_swa) == [(4, 8)]
    assert s.MATCH("1..8") == 8
    assert s.SLOTS("1..8") == list(slots)
    s.REST("8 4 0 0 56 60")


def test_N6_a_reset_leaves_raw_pages_held_and_old_receipts_without_effect() -> None:
    """alloc(4); INS(1..8); START(20..29); LOCK(1..8) | reset | Full and SWA: free 60, held 4. Releasing
    the old lease does nothing; free of the 4 slots: 0 0 0 0 64 64; a method of the old request raises."""
    s = Story()
    raw = s.ALLOC(4)
    s.INS("1..8")
    request = s.START("r", "20..29")
    lease = s.LOCK("1..8")
    s.cache.reset()
    s.see()
    s.STATE("0 0 0 0 60 60")
    s.HELD(4, 4)
    digest = s.cache.digest()
    s.UNLOCK(lease)
    with pytest.raises(StaleLease):
        request.extend(1)
    s.FIN(request)
    assert s.cache.digest() == digest
    s.cache.free(raw)
    s.see()
    s.REST("0 0 0 0 64 64")


def test_N7_a_retracted_request_publishes_and_resumes_on_what_it_published() -> None:
    """P=4, START of 10 tokens | retract; append one; refresh | 8 8 0 0 56 56; prefix_len 8, 8 slots, FP 8;
    abort: 8 8 0 0 56 56."""
    s = Story(page=4)
    request = s.START("r", "1..10")
    s.RETRACT(request)
    s.REST("8 8 0 0 56 56")
    request.append([11])
    s.REFRESH(request)
    assert (request.prefix_len, len(request.slots)) == (8, 8)
    assert s.figures()[2] == 8
    s.ABORT(request)
    s.REST("8 8 0 0 56 56")


@pytest.mark.parametrize("namespace", [1, b"1", None])
def test_N8_what_is_no_string_is_refused_as_a_namespace(namespace: object) -> None:
    """INS([1,2,3]) in "1" and "None" | MATCH in 1, b"1", None | 0, or a typed refusal."""
    s = Story()
    s.INS([1, 2, 3], namespace="1")
    s.INS([1, 2, 3], namespace="None")
    try:
        length = s.cache.match_prefix([1, 2, 3], namespace).length  # type: ignore[arg-type]
    except InvalidArgument:
        length = 0
    assert length == 0


def test_N8_namespaces_are_compared_as_strings_and_the_empty_one_is_its_own() -> None:
    """INS([1,2,3]) in "1" and "None" | MATCH in "1", "None", "" | 3, 3, 0."""
    s = Story()
    s.INS([1, 2, 3], namespace="1")
    s.INS([1, 2, 3], namespace="None")
    assert [s.MATCH([1, 2, 3], namespace) for namespace in ("1", "None", "")] == [3, 3, 0]
