"""Journals whose inserts say of themselves what is not so: credit, insert-match, well-formed."""

import pytest

from kvledger.core.events import Cause, Origin, RecoveryMode, RollbackCause
from kvledger.core.ids import RequestId
from kvledger.journal.audit import audit
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    broken,
    created,
    edited,
    first_of,
    freed,
    inserted,
    opened,
    pages,
    request_opened,
    rolled_back,
    row_changed,
    unlocked,
    with_event_before,
    without,
)
from tests.support.stories import one_request, recovery_under_lock, recovery_without_lock, refused_commit


def second_commit() -> Journal:
    """A request that has published one page publishes a duplicate, a dead page and a live one."""
    return (
        Story(opened(window=4, swa=16))
        .then("alloc", allocated(pages(1, 2)))  # 2
        .then(
            "insert",
            created(1, pages(1, 2), pages(1, 2)),  # 3
            inserted(8, full=[(0, 8)], swa=[(0, 8)]),  # 4
        )
        .then("open_request", *acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))  # 5 6 7
        .then("extend", allocated(pages(3, 4, 5, 6), owner="r1", row_start=0))  # 8
        .then(
            "commit",
            freed(pages(3, 4), pages(3, 4), owner="r1", cause=Cause.DUPLICATE),  # 9
            created(2, pages(5), pages(5), parent=1, start=8),  # 10
            inserted(12, full=[(8, 12)], swa=[(8, 12)], duplicates=8, request="r1"),  # 11
            *acquired(2, 2, 12, request="r1"),  # 12 13 14
            unlocked(1, None, request="r1"),  # 15
            row_changed("r1", 2, pages(1, 2), row_pages=4),  # 16
        )
        .journal()
    )


def refused_whole() -> Journal:
    """Under "skip" the match may accept nothing of a commit: all is undone, and no insert is summed up."""
    return (
        Story(opened(recovery="skip"))
        .then("open_request", *acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))  # 2 3 4
        .then("extend", allocated(pages(1), owner="r1", row_start=0))  # 5
        .then(
            "commit",
            created(1, pages(1), pages(1)),  # 6, undone
            rolled_back(0, 1, cause=RollbackCause.SKIPPED, request="r1"),  # 7
            undone=[0],
        )
        .journal()
    )


def skipping() -> Journal:
    """The refused commit as the policy "skip" journals it."""
    journal = edited(refused_commit(), 1, locked_recovery="skip")
    return edited(journal, 8, cause=RollbackCause.SKIPPED)


def refused_advance() -> Journal:
    """A raw caller moves a lease: of two pages the match accepts one, the other stays the caller's."""
    return (
        Story(opened(recovery="skip"))
        .then("acquire", *acquired(1, None, 0))  # 2 3
        .then("alloc", allocated(pages(1, 2)))  # 4
        .then(
            "advance",
            created(1, pages(1), pages(1)),  # 5
            created(2, pages(2), pages(2), parent=1, start=4),  # 6, undone
            rolled_back(1, 2, cause=RollbackCause.SKIPPED),  # 7
            inserted(4, full=[(0, 4)], swa=[(0, 4)], refused=4),  # 8
            *acquired(2, 1, 4),  # 9 10 11
            unlocked(1, None),  # 12
            undone=[1],
        )
        .then("free", freed(pages(2), pages(2), cause=Cause.CALLER))  # 13
        .journal()
    )


def refused_advance_whole() -> Journal:
    """The same where the match accepts nothing: all is undone and the lease stays."""
    return (
        Story(opened(recovery="skip"))
        .then("acquire", *acquired(1, None, 0))  # 2 3
        .then("alloc", allocated(pages(1)))  # 4
        .then(
            "advance",
            created(1, pages(1), pages(1)),  # 5, undone
            rolled_back(0, 1, cause=RollbackCause.SKIPPED),  # 6
            undone=[0],
        )
        .journal()
    )


@pytest.mark.parametrize(
    "journal",
    [second_commit(), refused_whole(), skipping(), refused_advance(), refused_advance_whole()],
)
def test_what_is_told_truly_passes(journal: Journal) -> None:
    assert audit(journal).findings == ()


