"""Journals that break a lock: the audit names the event, the node, the pages and who held it."""

import pytest

from kvledger.core.events import Cause, MappingSet, Origin, RecoveryMode
from kvledger.journal.audit import audit
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.findings import Findings
from kvledger.journal.audit.locks import Locks
from kvledger.journal.effects import EFFECTS
from kvledger.journal.replay import replay
from tests.support.hand_written import (
    Story,
    acquired,
    allocated,
    broken,
    closed,
    created,
    deleted,
    edited,
    evicted,
    first_of,
    freed,
    inserted,
    locked,
    pages,
    recovered,
    request_opened,
    split,
    swa_unlocked,
    tombstoned,
    unlocked,
    with_event_before,
    with_transaction_after,
    without,
)
from tests.support.stories import one_request, recovery_under_lock, recovery_without_lock


def held_path() -> Story:
    """Node 1 with pages 1 and node 2 with page 2 below it, locked by request r1 up to 8 tokens."""
    return (
        Story()
        .then("alloc", allocated(pages(1, 2, 3, 4)))  # 2
        .then(
            "insert",
            created(1, pages(1), pages(1)),  # 3
            created(2, pages(2), pages(2), parent=1, start=4),  # 4
            inserted(8, full=[(0, 8)], swa=[(0, 8)]),  # 5
        )
        .then("open_request", *acquired(1, 2, 8, request="r1"), request_opened("r1", 1, pages(1, 2)))  # 6-9
    )


def test_a_recovery_that_replaces_locked_full_breaks_locked_full_at_that_very_event() -> None:
    journal = recovery_under_lock()
    adopted = Origin(None, 3)
    journal = edited(journal, 13, mode=RecoveryMode.ADOPT_INCOMING, full_origin=adopted, swa_origin=adopted)
    journal = edited(journal, 14, adopted_full=((0, 4),), duplicates=0)
    verdict = audit(journal)
    assert verdict.verdict == "fail"
    assert broken(verdict) == {"locked-full"}
    finding = first_of(verdict, "locked-full")
    assert (finding.seq, finding.transaction, finding.request) == (13, 8, "reader")
    assert (finding.node, finding.pages, finding.holders) == (1, (1,), ("reader",))
    assert verdict.counts.recoveries_under_lock == 1


def test_every_holder_of_a_replaced_page_is_named() -> None:
    journal = edited(recovery_under_lock(), 13, mode=RecoveryMode.ADOPT_INCOMING)
    second = with_transaction_after(journal, 4, "acquire", *acquired(2, 1, 4))
    finding = first_of(audit(second), "locked-full")
    assert finding.holders == ("reader", "lease 2")


def test_keeping_the_locked_full_pages_breaks_nothing() -> None:
    assert audit(recovery_under_lock()).verdict == "pass"
    assert audit(recovery_without_lock()).verdict == "pass"


def test_deleting_a_locked_node_breaks_locked_full_and_locked_swa() -> None:
    journal = held_path().then("evict", deleted(2, pages(2), pages(2), parent=1), evicted(4, 4)).journal()
    verdict = audit(journal)
    assert broken(verdict) >= {"locked-full", "locked-swa"}
    for invariant in ("locked-full", "locked-swa"):
        finding = first_of(verdict, invariant)
        assert (finding.seq, finding.node, finding.request, finding.pages) == (10, 2, "r1", (2,))


def test_handing_out_a_locked_page_breaks_locked_full() -> None:
    journal = held_path().then("alloc", allocated(pages(1), pages(5))).journal()
    verdict = audit(journal)
    assert broken(verdict) >= {"locked-full", "conservation"}
    finding = first_of(verdict, "locked-full")
    assert (finding.seq, finding.node, finding.request, finding.pages) == (10, 1, "r1", (1,))


def test_freeing_a_locked_page_breaks_locked_full() -> None:
    journal = held_path().then("free", freed(pages(3, 1), pages(3, 1))).journal()
    finding = first_of(audit(journal), "locked-full")
    assert (finding.seq, finding.node, finding.request, finding.pages) == (10, 1, "r1", (1,))


