"""locked-content: fingerprints are compared from lock to unlock, and a missing one is a finding.

In all stories the first events are those of `locked_path`, and the sum of a page is ten times its number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kvledger.core.events import Event, FingerprintReason, KvFingerprinted, KvUnread, RecoveryMode
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.records import StoredCheckpoint, StoredTransaction
from kvledger.journal.replay import replay
from kvledger.journal.snapshot import encode_state
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    broken,
    created,
    deleted,
    edited,
    evicted,
    fingerprinted,
    first_of,
    inserted,
    opened,
    pages,
    recovered,
    reset,
    seq_of,
    split,
    swa_unlocked,
    tombstoned,
    unlocked,
    with_event_before,
    without,
)

LOCKED, RECOVERED, UNLOCKED = FingerprintReason


def looked(node: int, reason: FingerprintReason, *numbers: int, live: bool = True) -> KvFingerprinted:
    """A fingerprint of these pages as they were from the beginning."""
    sums = [10 * number for number in numbers]
    return fingerprinted(node, reason, pages(*numbers), sums=sums, swa=sums if live else None)


def locked_path(*, on: bool | None = True) -> Story:
    """Node 1 of pages 1 and 2, node 2 of page 3 below it, both locked by a request-less lease."""
    return (
        Story(opened(config={} if on is None else {"fingerprints": on}))
        .then("alloc", allocated(pages(1, 2, 3)))  # 2
        .then(
            "insert",
            created(1, pages(1, 2), pages(1, 2)),  # 3
            created(2, pages(3), pages(3), parent=1, start=8),  # 4
            inserted(12, full=[(0, 12)], swa=[(0, 12)]),  # 5
        )
        .then(
            "acquire",
            *acquired(1, 2, 12),  # 6 7 8
            looked(1, LOCKED, 1, 2),  # 9
            looked(2, LOCKED, 3),  # 10
        )
    )


def released(story: Story, *, first: KvFingerprinted | None = None) -> Journal:
    """The same, unlocked again."""
    return story.then(
        "release", first or looked(1, UNLOCKED, 1, 2), looked(2, UNLOCKED, 3), unlocked(1, 2)
    ).journal()


def status(verdict: Verdict) -> str:
    return next(report.status for report in verdict.invariants if report.id == "locked-content")


def test_what_stays_the_same_from_lock_to_unlock_passes_and_is_counted() -> None:
    verdict = audit(released(locked_path()))
    assert (verdict.verdict, status(verdict)) == ("pass", "verified")
    counts = verdict.counts
    assert (counts.pages_fingerprinted, counts.pages_compared, counts.pages_content_unknown) == (6, 3, 0)


def test_where_nothing_was_fingerprinted_nothing_is_said_to_be_verified() -> None:
    journal = without(without(released(locked_path(on=False)), 9), 9)
    quiet = without(without(journal, 9), 9)
    verdict = audit(quiet)
    assert (verdict.verdict, status(verdict)) == ("pass", "not_checked")


@pytest.mark.parametrize("side", ["Full", "SWA"])
def test_a_page_whose_bytes_changed_under_its_lock_is_named_with_both_seqs(side: str) -> None:
    sums, swa = ([10, 21], [10, 20]) if side == "Full" else ([10, 20], [10, 21])
    last = fingerprinted(1, UNLOCKED, pages(1, 2), sums=sums, swa=swa)
    verdict = audit(released(locked_path(), first=last))
    assert broken(verdict) == {"locked-content"}
    found = first_of(verdict, "locked-content")
    assert (found.seq, found.transaction, found.node, found.pages) == (11, 5, 1, (2,))
    assert found.holders == ("lease 1",)
    assert found.sentence == f"the {side} KV of a locked node is not what it was at seq 9"


def test_a_request_that_holds_the_lock_is_named() -> None:
    journal = released(locked_path())
    for seq in (6, 8, 13):
        journal = edited(journal, seq, request_id="reader")
    verdict = audit(edited(journal, 11, full_sums=np.array([10, 21], np.uint64)))
    found = first_of(verdict, "locked-content")
    assert (found.request, found.holders) == ("reader", ("reader",))


@pytest.mark.parametrize(
    ("seq", "node", "at", "said"),
    [
        (9, 1, 8, "a node was locked and nobody looked"),
        (10, 2, 8, "a node was locked and nobody looked"),
        (11, 1, 12, "the last lock of a node is released and nobody looked"),
        (12, 2, 12, "the last lock of a node is released and nobody looked"),
    ],
)
def test_a_missing_fingerprint_is_missing_evidence(seq: int, node: int, at: int, said: str) -> None:
    verdict = audit(without(released(locked_path()), seq))
    (found,) = verdict.findings
    assert (found.invariant, found.node, found.seq) == ("locked-content", node, at)
    assert said in found.sentence
    assert found.holders == ("lease 1",)


def test_a_fingerprint_that_comes_in_a_later_transaction_is_missing_and_misplaced() -> None:
    story = locked_path().then("later", looked(1, LOCKED, 1, 2))
    journal = without(story.journal(), 9)
    assert broken(audit(journal)) == {"locked-content", "well-formed"}


@pytest.mark.parametrize(
    ("event", "before"),
    [
        (looked(1, LOCKED, 1, 2), 11),
        (looked(1, RECOVERED, 1, 2), 11),
        (looked(1, UNLOCKED, 1, 2), 11),
    ],
)
def test_a_fingerprint_where_nothing_happens_to_its_node_is_not_well_formed(
    event: KvFingerprinted, before: int
) -> None:
    verdict = audit(with_event_before(released(locked_path()), before, event))
    assert broken(verdict) == {"well-formed"}
    assert f"fingerprinted as {event.reason}" in first_of(verdict, "well-formed").sentence


def test_a_node_that_stays_locked_is_not_fingerprinted_as_unlocked() -> None:
    story = locked_path().then("query", looked(2, UNLOCKED, 3))
    verdict = audit(released(story))
    assert broken(verdict) == {"well-formed"}
    assert (first_of(verdict, "well-formed").seq, first_of(verdict, "well-formed").node) == (11, 2)


def test_a_fingerprint_names_the_pages_of_its_node() -> None:
    verdict = audit(edited(released(locked_path()), 11, full_pages=pages(1, 4)))
    assert broken(verdict) == {"well-formed"}
    assert first_of(verdict, "well-formed").pages == (1, 4)
    outside = audit(edited(released(locked_path()), 11, full_pages=pages(1, 99)))
    assert "outside 1..16 is named: 99" in first_of(outside, "well-formed").sentence


@pytest.mark.parametrize("on", [False, None])
def test_a_cache_that_does_not_fingerprint_emits_no_fingerprints(on: bool | None) -> None:
    assert broken(audit(released(locked_path(on=on)))) == {"well-formed"}


@pytest.mark.parametrize("field", ["full_pages", "full_sums", "swa_sums"])
def test_a_fingerprint_has_a_sum_for_each_page_of_its_node(field: str) -> None:
    journal = released(locked_path())
    kept = getattr(journal[3].events[3].event, field)
    assert "well-formed" in broken(audit(edited(journal, 9, **{field: kept[:1]})))


def test_a_live_node_has_sums_of_its_swa_and_a_tombstone_none() -> None:
    assert "well-formed" in broken(audit(edited(released(locked_path()), 9, swa_sums=None)))


def test_the_last_unlock_forgets_what_the_next_lock_may_find_otherwise() -> None:
    anew = [fingerprinted(1, reason, pages(1, 2), sums=[7, 7], swa=[7, 7]) for reason in (LOCKED, UNLOCKED)]
    lock, touch, lease = acquired(2, 2, 12)
    story = locked_path().then("release", looked(1, UNLOCKED, 1, 2), looked(2, UNLOCKED, 3), unlocked(1, 2))
    story = story.then("acquire", lock, touch, lease, anew[0], looked(2, LOCKED, 3))
    journal = story.then("release", anew[1], looked(2, UNLOCKED, 3), unlocked(2, 2)).journal()
    assert audit(journal).verdict == "pass"


def test_only_the_first_lock_and_the_last_unlock_need_a_fingerprint() -> None:
    story = locked_path().then("acquire", *acquired(2, 1, 8, window=(1,)))
    # A window of one page: the second lock begins at node 1, which is two pages long.
    journal = edited(story.then("release", unlocked(2, 1)).journal(), 13, swa_from=0)
    verdict = audit(journal)
    assert "locked-content" not in broken(verdict)
    assert verdict.counts.pages_fingerprinted == 3


def test_a_split_under_the_lock_keeps_what_is_known_of_both_halves() -> None:
    def halves(first: int) -> Journal:
        story = locked_path().then("mine", split(1, 3, 4))
        head = fingerprinted(3, UNLOCKED, pages(1), sums=[first], swa=[10])
        return story.then(
            "release", head, looked(1, UNLOCKED, 2), looked(2, UNLOCKED, 3), unlocked(1, 2)
        ).journal()

    assert audit(halves(10)).verdict == "pass"
    found = first_of(audit(halves(11)), "locked-content")
    assert (found.node, found.pages) == (3, (1,))


def recovery(
    *, mode: RecoveryMode, told: KvFingerprinted | KvUnread | None, last: KvFingerprinted
) -> Journal:
    """The SWA of node 2, locked, is evicted and comes back beside page 4."""
    story = (
        locked_path()
        .then("slide", swa_unlocked(1, 2))  # 11
        .then("evict", tombstoned(2, pages(3), pages(3)), evicted(0, 4))  # 12 13
        .then("alloc", allocated(pages(4), pages(4)))  # 14
    )
    replaced = mode is RecoveryMode.ADOPT_INCOMING
    insert: list[Event] = [
        recovered(2, mode=mode, node_full=pages(3), incoming=pages(4), swa=pages(4)),  # 15
        inserted(
            12, full=[(8, 12)] if replaced else [], swa=[(8, 12)], duplicates=0 if replaced else 4
        ),  # 16
    ]
    story = story.then("insert", *insert, *([] if told is None else [told]))  # 17
    return story.then("release", looked(1, UNLOCKED, 1, 2), last, unlocked(1, 2, swa_held=False)).journal()


KEEP, ADOPT = RecoveryMode.KEEP_LOCKED_FULL, RecoveryMode.ADOPT_INCOMING


def of_page(number: int, reason: FingerprintReason, *, full: int, swa: int) -> KvFingerprinted:
    return fingerprinted(2, reason, pages(number), sums=[full], swa=[swa])


def test_full_kept_by_a_recovery_is_compared_and_the_new_swa_is_taken_as_it_is() -> None:
    journal = recovery(
        mode=KEEP,
        told=of_page(3, RECOVERED, full=30, swa=44),
        last=of_page(3, UNLOCKED, full=30, swa=44),
    )
    verdict = audit(journal)
    assert verdict.verdict == "pass"
    assert verdict.counts.pages_compared == 4


@pytest.mark.parametrize(
    ("at", "last", "seq", "since"),
    [
        (of_page(3, RECOVERED, full=31, swa=44), of_page(3, UNLOCKED, full=31, swa=44), 17, 10),
        (of_page(3, RECOVERED, full=30, swa=44), of_page(3, UNLOCKED, full=31, swa=44), 19, 10),
        (of_page(3, RECOVERED, full=30, swa=44), of_page(3, UNLOCKED, full=30, swa=45), 19, 17),
    ],
    ids=["Full at the recovery", "Full later", "SWA later"],
)
def test_a_change_is_found_at_the_first_fingerprint_after_it_and_once(
    at: KvFingerprinted, last: KvFingerprinted, seq: int, since: int
) -> None:
    verdict = audit(recovery(mode=KEEP, told=at, last=last))
    assert broken(verdict) == {"locked-content"}
    (found,) = verdict.findings
    assert (found.seq, found.node, found.pages) == (seq, 2, (3,))
    assert found.sentence.endswith(f"not what it was at seq {since}")


def test_a_recovery_under_a_lock_without_a_fingerprint_is_missing_evidence() -> None:
    verdict = audit(recovery(mode=KEEP, told=None, last=of_page(3, UNLOCKED, full=30, swa=44)))
    (found,) = verdict.findings
    assert (found.invariant, found.seq, found.node) == ("locked-content", 15, 2)
    assert "a node was recovered and nobody looked" in found.sentence


def test_full_replaced_under_a_lock_is_found_whatever_the_new_pages_hold() -> None:
    same = of_page(4, RECOVERED, full=30, swa=44)
    verdict = audit(recovery(mode=ADOPT, told=same, last=of_page(4, UNLOCKED, full=30, swa=44)))
    found = first_of(verdict, "locked-content")
    assert (found.seq, found.node, found.pages) == (17, 2, (4,))
    assert found.sentence.endswith("other Full pages than when it was locked, fingerprinted at seq 10")
    assert {"locked-full", "locked-content"} <= broken(verdict)


def test_what_a_split_head_was_locked_with_is_named_by_its_seq() -> None:
    story = (
        locked_path()
        .then("evict", tombstoned(1, pages(1, 2), pages(1, 2)), evicted(0, 8))  # 11 12
        .then("mine", split(1, 3, 4), allocated(pages(4), pages(4)))  # 13 14
        .then(
            "insert",
            recovered(3, mode=ADOPT, node_full=pages(1), incoming=pages(4), swa=pages(4)),  # 15
            inserted(4, full=[(0, 4)], swa=[(0, 4)]),  # 16
            fingerprinted(3, RECOVERED, pages(4), sums=[40], swa=[40]),  # 17
        )
    )
    found = first_of(audit(story.journal()), "locked-content")
    assert (found.seq, found.node, found.pages) == (17, 3, (4,))
    assert found.sentence.endswith("fingerprinted at seq 9")


def test_a_page_under_a_new_lock_is_not_held_to_what_it_was_under_another() -> None:
    # Page 1 was locked in node 1, is replaced there, and comes to node 2, which is locked too.
    story = (
        locked_path()
        .then("slide", swa_unlocked(1, 2))
        .then(
            "evict",
            tombstoned(1, pages(1, 2), pages(1, 2)),
            tombstoned(2, pages(3), pages(3)),
            evicted(0, 12),
        )
        .then("alloc", allocated(pages(4, 5), pages(4, 5)))
        .then(
            "insert",
            recovered(1, mode=ADOPT, node_full=pages(1, 2), incoming=pages(4, 5), swa=pages(4, 5)),
            inserted(8, full=[(0, 8)], swa=[(0, 8)]),
            looked(1, RECOVERED, 4, 5),
        )
        .then("alloc", allocated(pages(1), pages(1)))
        .then(
            "insert",
            recovered(2, mode=ADOPT, node_full=pages(3), incoming=pages(1), swa=pages(1)),
            inserted(12, full=[(8, 12)], swa=[(8, 12)]),
            fingerprinted(2, RECOVERED, pages(1), sums=[77], swa=[77]),
        )
    )
    told = [one.sentence for one in audit(story.journal()).findings if one.invariant == "locked-content"]
    assert len(told) == 2
    assert all("other Full pages than when it was locked" in sentence for sentence in told)


def test_a_page_that_left_a_locked_node_takes_no_sum_to_the_next_one() -> None:
    story = locked_path().then(
        "evict", deleted(2, pages(3), pages(3), parent=1), evicted(4, 4), looked(1, UNLOCKED, 1, 2)
    )
    verdict = audit(story.journal())
    assert "locked-full" in broken(verdict)
    assert not any("is not what it was" in finding.sentence for finding in verdict.findings)


@pytest.mark.parametrize("missing", [False, True])
def test_a_reset_fingerprints_what_it_unlocks_too(missing: bool) -> None:
    story = locked_path().then(
        "reset",
        looked(1, UNLOCKED, 1, 2),  # 11
        looked(2, UNLOCKED, 3),  # 12
        unlocked(1, 2, by_reset=True),
        deleted(2, pages(3), pages(3), parent=1),
        deleted(1, pages(1, 2), pages(1, 2)),
        reset(1),
    )
    journal = without(story.journal(), 12) if missing else story.journal()
    assert ("locked-content" in broken(audit(journal))) is missing


# From a checkpoint on.


@dataclass
class FromCheckpoint:
    """A source whose transactions before number `first` are gone."""

    journal: Journal
    first: int
    config: dict[str, Any] | None = None

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        return iter(self.journal[max(self.first, first or 0) - 1 :])

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        before = self.journal[self.first - 2]
        state = replay(self.journal[: self.first - 1]).state
        return StoredCheckpoint(before.last_seq, before.number, b"", state.digest(), encode_state(state), b"")

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        return None

    def checkpoint_places(self) -> Iterator[tuple[TxnId, str]]:
        return iter(())

    def recorded_config(self) -> dict[str, Any] | None:
        return self.config


def cut(journal: Journal, first: int, *, on: bool | None = None) -> Verdict:
    return audit(FromCheckpoint(journal, first, None if on is None else {"fingerprints": on}))


def later_lock(changed: Sequence[int] = (10, 20)) -> Story:
    """The path's lock is released in transaction 5 and taken anew in 6 to 7."""
    story = locked_path().then("release", looked(1, UNLOCKED, 1, 2), looked(2, UNLOCKED, 3), unlocked(1, 2))
    story = story.then("acquire", *acquired(2, 2, 12), looked(1, LOCKED, 1, 2), looked(2, LOCKED, 3))
    last = fingerprinted(1, UNLOCKED, pages(1, 2), sums=changed, swa=[10, 20])
    return story.then("release", last, looked(2, UNLOCKED, 3), unlocked(2, 2))