def test_a_raw_insert_of_which_a_part_was_refused_is_matched_again() -> None:
    journal = refused_advance()
    for seq in (12, 11, 10, 9):
        journal = without(journal, seq)
    finding = first_of(audit(journal), "insert-match")
    assert (finding.seq, finding.request) == (8, None)
    assert "a raw insert refused in part was not matched again" in finding.sentence


def test_a_raw_insert_of_which_a_part_was_refused_is_matched_at_the_length_that_was_accepted() -> None:
    finding = first_of(audit(edited(refused_advance(), 9, length=0, node=None)), "insert-match")
    assert finding.seq == 9
    assert "accepted 4 tokens at seq 8" in finding.sentence


@pytest.mark.parametrize("page", [1, 3, 0, 10**6, -1])
def test_what_is_refused_of_a_raw_insert_is_the_callers(page: int) -> None:
    journal = edited(refused_advance(), 6, full_pages=pages(page))
    finding = first_of(audit(journal), "credit")
    assert finding.seq == 8
    assert "what is refused stays theirs" in finding.sentence


def test_a_refusal_of_a_request_that_is_not_open_is_found() -> None:
    finding = first_of(audit(edited(refused_advance_whole(), 6, request_id=RequestId("r1"))), "insert-match")
    assert finding.seq == 6
    assert "no such request is open" in finding.sentence


def test_under_remap_a_refused_part_of_a_raw_insert_is_an_anomaly_with_the_rest_told() -> None:
    journal = edited(
        edited(refused_advance_whole(), 1, locked_recovery="remap"), 6, cause=RollbackCause.REFUSED
    )
    finding = first_of(audit(journal), "insert-match")
    assert finding.seq == 6
    assert "no insert tells of the rest" in finding.sentence


def test_a_skipped_part_excuses_no_commit_from_its_match() -> None:
    journal = skipping()
    for seq in (14, 13, 12, 11, 10):
        journal = without(journal, seq)
    verdict = audit(journal)
    finding = first_of(verdict, "insert-match")
    assert (finding.seq, finding.request) == (9, "r1")
    assert "not matched again" in finding.sentence


@pytest.mark.parametrize(
    ("journal", "seq"),
    [
        (edited(refused_commit(), 8, cause=RollbackCause.SKIPPED), 8),
        (edited(refused_commit(), 1, locked_recovery="skip"), 8),
        (edited(refused_whole(), 1, locked_recovery="remap"), 7),
    ],
)
def test_a_rollback_of_the_other_policy_breaks_insert_match(journal: Journal, seq: int) -> None:
    finding = first_of(audit(journal), "insert-match")
    assert (finding.seq, finding.request) == (seq, "r1")
    assert "does not happen under the policy" in finding.sentence


def test_an_anomaly_whose_insert_is_never_told_breaks_insert_match() -> None:
    finding = first_of(audit(without(refused_commit(), 9)), "insert-match")
    assert (finding.seq, finding.request) == (8, "r1")


@pytest.mark.parametrize("refused", [-4, 4, 8])
def test_a_refusal_of_more_or_less_than_was_undone_is_found(refused: int) -> None:
    verdict = audit(edited(one_request(), 8, refused=refused))
    assert {finding.seq for finding in verdict.findings} == {8}
    if refused > 0:
        assert "insert-match" in broken(verdict)
    verdict = audit(edited(refused_commit(), 9, refused=refused + 4))
    assert verdict.verdict == "fail"


@pytest.mark.parametrize(
    "changes",
    [
        {"prefix_len": 0},
        {"prefix_len": 12},
        {"prefix_len": 7},
        {"prefix_len": -4},
        {"protected_len": 4},
        {"protected_len": -4},
        {"protected_len": 16},
        {"swa_evicted_len": 4},
        {"swa_evicted_len": 16},
        {"swa_evicted_len": -4},
        {"swa_evicted_len": 2},
        {"length": 8},
        {"length": 13},
        {"request_id": "r2"},
        {"request_id": None},
        {"adopted_full": ((0, 12),)},
    ],
    ids=str,
)
def test_an_insert_that_tells_other_lengths_than_it_had_breaks_credit(changes: dict[str, object]) -> None:
    finding = first_of(audit(edited(second_commit(), 11, **changes)), "credit")
    assert finding.seq == 11


