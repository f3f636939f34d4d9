"""Journals that claim more than the tree gives: window-match, insert-match, namespace."""

from dataclasses import replace

import pytest

from kvledger.core.events import PrefixMatched, RollbackCause
from kvledger.journal.audit import audit
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    broken,
    created,
    edited,
    events_of,
    first_of,
    inserted,
    locked,
    matched,
    opened,
    pages,
    row_changed,
    seq_of,
    touched,
    unlocked,
    without,
)
from tests.support.stories import one_request, refused_commit, two_namespaces


def tombstone_then(live_pages: int, *, window: int) -> Journal:
    """A tombstone page, then live ones, and a lock on all of it; the window in tokens is a choice."""
    count = live_pages + 1
    live = pages(*range(2, count + 1))
    full = pages(*range(1, count + 1))
    swa = pages(0, *live.tolist())
    length = count * 4
    span = -(-window // 4) * 4
    swa_from = max(0, length - span)
    lock = replace(locked(1, 2, length), swa_from=swa_from)
    reached = touched(*(node for node, start in ((1, 0), (2, 4)) if start >= swa_from))
    return (
        Story(opened(window=window))
        .then("alloc", allocated(full, swa))  # 2
        .then(
            "insert",
            created(1, pages(1), None),  # 3
            created(2, live, live, parent=1, start=4),  # 4
            inserted(length, full=[(0, length)], swa=[(4, length)]),  # 5
        )
        .then("acquire", matched(length, 2), reached, lock)  # 6 7 8
        .journal()
    )


@pytest.mark.parametrize(
    ("live", "window", "matches"), [(1, 4, True), (1, 3, True), (2, 8, True), (1, 5, False), (2, 9, False)]
)
def test_a_lock_needs_a_window_of_live_tokens_since_the_last_tombstone(
    live: int, window: int, matches: bool
) -> None:
    verdict = audit(tombstone_then(live, window=window))
    assert ("window-match" not in broken(verdict)) is matches
    if not matches:
        finding = first_of(verdict, "window-match")
        assert (finding.seq, finding.node, finding.pages) == (8, 1, (1,))


def test_a_lock_on_a_short_path_without_a_tombstone_needs_no_window() -> None:
    journal = (
        Story(opened(window=40))
        .then("alloc", allocated(pages(1)))
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
        .then("acquire", *acquired(1, 1, 4))
        .journal()
    )
    assert audit(journal).verdict == "pass"


def test_an_swa_lock_that_begins_elsewhere_than_a_window_before_the_end_breaks_window_match() -> None:
    verdict = audit(edited(one_request(), 11, swa_from=0))
    finding = first_of(verdict, "window-match")
    assert (finding.seq, finding.node, finding.request) == (11, 2, "r1")


def test_an_swa_lock_that_begins_inside_a_node_breaks_window_match() -> None:
    journal = without(two_namespaces(), 7)
    finding = first_of(audit(journal), "window-match")
    assert (finding.seq, finding.node) == (9, 1)
    assert "was not split there" in finding.sentence


@pytest.mark.parametrize(("seq", "length"), [(9, 4), (11, 4)])
def test_a_match_or_lock_that_does_not_end_on_its_node_breaks_window_match(seq: int, length: int) -> None:
    verdict = audit(edited(one_request(), seq, length=length))
    assert first_of(verdict, "window-match").seq == seq


def test_a_commit_that_accepts_more_than_the_match_finds_breaks_insert_match() -> None:
    journal = edited(one_request(), 8, length=12)
    verdict = audit(journal)
    assert broken(verdict) == {"insert-match", "credit"}
    finding = first_of(verdict, "insert-match")
    assert (finding.seq, finding.request, finding.node) == (9, "r1", 2)


def test_a_commit_that_is_not_matched_again_breaks_insert_match() -> None:
    verdict = audit(without(one_request(), 9))
    assert broken(verdict) == {"insert-match", "window-match", "recency"}
    assert (first_of(verdict, "insert-match").seq, first_of(verdict, "insert-match").request) == (8, "r1")


def test_a_refusal_without_a_rollback_breaks_insert_match() -> None:
    journal = edited(refused_commit(), 8, cause=RollbackCause.CALLER)
    verdict = audit(journal)
    assert broken(verdict) == {"insert-match"}
    assert (first_of(verdict, "insert-match").seq, first_of(verdict, "insert-match").request) == (9, "r1")


def test_a_refusal_with_its_rollback_is_an_anomaly_and_no_violation() -> None:
    verdict = audit(refused_commit())
    assert (verdict.verdict, verdict.counts.anomalies) == ("pass", 1)
    skipping = edited(refused_commit(), 1, locked_recovery="skip")
    skipped = audit(edited(skipping, 8, cause=RollbackCause.SKIPPED))
    assert (skipped.verdict, skipped.counts.anomalies, skipped.counts.skipped) == ("pass", 0, 1)


def test_a_raw_insert_needs_no_match() -> None:
    assert audit(edited(two_namespaces(), 4, refused=0)).verdict == "pass"


def test_a_match_from_another_namespace_breaks_namespace() -> None:
    verdict = audit(edited(two_namespaces(), 8, namespace="y"))
    assert broken(verdict) == {"namespace", "window-match"}
    assert (first_of(verdict, "namespace").seq, first_of(verdict, "namespace").node) == (8, 1)


def test_a_lock_from_another_namespace_breaks_namespace() -> None:
    verdict = audit(edited(two_namespaces(), 10, namespace="y"))
    assert broken(verdict) == {"namespace", "window-match"}
    assert (first_of(verdict, "namespace").seq, first_of(verdict, "namespace").node) == (10, 1)


def test_a_request_that_stands_on_a_lease_of_another_namespace_breaks_namespace() -> None:
    verdict = audit(edited(two_namespaces(), 14, namespace="x"))
    assert broken(verdict) == {"namespace"}
    finding = first_of(verdict, "namespace")
    assert (finding.seq, finding.request, finding.node) == (14, "r1", 2)


def test_a_child_in_another_namespace_than_its_parent_breaks_namespace() -> None:
    verdict = audit(edited(one_request(), 7, namespace="other"))
    finding = first_of(verdict, "namespace")
    assert (finding.seq, finding.node) == (7, 2)


def test_an_insert_that_fills_another_namespace_breaks_namespace() -> None:
    verdict = audit(edited(two_namespaces(), 6, namespace="x"))
    assert broken(verdict) == {"namespace"}
    assert (first_of(verdict, "namespace").seq, first_of(verdict, "namespace").node) == (6, 2)


def test_two_inserts_of_one_request_are_each_matched() -> None:
    again = (
        allocated(pages(6), pages(6), owner="r1", row_start=5),
        created(3, pages(3), pages(3), parent=2, start=8),
        inserted(12, full=[(8, 12)], swa=[(8, 12)], request="r1"),
        *acquired(3, 3, 12, request="r1"),
        unlocked(2, 2, request="r1"),
        row_changed("r1", 3, pages(3), first_page=2, row_pages=6),
    )
    story = Story().then("open_request", *events_of(one_request(), 2))
    story.then("extend", *events_of(one_request(), 3)).then("mine", *events_of(one_request(), 4), *again)
    assert audit(story.journal()).findings == ()
    once = audit(without(story.journal(), seq_of(story.journal(), PrefixMatched, nth=2)))
    assert "insert-match" in broken(once)
