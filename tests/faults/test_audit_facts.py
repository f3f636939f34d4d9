"""Journals in which one event contradicts those around it: stamps, causes, counters, matches, tokens."""

from dataclasses import replace

import pytest

from kvledger.core.events import CallIgnored, Cause, Evicted, PrefixMatched, RollbackCause
from kvledger.core.ids import LeaseId, RequestId
from kvledger.journal.audit import audit
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.findings import Findings
from kvledger.journal.audit.statistics import COUNTERS, Statistics
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import replay
from kvledger.journal.tokens import POLICY_SETTING
from tests.support.filling import NOTHING_COUNTED
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    broken,
    checkpoint,
    closed,
    created,
    edited,
    evicted,
    first_of,
    inserted,
    locked,
    matched,
    opened,
    pages,
    request_opened,
    rolled_back,
    row_changed,
    seq_of,
    split,
    touched,
    unlocked,
    with_event_before,
    with_transaction_after,
    without,
)
from tests.support.stories import (
    HEALTHY,
    eviction_and_reuse,
    nested_rollbacks,
    one_request,
    recovery_without_lock,
    refused_commit,
    reset_in_the_middle,
    two_namespaces,
)

# Match, touch, lock.


@pytest.mark.parametrize(
    ("journal", "seq", "node"),
    [(two_namespaces(), 8, 1), (two_namespaces(), 11, 2), (one_request(), 9, 2), (refused_commit(), 2, None)],
    ids=["acquire", "open_request", "commit", "nothing matched"],
)
def test_a_lock_without_its_match_breaks_window_match(journal: Journal, seq: int, node: int | None) -> None:
    lock = seq + (1 if node is not None else 0)
    finding = first_of(audit(without(journal, seq)), "window-match")
    assert (finding.seq, finding.node) == (lock, node)
    assert "that no match before it found" in finding.sentence


def test_a_refresh_that_is_not_matched_breaks_window_match() -> None:
    journal = (
        Story()
        .then("open_request", *acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))
        .then("retract", unlocked(1, None, request="r1"), row_changed("r1", None, pages()))
        .then("refresh", *acquired(2, None, 0, request="r1"), row_changed("r1", 2, pages()))
        .journal()
    )
    assert audit(journal).findings == ()
    verdict = audit(without(journal, seq_of(journal, PrefixMatched, nth=1)))
    assert broken(verdict) == {"window-match"}


@pytest.mark.parametrize("changes", [{"request_id": RequestId("r2")}, {"namespace": "y"}, {"length": 12}])
def test_a_lock_takes_over_what_its_match_found(changes: dict[str, object]) -> None:
    verdict = audit(edited(one_request(), 9, **changes))
    assert (first_of(verdict, "window-match").transaction, "window-match" in broken(verdict)) == (4, True)


def test_an_event_between_match_and_lock_breaks_window_match() -> None:
    verdict = audit(with_event_before(two_namespaces(), 10, allocated(pages(9), pages(8))))
    assert first_of(verdict, "window-match").seq == 11


def test_a_match_that_nobody_locks_breaks_window_match() -> None:
    journal = with_transaction_after(one_request(), 4, "acquire", matched(8, 2))
    finding = first_of(audit(journal), "window-match")
    assert (finding.seq, finding.node) == (14, 2)
    assert "followed by no lock" in finding.sentence


def below_a_tombstone(full_length: int, *, live_child: bool = False) -> Journal:
    """A live page, below it a tombstone (or a live one), below that a live one; a match of the first."""
    second = pages(2) if live_child else None
    match = replace(matched(4, 1), full_length=full_length)
    touch, lock = touched(1), replace(locked(1, 1, 4), swa_from=0)
    return (
        Story(opened(window=8))
        .then("alloc", allocated(pages(1, 2, 3), pages(1, 2 if live_child else 0, 3)))
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
        .then(
            "mine",
            touched(1),
            created(2, pages(2), second, parent=1, start=4),
            replace(inserted(8, full=[(4, 8)], swa=[(4, 8)] if live_child else []), protected_len=4),
            touched(2),
            created(3, pages(3), pages(3), parent=2, start=8),
            replace(inserted(12, full=[(8, 12)], swa=[(8, 12)]), protected_len=8),
        )
        .then("acquire", match, touch, lock)
        .journal()
    )


@pytest.mark.parametrize(
    ("full_length", "live_child", "possible"),
    [
        (4, False, True),
        (8, False, True),
        (12, False, True),
        (16, False, False),
        (10, False, False),
        (0, False, False),
        (8, True, False),
    ],
)
def test_full_reaches_past_a_match_only_where_the_tree_does_and_no_window_is_live(
    full_length: int, live_child: bool, possible: bool
) -> None:
    verdict = audit(below_a_tombstone(full_length, live_child=live_child))
    assert broken(verdict) == (set() if possible else {"window-match"})


