"""What a commit tells: which rows changed, how much was refused, and whose it was. Under a second."""

import pytest

from kvledger.core import commit as commit_module
from kvledger.core.errors import InvariantViolation
from kvledger.core.events import RolledBack
from kvledger.core.insertion import Insertion
from kvledger.core.node import Node
from tests.scenario.dsl import Story


def match_ends_at(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let the match in a commit end `at` pages, at or before where the insert began."""

    def short(insertion: Insertion, start: Node | None, base: int) -> tuple[int, Node | None]:
        return (at, start) if at >= base else (base - 1, None)

    monkeypatch.setattr(commit_module, "_accepted", short)


@pytest.mark.parametrize("page", [1, 2])
def test_rows_that_change_in_two_places_are_told_as_two_maximal_ranges(page: int) -> None:
    s = Story(page=page, window=4 * page, full=64 * page, swa=64 * page)
    row = range(12 * page)
    request = s.START("r", row)
    own = list(request.slots)
    for end in (4, 8, 12):
        s.INS(row[: end * page], own=(end - 4) * page)
    lease = s.LOCK(row[: 4 * page])
    assert s.EVICT(0, 4 * page) == (0, 4 * page)
    committed = s.UNF(request)
    changed = [(0, 4 * page), (8 * page, 12 * page)]
    assert (committed.length, list(committed.row_changed)) == (12 * page, changed)
    assert list(request.slots[4 * page : 8 * page]) == own[4 * page : 8 * page]
    assert list(request.slots[: 12 * page]) == s.SLOTS(row)
    s.UNLOCK(lease)


@pytest.mark.parametrize("page", [1, 2])
def test_a_commit_of_a_part_stops_inside_a_node_that_goes_on_as_the_request_does(page: int) -> None:
    s = Story(page=page, window=4 * page, full=64 * page, swa=64 * page)
    row = range(16 * page)
    request = s.START("r", row)
    s.INS(row)
    committed = s.UNF(request, upto=6 * page)
    assert (committed.length, committed.refused) == (6 * page, 0)
    s.HELD(10 * page, 10 * page)
    assert list(request.slots[: 6 * page]) == s.SLOTS(row)[: 6 * page]


@pytest.mark.interpreted
def test_a_commit_of_which_the_match_accepts_nothing_new_leaves_row_and_lease_and_is_an_anomaly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Story()
    s.INS("1..4")
    request = s.START("r", "1..9")
    row = list(request.slots)
    digest = s.cache.digest()
    match_ends_at(monkeypatch, 4)
    committed = request.commit()
    assert (committed.length, list(committed.row_changed), committed.refused) == (4, [], 5)
    assert (s.cache.digest(), list(request.slots)) == (digest, row)
    (undone,) = [event for event in s.sink.transactions[-1].events if isinstance(event, RolledBack)]
    assert (str(undone.cause), undone.request_id) == ("refused", "r")
    assert s.cache.stats().anomalies == 1


@pytest.mark.interpreted
@pytest.mark.parametrize("raw", [False, True])
def test_a_match_below_what_is_locked_names_whoever_offered(
    monkeypatch: pytest.MonkeyPatch, raw: bool
) -> None:
    s = Story()
    s.INS("1..4")
    request = s.START("r", "1..9")
    lease = s.LOCK("1..4")
    slots = s.ALLOC(4)
    match_ends_at(monkeypatch, 2)
    call = (lambda: s.cache.advance(lease, [5, 6, 7, 8], slots)) if raw else request.commit
    with pytest.raises(InvariantViolation) as caught:
        call()
    ((invariant, sentence),) = caught.value.violations
    assert invariant == "insert-match"
    assert sentence.startswith("the raw caller" if raw else "request 'r'")
    s.see()


@pytest.mark.parametrize("length", [3, 4, 6])
def test_a_commit_of_which_a_single_page_or_more_is_refused_passes_the_audit(length: int) -> None:
    s = Story(locked_recovery="skip", window=2)
    request = s.START("r", range(1, length + 1))
    s.INS("1..4")
    s.INS("1..8")
    lost = s.LOCK("1..8")
    s.RELSWA(lost)
    live = s.LOCK("1..2")
    s.EVICT(0, 64)
    committed = s.UNF(request)
    assert (committed.length, committed.refused) == (2, length - 2)
    s.UNLOCK(live)


def test_an_advance_counts_no_live_tokens_behind_a_lease_whose_window_is_gone() -> None:
    s = Story(locked_recovery="skip")
    s.INS("1..4")
    lease = s.LOCK("1..4")
    s.RELSWA(lease)
    assert s.EVICT(0, 4) == (0, 4)
    s.AFTER(lease, "5, 6")
    s.AFTER(lease, "5..12")
    other = s.LOCK("1..12")
    s.RELSWA(other)
    s.AFTER(lease, "5, 6")
    assert s.EVICT(0, 2) == (0, 2)
    live = [(node.start, node.swa_slots is not None) for node in s.cache.nodes()]
    assert sorted(live) == [(0, False), (4, True), (6, False), (8, True)]
    advanced = s.ADVANCE(lease, "5..8")
    assert (advanced.lease, advanced.refused) == (lease, 4)
    s.HELD(4, 4)