def test_after_a_checkpoint_evidence_from_before_it_is_unknown_and_no_failure() -> None:
    verdict = cut(later_lock().journal(), 5)
    assert (verdict.verdict, verdict.findings) == ("unverified", ())
    counts = verdict.counts
    assert (counts.pages_fingerprinted, counts.pages_compared, counts.pages_content_unknown) == (9, 3, 3)
    (note,) = verdict.notes
    assert "unknown for locks from before the checkpoint" in note
    assert "note: what pages held" in verdict.render()


def test_after_a_checkpoint_locks_that_are_seen_from_their_beginning_are_compared() -> None:
    verdict = cut(later_lock([10, 21]).journal(), 5)
    assert broken(verdict) == {"locked-content"}
    assert cut(later_lock().journal(), 6).notes == ()


def test_after_a_checkpoint_what_a_first_fingerprint_tells_is_what_later_ones_are_held_to() -> None:
    recovered_later = recovery(
        mode=KEEP,
        told=of_page(3, RECOVERED, full=30, swa=44),
        last=of_page(3, UNLOCKED, full=31, swa=44),
    )
    found = first_of(cut(recovered_later, 5), "locked-content")
    assert (found.seq, found.sentence[-6:]) == (19, "seq 17")


def without_evidence(journal: Journal) -> Journal:
    """The journal without any fingerprint."""
    while any(isinstance(stored.event, KvFingerprinted) for one in journal for stored in one.events):
        journal = without(journal, seq_of(journal, KvFingerprinted))
    return journal


def test_after_a_checkpoint_nothing_is_missed_until_a_fingerprint_says_that_there_are_some() -> None:
    journal = later_lock().journal()
    assert cut(without_evidence(journal), 5).findings == ()
    assert "locked-content" in broken(cut(without(journal, seq_of(journal, KvFingerprinted, nth=5)), 5))


def test_after_a_checkpoint_evidence_is_missed_that_the_journals_row_promises() -> None:
    journal = without_evidence(later_lock().journal())
    verdict = cut(journal, 5, on=True)
    assert broken(verdict) == {"locked-content"}
    told = [(found.node, found.sentence) for found in verdict.findings]
    missing = "evidence is missing: "
    released = f"{missing}the last lock of a node is released and nobody looked what it held"
    locked = f"{missing}a node was locked and nobody looked what it held"
    assert told == [(2, released), (1, released), (2, locked), (1, locked), (2, released), (1, released)]
    assert cut(later_lock().journal(), 5, on=True).findings == ()


def test_after_a_checkpoint_fingerprints_that_the_journals_row_denies_are_not_well_formed() -> None:
    assert broken(cut(later_lock().journal(), 5, on=False)) == {"well-formed"}
    assert cut(without_evidence(later_lock().journal()), 5, on=False).findings == ()