def test_binding_a_locked_page_to_a_second_position_breaks_locked_full() -> None:
    created_twice = created(3, pages(1), pages(1), namespace="other")
    summary = inserted(4, full=[(0, 4)], swa=[(0, 4)], namespace="other")
    journal = held_path().then("insert", created_twice, summary).journal()
    finding = first_of(audit(journal), "locked-full")
    assert (finding.seq, finding.node, finding.request, finding.pages) == (10, 1, "r1", (1,))


def test_a_recovery_that_frees_pages_locked_elsewhere_breaks_locked_full() -> None:
    journal = (
        held_path()
        .then(
            "insert",
            created(9, pages(3), pages(3), namespace="n"),
            inserted(4, full=[(0, 4)], swa=[(0, 4)], namespace="n"),
        )
        .then("evict", tombstoned(9, pages(3), pages(3)), evicted(0, 4))
        .then(
            "insert",
            recovered(
                9,
                mode=RecoveryMode.KEEP_LOCKED_FULL,
                node_full=pages(3),
                incoming=pages(2),
                swa=pages(2),
            ),
            inserted(4, swa=[(0, 4)], duplicates=4, namespace="n"),
        )
        .journal()
    )
    verdict = audit(journal)
    finding = first_of(verdict, "locked-full")
    assert (finding.seq, finding.node, finding.request, finding.pages) == (14, 2, "r1", (2,))
    assert first_of(verdict, "locked-swa").pages == (2,)


def test_a_lock_on_a_node_that_is_split_later_is_followed_through_both_halves() -> None:
    journal = (
        Story()
        .then("alloc", allocated(pages(1, 2)))
        .then("insert", created(1, pages(1, 2), pages(1, 2)), inserted(8, full=[(0, 8)], swa=[(0, 8)]))
        .then("acquire", split(1, 2, 4), *acquired(1, 1, 8))
        .then("acquire", *acquired(2, 2, 4))
        .then("release", unlocked(2, 2), unlocked(1, 1))
        .journal()
    )
    verdict = audit(journal)
    assert verdict.verdict == "pass"
    assert (verdict.counts.locks_followed, verdict.counts.pages_followed) == (2, 3)


@pytest.mark.parametrize(
    ("field", "invariant"), [("full", "locked-full"), ("swa", "locked-swa")], ids=["Full", "SWA"]
)
def test_a_path_that_changed_by_no_event_at_all_is_found_when_the_lock_ends(
    field: str, invariant: str
) -> None:
    state = replay(held_path().journal(), upto=5).state
    context = Context(state, Findings())
    locks = Locks(context)
    lock, release = locked(1, 2, 8), unlocked(1, 2)
    node = state.nodes[lock.node] if lock.node is not None else None
    assert node is not None
    EFFECTS[type(lock)](state, lock, node)
    locks.after[type(lock)](lock, node)
    setattr(node, field, pages(9))
    locks.before[type(release)](release, state.leases[release.lease])
    (finding,) = context.findings.kept([invariant])
    assert (finding.node, finding.pages, finding.holders) == (2, (2,), ("lease 1",))


def test_tombstoning_under_an_swa_lock_breaks_locked_swa_and_tombstone_unlocked() -> None:
    journal = held_path().then("evict", tombstoned(2, pages(2), pages(2)), evicted(0, 4)).journal()
    verdict = audit(journal)
    assert broken(verdict) == {"locked-swa", "tombstone-unlocked"}
    for invariant, named in (("locked-swa", (2,)), ("tombstone-unlocked", (2,))):
        finding = first_of(verdict, invariant)
        assert (finding.seq, finding.node, finding.pages, finding.holders) == (10, 2, named, ("r1",))


def test_tombstoning_outside_the_reach_of_the_swa_lock_breaks_nothing() -> None:
    journal = held_path().then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4)).journal()
    assert audit(journal).findings == ()