# Stamps.


@pytest.mark.parametrize(("seq", "field"), [(7, "stamp"), (10, "first_stamp")])
@pytest.mark.parametrize("stamp", [1, 0, -7])
def test_a_stamp_that_was_given_before_breaks_recency(seq: int, field: str, stamp: int) -> None:
    finding = first_of(audit(edited(one_request(), seq, **{field: stamp})), "recency")
    assert (finding.seq, finding.node) == (seq, 2)


def test_a_recovery_takes_a_new_stamp() -> None:
    assert first_of(audit(edited(recovery_without_lock(), 8, stamp=1)), "recency").seq == 8


def test_stamps_of_an_undone_stretch_are_given_again() -> None:
    journal = (
        Story()
        .then("alloc", allocated(pages(1)))
        .then("insert", created(1, pages(1), pages(1), stamp=1), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
        .then("mine", touched(1, first_stamp=2), rolled_back(0, 1), touched(1, first_stamp=2), undone=[0])
        .journal()
    )
    assert audit(journal).findings == ()


@pytest.mark.parametrize("parent_stamp", [None, 1, 3])
def test_a_parent_left_a_leaf_takes_over_the_later_stamp(parent_stamp: int | None) -> None:
    finding = first_of(audit(edited(eviction_and_reuse(), 8, parent_stamp=parent_stamp)), "recency")
    assert (finding.seq, finding.node) == (8, 2)
    assert first_of(audit(edited(eviction_and_reuse(), 9, parent_stamp=2)), "recency").seq == 9


def test_a_lock_whose_window_was_not_touched_breaks_recency() -> None:
    verdict = audit(without(one_request(), 10))
    assert broken(verdict) == {"recency"}
    assert (first_of(verdict, "recency").seq, first_of(verdict, "recency").node) == (10, 2)
    beside = edited(one_request(), 10, nodes=(1,))
    assert first_of(audit(beside), "recency").seq == 11


def test_a_touch_goes_down_a_path() -> None:
    journal = with_transaction_after(one_request(), 4, "mine", touched(2, 1))
    assert first_of(audit(journal), "recency").seq == 14
    assert audit(with_transaction_after(one_request(), 4, "mine", touched(1, 2))).findings == ()
    assert first_of(audit(with_transaction_after(one_request(), 4, "mine", touched())), "recency").seq == 14


# Resets, ends and causes.


def test_a_lock_is_released_by_a_reset_only_in_one() -> None:
    verdict = audit(edited(one_request(), 16, by_reset=True))
    assert broken(verdict) == {"lock-order"}
    assert first_of(verdict, "lock-order").seq == 16
    assert (verdict.counts.locks_cut_by_reset, verdict.locks_cut) == (0, ())
    other_way = audit(edited(reset_in_the_middle(), 13, by_reset=False))
    assert (broken(other_way), first_of(other_way, "lock-order").seq) == ({"lock-order"}, 13)
    assert other_way.counts.locks_cut_by_reset == 1


@pytest.mark.parametrize(("seq", "field"), [(12, "cause"), (16, "cause"), (14, "reason")])
def test_all_that_a_reset_ends_says_so(seq: int, field: str) -> None:
    verdict = audit(edited(reset_in_the_middle(), seq, **{field: Cause.FINISH}))
    assert verdict.verdict == "fail"
    assert first_of(verdict, "lock-order").seq == seq


def test_a_reset_raises_the_generation_by_one() -> None:
    assert broken(audit(edited(reset_in_the_middle(), 17, generation=2))) == {"well-formed"}


@pytest.mark.parametrize("reason", [Cause.ABORT, Cause.RETRACT, Cause.CAPACITY])
def test_a_request_closes_for_the_reason_its_pages_are_freed(reason: Cause) -> None:
    finding = first_of(audit(edited(one_request(), 18, reason=reason)), "well-formed")
    assert (finding.seq, finding.request) == (18, "r1")


@pytest.mark.parametrize("cause", [Cause.ABORT, Cause.RETRACT, Cause.CALLER, Cause.RECOVERY])
def test_the_last_pages_of_a_request_are_freed_for_the_reason_it_closes(cause: Cause) -> None:
    assert "well-formed" in broken(audit(edited(one_request(), 17, cause=cause)))


def test_a_request_that_publishes_does_not_abort() -> None:
    journal = (
        Story()
        .then("open_request", *acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))
        .then("extend", allocated(pages(1), owner="r1", row_start=0))
        .then(
            "finish",
            created(1, pages(1), pages(1)),
            inserted(4, full=[(0, 4)], swa=[(0, 4)], request="r1"),
            unlocked(1, None, request="r1"),
            closed("r1"),
        )
        .journal()
    )
    assert audit(journal).findings == ()
    verdict = audit(edited(journal, 9, reason=Cause.ABORT))
    assert first_of(verdict, "well-formed").seq == 9


