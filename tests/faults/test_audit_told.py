"""A broken lock or page is told once, where it begins, about what is concerned and nothing else. A second."""

import pytest

from kvledger.core.events import Cause, FingerprintReason, MappingSet, Pool, RecoveryMode
from kvledger.journal.audit import audit
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.findings import Findings
from kvledger.journal.audit.locks import HOLDERS_NAMED, Locks
from kvledger.journal.effects import EFFECTS
from kvledger.journal.replay import replay
from tests.support.hand_written import (
    Story,
    acquired,
    allocated,
    broken,
    created,
    edited,
    evicted,
    fingerprinted,
    first_of,
    freed,
    inserted,
    locked,
    matched,
    of,
    opened,
    pages,
    recovered,
    request_opened,
    row_changed,
    seq_of,
    swa_unlocked,
    tombstoned,
    touched,
    unlocked,
    with_transaction_after,
    without,
)
from tests.support.stories import (
    eviction_and_reuse,
    one_request,
    path,
    recovery_under_lock,
    recovery_without_lock,
)


def test_a_page_that_is_free_already_is_said_to_be_free() -> None:
    story = path(3).then("free", freed(pages(3), pages(3)))
    verdict = audit(story.then("free", freed(pages(3), pages(0), pool=Pool.FULL)).journal())
    assert "it is free" in first_of(verdict, "conservation").sentence


def test_an_swa_page_that_is_not_free_is_said_to_stand_beside_a_full_page_or_to_wait() -> None:
    beside = audit(path().then("alloc", allocated(pages(5), pages(1))).journal())
    assert "it is beside a Full page" in first_of(beside, "conservation").sentence
    story = path(3).then("mine", freed(pages(3), pages(3)), allocated(pages(5), pages(3)))
    assert "waiting for the end" in first_of(audit(story.journal()), "conservation").sentence


def test_a_page_of_an_unlocked_node_that_is_handed_out_breaks_no_lock() -> None:
    verdict = audit(path().then("alloc", allocated(pages(1), pages(5))).journal())
    assert not broken(verdict) & {"locked-full", "locked-swa"}
    assert first_of(verdict, "conservation").pages == (1,)
    verdict = audit(path().then("alloc", allocated(pages(5), pages(1))).journal())
    assert not broken(verdict) & {"locked-full", "locked-swa"}


@pytest.mark.parametrize("kind", ["node_deleted", "swa_tombstoned"])
def test_swa_pages_that_do_not_stand_beside_the_node_break_mapping_at_that_event(kind: str) -> None:
    journal = eviction_and_reuse() if kind == "node_deleted" else recovery_without_lock()
    (seq, old) = next(
        (stored.seq, getattr(stored.event, "swa_pages"))  # noqa: B009
        for transaction in journal
        for stored in transaction.events
        if stored.event.kind == kind and getattr(stored.event, "swa_pages") is not None  # noqa: B009
    )
    wrong = pages(*(int(page) + 4 for page in old))
    finding = first_of(audit(edited(journal, seq, swa_pages=wrong)), "mapping")
    assert (finding.seq, finding.pages) == (seq, tuple(wrong.tolist()))
    assert finding.node is not None


def test_a_free_of_the_swa_side_of_pages_that_have_none_is_told_once() -> None:
    story = Story().then("alloc", allocated(pages(1, 2), pages(0, 3)))
    verdict = audit(story.then("free", freed(pages(1, 2), pages(0, 3), pool=Pool.SWA)).journal())
    assert [f.pages for f in of(verdict, "conservation")] == [(1,)]


@pytest.mark.parametrize(("full_lock", "swa_lock"), [(0, 1), (1, 0), (1, 2), (0, 0), (-1, -1)], ids=str)
@pytest.mark.parametrize("half", [False, True], ids=["release", "release of the SWA half"])
def test_counts_under_a_lease_that_do_not_hold_it_are_found_when_it_ends(
    full_lock: int, swa_lock: int, half: bool
) -> None:
    state = replay(path().journal()).state
    context = Context(state, Findings())
    locks = Locks(context)
    lock, release = locked(1, 2, 8), swa_unlocked(1, 2) if half else unlocked(1, 2)
    node = state.nodes[lock.node] if lock.node is not None else None
    assert node is not None
    EFFECTS[type(lock)](state, lock, node)
    locks.after[type(lock)](lock, node)
    node.full_lock, node.swa_lock = full_lock, swa_lock
    locks.before[type(release)](release, state.leases[release.lease])
    (finding,) = context.findings.kept(["lock-order"])
    assert finding.node == 2


