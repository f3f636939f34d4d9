"""kv_unread: what a cache says that it could not look at is unverified, and held to where it may be said."""

import pytest

from kvledger.core.events import FingerprintReason, KvUnread
from kvledger.core.ids import NodeId
from kvledger.journal.audit import audit
from kvledger.journal.audit.verdict import CONTENT_UNKNOWN, CONTENT_UNREAD
from tests.faults.test_audit_content import ADOPT, KEEP, cut, locked_path, looked, of_page, recovery
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    broken,
    edited,
    fingerprinted,
    first_of,
    pages,
    unlocked,
    with_event_before,
    without,
)

LOCKED, RECOVERED, UNLOCKED = FingerprintReason


def unread(node: int, reason: FingerprintReason, *numbers: int) -> KvUnread:
    """What a cache says whose memory failed."""
    return KvUnread(NodeId(node), reason, pages(*numbers), "RuntimeError")


def released(story: Story, *, first: KvUnread | None = None) -> Journal:
    """The path of `locked_path` is unlocked, and its first node could not be read."""
    first = unread(1, UNLOCKED, 1, 2) if first is None else first
    return story.then("release", first, looked(2, UNLOCKED, 3), unlocked(1, 2)).journal()


def test_what_could_not_be_read_is_unverified_and_what_could_is_compared() -> None:
    verdict = audit(released(locked_path()))
    assert (verdict.verdict, verdict.findings) == ("unverified", ())
    counts = verdict.counts
    assert (counts.pages_fingerprinted, counts.pages_compared, counts.pages_content_unread) == (4, 1, 2)
    assert verdict.notes == (CONTENT_UNREAD,)
    assert not verdict.passed


def test_what_is_found_elsewhere_stays_a_finding() -> None:
    last = fingerprinted(2, UNLOCKED, pages(3), sums=[31], swa=[30])
    story = locked_path().then("release", unread(1, UNLOCKED, 1, 2), last, unlocked(1, 2))
    verdict = audit(story.journal())
    assert (verdict.verdict, broken(verdict)) == ("fail", {"locked-content"})
    assert {one.status for one in verdict.invariants if one.id == "locked-content"} == {"failed"}


def test_a_word_that_nothing_was_read_cannot_be_left_out_either() -> None:
    found = first_of(audit(without(released(locked_path()), 11)), "locked-content")
    assert (found.seq, found.node) == (12, 1)
    assert "evidence is missing" in found.sentence


def test_no_lock_is_taken_without_evidence_whatever_the_cache_says() -> None:
    journal = with_event_before(without(released(locked_path()), 9), 9, unread(1, LOCKED, 1, 2))
    verdict = audit(journal)
    assert broken(verdict) == {"locked-content"}
    (found,) = verdict.findings
    assert (found.seq, found.node, found.holders) == (9, 1, ("lease 1",))
    assert found.sentence.endswith("a node was locked although the memory could not be read")


@pytest.mark.parametrize("reason", FingerprintReason)
def test_nothing_is_unread_where_nothing_happens_to_its_node(reason: FingerprintReason) -> None:
    journal = with_event_before(released(locked_path()), 11, unread(2, reason, 3))
    assert "well-formed" in broken(audit(journal))
    assert f"fingerprinted as {reason}" in first_of(audit(journal), "well-formed").sentence


def test_a_cache_that_does_not_fingerprint_has_nothing_to_say_of_it() -> None:
    journal = released(locked_path(on=False))
    for _ in range(2):
        journal = without(journal, 9)
    assert broken(audit(without(journal, 10))) == {"well-formed"}


def test_it_names_the_pages_of_its_node() -> None:
    other = audit(edited(released(locked_path()), 11, full_pages=pages(1, 4)))
    assert broken(other) == {"well-formed"}
    for wrong in (pages(1), pages(1, 99)):
        assert "well-formed" in broken(audit(edited(released(locked_path()), 11, full_pages=wrong)))
    assert "well-formed" in broken(audit(edited(released(locked_path()), 11, node=NodeId(9))))


@pytest.mark.parametrize(("full", "wanted"), [(30, set()), (31, {"locked-content"})])
def test_an_unread_recovery_leaves_full_to_be_compared_with_what_it_was(full: int, wanted: set[str]) -> None:
    last = of_page(3, UNLOCKED, full=full, swa=44)
    verdict = audit(recovery(mode=KEEP, told=unread(2, RECOVERED, 3), last=last))
    assert broken(verdict) == wanted
    assert verdict.counts.pages_content_unread == 1


def test_full_replaced_under_a_lock_is_found_once_where_nothing_could_be_read() -> None:
    last = of_page(4, UNLOCKED, full=30, swa=44)
    verdict = audit(recovery(mode=ADOPT, told=unread(2, RECOVERED, 4), last=last))
    told = [found for found in verdict.findings if found.invariant == "locked-content"]
    assert [(found.seq, found.pages) for found in told] == [(17, (4,))]
    assert "other Full pages than when it was locked" in told[0].sentence
    assert CONTENT_UNKNOWN in verdict.notes


def test_after_a_checkpoint_it_tells_that_there_are_fingerprints() -> None:
    story = locked_path().then("release", looked(1, UNLOCKED, 1, 2), looked(2, UNLOCKED, 3), unlocked(1, 2))
    story = story.then("acquire", *acquired(2, 2, 12), looked(1, LOCKED, 1, 2), looked(2, LOCKED, 3))
    story = story.then("release", unread(1, UNLOCKED, 1, 2), unread(2, UNLOCKED, 3), unlocked(2, 2))
    verdict = cut(story.journal(), 7)
    assert (verdict.findings, verdict.counts.pages_content_unread) == ((), 3)
    assert verdict.notes == (CONTENT_UNREAD,)
    assert broken(cut(without(story.journal(), 20), 7)) == {"locked-content"}