def test_a_finish_that_releases_the_lease_of_another_request_breaks_row_safety() -> None:
    journal = (
        Story()
        .then("open_request", *acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))
        .then("open_request", *acquired(2, None, 0, request="r2"), request_opened("r2", 2, pages()))
        .then("finish", unlocked(1, None, request="r1"), closed("r2"), request="r2")
        .journal()
    )
    verdict = audit(journal)
    assert broken(verdict) == {"lock-order", "row-safety"}
    assert first_of(verdict, "row-safety").request == "r1"
    assert first_of(verdict, "lock-order").request == "r2"


@pytest.mark.parametrize("cause", [Cause.FINISH, Cause.WINDOW, Cause.CAPACITY])
def test_a_caller_frees_pages_as_a_caller(cause: Cause) -> None:
    assert first_of(audit(edited(reset_in_the_middle(), 18, cause=cause)), "well-formed").seq == 18


def ignored(call: str, lease: int | None, request: str | None, generation: int = 0) -> CallIgnored:
    return CallIgnored(
        call,
        None if lease is None else LeaseId(lease),
        None if request is None else RequestId(request),
        generation,
    )


@pytest.mark.parametrize(
    ("event", "healthy"),
    [
        (ignored("release", 1, None), True),
        (ignored("finish", None, "r1"), True),
        (ignored("release", 7, None), False),
        (ignored("release", 2, None), False),
        (ignored("release", None, "r1"), False),
        (ignored("abort", 1, None), False),
        (ignored("insert", 1, None), False),
        (ignored("finish", None, "r2"), False),
        (ignored("finish", None, "r1", 1), False),
        (ignored("finish", None, "r1", -1), False),
    ],
    ids=str,
)
def test_only_a_call_on_what_a_reset_ended_is_ignored(event: CallIgnored, healthy: bool) -> None:
    verdict = audit(with_transaction_after(reset_in_the_middle(), 8, event.call, event))
    assert (verdict.verdict == "pass") is healthy
    assert healthy or {finding.seq for finding in verdict.findings} == {19}


def test_a_transaction_that_an_error_ended_says_so_twice() -> None:
    for changes in ({"cause": RollbackCause.CALLER}, {"reason": "another"}, {"request_id": RequestId("r")}):
        finding = first_of(audit(edited(nested_rollbacks(), 10, **changes)), "rollback-neutral")
        assert finding.transaction == 3


def test_the_opening_and_its_configuration_agree() -> None:
    config = {
        "page_size": 4,
        "sliding_window": 4,
        "full_tokens": 64,
        "swa_tokens": 32,
        "locked_recovery": "remap",
    }
    assert audit(edited(one_request(), 1, config=config)).findings == ()
    for name, other in (
        ("page_size", 8),
        ("sliding_window", 5),
        ("swa_tokens", 36),
        ("locked_recovery", "skip"),
    ):
        finding = first_of(audit(edited(one_request(), 1, config={**config, name: other})), "well-formed")
        assert (finding.seq, name in finding.sentence) == (1, True)
    assert "well-formed" in broken(audit(edited(one_request(), 1, locked_recovery="often")))


# Counters and evictions.


def counted(story: str) -> Journal:
    """A healthy story and a checkpoint after it."""
    journal = HEALTHY[story]()
    digest = replay(journal).state.digest()
    return with_transaction_after(journal, len(journal), "checkpoint", checkpoint(digest))


@pytest.mark.parametrize("counter", COUNTERS)
def test_a_checkpoint_counts_what_all_events_before_it_add_up_to(counter: str) -> None:
    for story in HEALTHY:
        journal = counted(story)
        told = journal[-1].events[0].event
        assert audit(journal).findings == ()
        counters = told.counters  # type: ignore[union-attr]
        wrong = edited(journal, journal[-1].first_seq, counters={**counters, counter: counters[counter] + 1})
        finding = first_of(audit(wrong), "credit")
        assert (finding.seq, counter in finding.sentence) == (journal[-1].first_seq, True)