@pytest.mark.parametrize(("field", "invariant"), [("full", "locked-full"), ("swa", "locked-swa")])
def test_a_path_that_changed_by_no_event_is_found_when_its_swa_half_is_given_up(
    field: str, invariant: str
) -> None:
    state = replay(path().journal()).state
    context = Context(state, Findings())
    locks = Locks(context)
    lock, release = locked(1, 2, 8), swa_unlocked(1, 2)
    node = state.nodes[lock.node] if lock.node is not None else None
    assert node is not None
    EFFECTS[type(lock)](state, lock, node)
    locks.after[type(lock)](lock, node)
    setattr(node, field, pages(9))
    locks.before[type(release)](release, state.leases[release.lease])
    assert [f.node for f in context.findings.kept([invariant])] == [2]


def test_a_lock_that_was_violated_is_told_once_and_not_again_when_it_ends() -> None:
    journal = edited(recovery_under_lock(), 13, mode=RecoveryMode.ADOPT_INCOMING)
    assert [finding.seq for finding in of(audit(journal), "locked-full")] == [13]


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_finding_names_some_holders_of_a_lock_and_counts_the_rest(more: int) -> None:
    journal = edited(recovery_under_lock(), 13, mode=RecoveryMode.ADOPT_INCOMING)
    for number in range(HOLDERS_NAMED - 1 + more):
        journal = with_transaction_after(journal, 4, "acquire", *acquired(50 + number, 1, 4))
    holders = first_of(audit(journal), "locked-full").holders
    assert len(holders) == HOLDERS_NAMED + (more > 0)
    assert (holders[-1] == f"{more} more") == (more > 0)


def test_a_lock_over_two_tombstones_is_one_finding_at_the_deepest() -> None:
    story = (
        Story(opened(window=8))
        .then("alloc", allocated(pages(1, 2), pages(0, 0)))
        .then("insert", created(1, pages(1), None), created(2, pages(2), None, parent=1, start=4))
        .then("acquire", matched(8, 2), touched(1, 2), locked(1, 2, 8))
    )
    window = [f for f in of(audit(story.journal()), "window-match") if "live tokens since" in f.sentence]
    assert [finding.node for finding in window] == [2]


def test_a_row_that_moves_to_a_lease_of_another_namespace_breaks_namespace() -> None:
    story = Story().then(
        "open_request",
        *acquired(1, None, 0, request="r1", namespace="x"),
        request_opened("r1", 1, pages(), namespace="x"),
    )
    story.then("commit", *acquired(2, None, 0, request="r1", namespace="y"), unlocked(1, None, request="r1"))
    journal = with_transaction_after(story.journal(), 3, "commit", row_changed("r1", 2, pages()))
    found = [f for f in of(audit(journal), "namespace") if f.request == "r1"]
    assert [finding.seq for finding in found] == [seq_of(journal, type(row_changed("r1", 2, pages())))]