def test_a_dead_page_may_not_come_after_a_live_one() -> None:
    journal = (
        Story()
        .then("alloc", allocated(pages(1, 2), pages(1, 0)))
        .then(
            "insert",
            created(1, pages(1), pages(1)),  # 3
            created(2, pages(2), None, parent=1, start=4),  # 4
            inserted(8, full=[(0, 8)], swa=[(0, 4)]),  # 5
        )
        .journal()
    )
    finding = first_of(audit(journal), "credit")
    assert finding.seq == 5
    assert "after pages with SWA" in finding.sentence


def test_a_move_of_pages_that_skips_a_position_of_the_row_breaks_credit() -> None:
    journal = edited(one_request(), 7, full_pages=pages(3), swa_pages=pages(3))
    finding = first_of(audit(journal), "credit")
    assert (finding.seq, finding.request, finding.pages) == (8, "r1", (3,))


def test_pages_that_go_to_another_position_than_their_own_break_credit() -> None:
    # The duplicate comes first in the row, but its page is freed after the new node took its own.
    journal = second_commit()
    late = without(journal, 9)
    event = journal[5].events[0].event
    finding = first_of(audit(with_event_before(late, 10, event)), "credit")
    assert (finding.seq, finding.request) == (11, "r1")


def test_an_insert_of_a_request_into_another_namespace_breaks_namespace() -> None:
    finding = first_of(audit(edited(second_commit(), 11, namespace="other")), "namespace")
    assert finding.seq == 11


@pytest.mark.parametrize("seq", [6, 7])
@pytest.mark.parametrize("field", ["full_origin", "swa_origin"])
@pytest.mark.parametrize("origin", [Origin(None, 1), Origin(None, 9), None])
def test_a_node_whose_origin_is_not_its_inserter_is_not_well_formed(
    seq: int, field: str, origin: Origin | None
) -> None:
    if origin is None and field == "full_origin":
        origin = Origin(RequestId("r2"), 1)
    finding = first_of(audit(edited(one_request(), seq, **{field: origin})), "well-formed")
    assert finding.node == seq - 5


def test_a_recovery_keeps_the_origin_of_full_that_it_keeps() -> None:
    stranger = Origin(RequestId("r9"), 77)
    for journal, seq in ((recovery_under_lock(), 13), (recovery_without_lock(), 8)):
        for field in ("full_origin", "swa_origin"):
            finding = first_of(audit(edited(journal, seq, **{field: stranger})), "well-formed")
            assert finding.node == 1


def test_full_is_kept_by_a_recovery_only_under_a_lock_and_the_policy_remap() -> None:
    unlocked_node = edited(recovery_without_lock(), 8, mode=RecoveryMode.KEEP_LOCKED_FULL)
    told = [f.sentence for f in audit(unlocked_node).findings if f.invariant == "well-formed"]
    assert any("kept by a recovery under 0 locks" in sentence for sentence in told)
    skip = edited(recovery_under_lock(), 1, locked_recovery="skip")
    assert first_of(audit(skip), "well-formed").seq == 13


@pytest.mark.parametrize("epoch", [1, 0, -1])
def test_an_epoch_is_used_once(epoch: int) -> None:
    journal = second_commit()
    assert first_of(audit(edited(journal, 7, epoch=epoch)), "well-formed").seq == 7
    assert first_of(audit(edited(journal, 16, epoch=epoch)), "well-formed").seq == 16


def test_a_raw_insert_has_an_epoch_of_its_own() -> None:
    story = Story().then("alloc", allocated(pages(1, 2)))
    for node, page in ((1, 1), (2, 2)):
        story.then(
            "insert",
            created(node, pages(page), pages(page), first_token=40 * node),
            inserted(4, full=[(0, 4)], swa=[(0, 4)]),
        )
    journal = story.journal()
    assert audit(journal).findings == ()
    again = edited(journal, 5, full_origin=Origin(None, 1), swa_origin=Origin(None, 1))
    assert first_of(audit(again), "well-formed").seq == 6