def test_a_checkpoint_counts_everything_there_is_to_count_and_nothing_else() -> None:
    journal = counted("one_request")
    for counters in ({}, {**NOTHING_COUNTED, "hits": 0}):
        verdict = audit(edited(journal, journal[-1].first_seq, counters=counters))
        assert broken(verdict) == {"credit"}


def test_after_a_gap_counters_are_compared_with_the_first_checkpoint_seen() -> None:
    context = Context(replay(one_request()).state, Findings())
    statistics = Statistics(context)
    statistics.resume()
    (evictions,) = number_transactions(Story().then("evict", evicted(8, 4))._records[1:])

    def read(evicted_tokens: int) -> int:
        told = {**NOTHING_COUNTED, "rollbacks": 70, "evicted_full_tokens": evicted_tokens}
        told["evicted_swa_tokens"] = 100 if evicted_tokens == 500 else 104
        event = checkpoint("", told)
        statistics.before[type(event)](event, None)
        return context.findings.totals["credit"]

    assert read(500) == 0
    statistics.end_transaction(evictions)
    assert read(508) == 0
    assert read(509) == 1


def test_without_a_checkpoint_the_page_says_what_would_not_be_seen() -> None:
    def status(journal: Journal) -> tuple[str, bool]:
        verdict = audit(journal)
        report = next(report for report in verdict.invariants if report.id == "checkpoint")
        return report.status, "changes without an event would not be seen" in verdict.render()

    assert status(one_request()) == ("not_checked", True)
    assert status(counted("one_request")) == ("verified", False)


def test_a_tombstone_that_an_eviction_leaves_childless_goes_with_it() -> None:
    found = audit(without(eviction_and_reuse(), 9)).findings
    assert (9, 1) in [(finding.seq, finding.node) for finding in found if finding.invariant == "credit"]
    for cause in (Cause.CAPACITY, Cause.FINISH):
        assert first_of(audit(edited(eviction_and_reuse(), 9, cause=cause)), "credit").seq == 9
    assert first_of(audit(edited(eviction_and_reuse(), 8, cause=Cause.CASCADE)), "credit").seq == 8


def test_an_eviction_frees_what_was_asked_where_it_can() -> None:
    for changes in ({"asked_full": 4}, {"asked_swa": -4}, {"asked_swa": 3}):
        finding = first_of(audit(edited(recovery_without_lock(), 6, **changes)), "credit")
        assert finding.seq == 6
    assert audit(edited(recovery_without_lock(), 6, asked_swa=8)).findings == ()
    stopped = Evicted(0, 8, 0, 0)
    journal = with_transaction_after(recovery_without_lock()[:3], 3, "evict", stopped)
    assert (first_of(audit(journal), "credit").seq, first_of(audit(journal), "credit").node) == (5, 1)


# Tokens.


def two_children(token: int, **config: str) -> Journal:
    """A node of two pages and a second child under its namespace, whose first token is a choice."""
    hidden = config.get(POLICY_SETTING) == "none"
    nodes = (created(1, pages(1, 2), pages(1, 2)), created(2, pages(3), pages(3), first_token=token))
    first, second = (replace(node, tokens=b"") if hidden else node for node in nodes)
    return (
        Story(replace(opened(), config=dict(config)))
        .then("alloc", allocated(pages(1, 2, 3)))  # 2
        .then("insert", first, inserted(8, full=[(0, 8)], swa=[(0, 8)]))  # 3 4
        .then("acquire", split(1, 9, 4), *acquired(1, 1, 8))  # 5 6 7 8
        .then("insert", second, inserted(4, full=[(0, 4)], swa=[(0, 4)]))  # 9 10
        .journal()
    )


def test_two_siblings_that_begin_with_the_same_page_are_not_well_formed() -> None:
    finding = first_of(audit(two_children(0)), "well-formed")
    assert (finding.seq, finding.node, finding.pages) == (9, 2, (3,))
    assert audit(two_children(4)).findings == ()
    below = edited(edited(two_children(4), 9, parent=9, start=4), 10, protected_len=4, length=8)
    assert first_of(audit(below), "well-formed").seq == 9


def test_where_tokens_are_not_kept_siblings_are_not_compared() -> None:
    assert audit(two_children(0, **{POLICY_SETTING: "none"})).findings == ()


def test_a_split_hands_on_the_tokens_that_the_node_has() -> None:
    journal = two_children(4)
    assert audit(edited(journal, 5, head_tokens=journal[2].events[0].event.tokens[:16])).findings == ()  # type: ignore[union-attr]
    assert first_of(audit(edited(journal, 5, head_tokens=b"x" * 16)), "well-formed").seq == 5