def test_the_last_page_of_a_pool_is_fingerprinted_like_any_other() -> None:
    story = Story(opened(full=3, swa=3, config={"fingerprints": True})).then("alloc", allocated(pages(3)))
    story.then("insert", created(1, pages(3), pages(3)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
    sums = {"sums": [30], "swa": [31]}
    story.then("acquire", *acquired(1, 1, 4), fingerprinted(1, FingerprintReason.LOCKED, pages(3), **sums))
    last = fingerprinted(1, FingerprintReason.UNLOCKED, pages(3), **sums)
    verdict = audit(story.then("release", last, unlocked(1, 1)).journal())
    assert (verdict.verdict, verdict.counts.pages_compared) == ("pass", 1)


def test_swa_pages_that_a_mapping_set_anew_leaves_behind_break_conservation() -> None:
    story = Story().then("alloc", allocated(pages(1, 2)))
    verdict = audit(story.then("map", MappingSet(pages(1, 2), pages(0, 1))).journal())
    finding = first_of(verdict, "conservation")
    assert (finding.seq, finding.pages) == (3, (2,))
    assert "in no place" in finding.sentence


def test_a_fingerprint_before_a_release_that_does_not_concern_its_node_is_told_at_itself() -> None:
    story = (
        Story(opened(config={"fingerprints": True}))
        .then("alloc", allocated(pages(1, 2)))  # 2
        .then(
            "insert",
            created(1, pages(1), pages(1)),  # 3
            created(2, pages(2), pages(2), start=0, first_token=50),  # 4
            inserted(4, full=[(0, 4)], swa=[(0, 4)]),  # 5
        )
    )
    for node in (1, 2):
        at = fingerprinted(node, FingerprintReason.LOCKED, pages(node), sums=[node], swa=[node])
        story.then("acquire", *acquired(node, node, 4), at)  # 6 to 9, 10 to 13
    both = [
        fingerprinted(node, FingerprintReason.UNLOCKED, pages(node), sums=[node], swa=[node])
        for node in (2, 1)
    ]
    verdict = audit(story.then("release", *both, unlocked(1, 1)).journal())  # 14 15 16
    misplaced = [f for f in of(verdict, "well-formed") if "no such thing happens" in f.sentence]
    assert [(finding.seq, finding.node) for finding in misplaced] == [(14, 2)]


def test_a_node_that_is_deleted_for_a_reason_that_deletes_no_node_is_not_well_formed() -> None:
    journal = eviction_and_reuse()
    seq = next(s.seq for t in journal for s in t.events if s.event.kind == "node_deleted")
    told = of(audit(edited(journal, seq, cause=Cause.FINISH)), "well-formed")
    assert any("a node is deleted with cause finish" in finding.sentence for finding in told)


def test_a_page_of_a_request_that_closed_with_it_is_said_to_be_held_by_one_that_is_closed() -> None:
    journal = with_transaction_after(without(one_request(), 17), 6, "alloc", allocated(pages(3), pages(6)))
    sentences = [finding.sentence for finding in of(audit(journal), "conservation")]
    assert any("held by a request that is closed" in sentence for sentence in sentences)


def test_full_that_a_recovery_kept_is_compared_with_what_it_was_even_where_nobody_looked_then() -> None:
    sums = {"sums": [30], "swa": [31]}
    story = (
        Story(opened(config={"fingerprints": True}))
        .then("alloc", allocated(pages(1)))
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
        .then("acquire", *acquired(1, 1, 4), fingerprinted(1, FingerprintReason.LOCKED, pages(1), **sums))
        .then("slide", swa_unlocked(1, 1))
        .then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))
        .then("alloc", allocated(pages(4), pages(4)))
    )
    heal = recovered(
        1, mode=RecoveryMode.KEEP_LOCKED_FULL, node_full=pages(1), incoming=pages(4), swa=pages(4)
    )
    story.then("insert", heal, inserted(4, swa=[(0, 4)], duplicates=4))
    last = fingerprinted(1, FingerprintReason.UNLOCKED, pages(1), sums=[99], swa=[31])
    verdict = audit(story.then("release", last, unlocked(1, 1, swa_held=False)).journal())
    told = [finding.sentence for finding in of(verdict, "locked-content")]
    assert any("evidence is missing" in sentence for sentence in told)
    assert any("the Full KV of a locked node is not what it was" in sentence for sentence in told)


def test_a_node_made_of_pages_of_two_owners_names_those_that_are_not_the_first_ones() -> None:
    story = Story().then("open_request", *acquired(1, None, 0, request="r"), request_opened("r", 1, pages()))
    story.then("extend", allocated(pages(1, 2), owner="r", row_start=0)).then("alloc", allocated(pages(3)))
    node = created(1, pages(1, 3, 2), pages(1, 3, 2))
    verdict = audit(story.then("insert", node, inserted(12, full=[(0, 12)], swa=[(0, 12)])).journal())
    finding = first_of(verdict, "conservation")
    assert (finding.node, finding.pages) == (1, (3,))
    assert "more than one owner" in finding.sentence