def test_an_swa_page_under_lock_that_is_handed_out_breaks_locked_swa() -> None:
    journal = held_path().then("alloc", allocated(pages(7), pages(2))).journal()
    finding = first_of(audit(journal), "locked-swa")
    assert (finding.seq, finding.node, finding.request, finding.pages) == (10, 2, "r1", (2,))


def test_setting_the_mapping_of_pages_under_swa_lock_breaks_locked_swa() -> None:
    journal = held_path().then("mine", MappingSet(pages(2, 3), pages(3, 2))).journal()
    finding = first_of(audit(journal), "locked-swa")
    assert (finding.seq, finding.node, finding.request) == (10, 2, "r1")


def test_an_swa_lock_put_on_a_tombstone_breaks_tombstone_unlocked() -> None:
    journal = (
        Story()
        .then("alloc_full_only", allocated(pages(1), pages(0)))  # 2
        .then("insert", created(1, pages(1), None), inserted(4, full=[(0, 4)]))  # 3 4
        .then("acquire", *acquired(1, 1, 4))  # 5 6 7
        .journal()
    )
    verdict = audit(journal)
    finding = first_of(verdict, "tombstone-unlocked")
    assert (finding.seq, finding.node, finding.pages) == (7, 1, (1,))


def test_a_lease_released_twice_breaks_lock_order() -> None:
    journal = with_event_before(one_request(), 13, unlocked(1, None, request="r1"))
    verdict = audit(journal)
    assert broken(verdict) == {"lock-order"}
    finding = first_of(verdict, "lock-order")
    assert (finding.seq, finding.request) == (13, "r1")
    assert "lease 1 is not held" in finding.sentence


def test_an_swa_half_released_twice_breaks_lock_order() -> None:
    journal = with_event_before(one_request(), 15, swa_unlocked(2, 2, request="r1"))
    verdict = audit(journal)
    assert broken(verdict) == {"lock-order"}
    assert (first_of(verdict, "lock-order").seq, first_of(verdict, "lock-order").node) == (15, 2)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"swa_was_held": True}, "as if its SWA half were still held"),
        ({"node": 1}, "it is released on node 1"),
        ({"request_id": "r2"}, "for 'r2'"),
    ],
)
def test_a_release_that_differs_from_its_receipt_breaks_lock_order(
    changes: dict[str, object], told: str
) -> None:
    verdict = audit(edited(one_request(), 16, **changes))
    assert broken(verdict) == {"lock-order"}
    assert first_of(verdict, "lock-order").seq == 16
    assert told in first_of(verdict, "lock-order").sentence


def test_a_request_that_closes_with_a_lease_breaks_lock_order() -> None:
    verdict = audit(without(one_request(), 16))
    assert broken(verdict) == {"lock-order"}
    finding = first_of(verdict, "lock-order")
    assert (finding.seq, finding.request) == (17, "r1")
    assert verdict.counts.locks_open_at_end == 1


def test_a_request_that_keeps_its_old_lease_beside_the_new_one_breaks_lock_order() -> None:
    verdict = audit(without(one_request(), 12))
    finding = first_of(verdict, "lock-order")
    assert (finding.transaction, finding.request) == (4, "r1")
    assert "names lease 2, but it holds 1, 2" in finding.sentence


def test_a_lock_of_an_older_generation_breaks_lock_order() -> None:
    verdict = audit(edited(one_request(), 11, generation=1))
    assert broken(verdict) == {"lock-order"}
    assert first_of(verdict, "lock-order").seq == 11


def test_a_node_deleted_by_a_reset_that_left_its_lock_breaks_locked_full() -> None:
    journal = held_path().then("reset", deleted(2, pages(2), pages(2), parent=1, cause=Cause.RESET)).journal()
    assert first_of(audit(journal), "locked-full").seq == 10


def test_a_closed_request_holds_nothing() -> None:
    journal = held_path().then("finish", unlocked(1, 2, request="r1"), closed("r1")).journal()
    assert audit(journal).verdict == "pass"
