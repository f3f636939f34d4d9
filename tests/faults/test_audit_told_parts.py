"""A wrong rollback, insert or row is told where it begins, and a right one is not. A second."""

from dataclasses import replace

import pytest

from kvledger.core.events import Cause, RecoveryMode, RollbackCause
from kvledger.journal.audit import audit
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.endings import CUTS_KEPT, Endings
from kvledger.journal.audit.findings import Findings
from kvledger.journal.audit.rollbacks import BIRTHS_KEPT, Rollbacks
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import replay
from tests.scenario.dsl import Story as Told
from tests.support.hand_written import (
    Story,
    acquired,
    allocated,
    broken,
    created,
    edited,
    evicted,
    first_of,
    freed,
    inserted,
    locked,
    of,
    opened,
    pages,
    recovered,
    request_opened,
    rolled_back,
    row_changed,
    split,
    tombstoned,
    touched,
    unlocked,
    with_transaction_after,
)
from tests.support.stories import (
    one_request,
    path,
    recovery_without_lock,
)
from tests.support.witness import open_cache


def test_a_row_that_is_wrong_is_told_by_the_transaction_that_made_it_so_and_no_later_one() -> None:
    journal = with_transaction_after(
        one_request(), 3, "extend", allocated(pages(7), pages(7), owner="r1", row_start=1)
    )
    journal = with_transaction_after(journal, 4, "alloc", allocated(pages(8), pages(8)))
    journal = with_transaction_after(journal, 5, "free", freed(pages(8), pages(8)))
    transactions = [finding.transaction for finding in of(audit(journal), "row-safety")]
    assert 4 in transactions
    assert not {5, 6} & set(transactions)


@pytest.mark.parametrize("leaves", ["abort", "finish", "retract"])
def test_a_request_may_publish_and_then_leave_in_one_transaction_of_the_callers(leaves: str) -> None:
    cache, sink = open_cache()
    request = cache.open_request("r", list(range(9)))
    request.extend(9)
    request.computed()
    with cache.transaction("group"):
        request.commit()
        getattr(request, leaves)()
    assert audit(number_transactions(sink.transactions)).findings == ()


@pytest.mark.parametrize("first", [2, 3, 4])
def test_a_rollback_may_not_begin_in_an_earlier_one_or_right_behind_what_that_undid(first: int) -> None:
    story = Story().then(
        "mine",
        allocated(pages(1)),  # 0
        allocated(pages(2)),  # 1
        allocated(pages(3)),  # 2
        allocated(pages(4)),  # 3
        rolled_back(1, 4),  # 4
        allocated(pages(5)),  # 5
        rolled_back(first, 6),  # 6
        undone=[1, 2, 3, *range(first, 6)],
    )
    found = of(audit(story.journal()), "rollback-neutral")
    assert any("begins inside an earlier one" in finding.sentence for finding in found)


@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_rollback_may_take_an_earlier_one_along_or_leave_it_alone(first: int) -> None:
    undone = {1, 2, 3, *range(first, 6)}
    story = Story().then(
        "mine",
        allocated(pages(1)),
        allocated(pages(2)),
        allocated(pages(3)),
        allocated(pages(4)),
        rolled_back(1, 4),
        allocated(pages(5)),
        rolled_back(first, 6),
        undone=sorted(undone),
    )
    assert audit(story.journal()).findings == ()


def test_a_head_that_was_split_off_in_an_undone_stretch_is_known_by_it() -> None:
    story = path().then("mine", split(2, 9, 6), rolled_back(0, 1), undone=[0])
    verdict = audit(story.then("later", touched(9)).journal())
    assert "node 9 was born in an undone event" in first_of(verdict, "rollback-neutral").sentence


def test_an_epoch_of_an_undone_request_is_not_given_again() -> None:
    cache, sink = open_cache()
    with cache.transaction("x") as t:
        cache.open_request("r1", [1])
        t.rollback()
    cache.open_request("r2", [1])
    journal = number_transactions(sink.transactions)
    assert audit(journal).findings == ()
    opened_at = [
        (stored.seq, getattr(stored.event, "epoch"))  # noqa: B009
        for transaction in journal
        for stored in transaction.events
        if stored.event.kind == "request_opened"
    ]
    again = edited(journal, opened_at[1][0], epoch=opened_at[0][1])
    assert first_of(audit(again), "well-formed").seq == opened_at[1][0]


def test_births_that_were_undone_are_remembered_up_to_a_limit() -> None:
    rollbacks = Rollbacks(Context(replay(path().journal()).state, Findings()))
    for number in range(BIRTHS_KEPT + 5):
        rollbacks.saw_undone(split(1, number + 10, 4), seq=number)  # type: ignore[arg-type]
    assert len(rollbacks._births) == BIRTHS_KEPT
    assert ("node", 14) not in rollbacks._births
    assert ("node", 15) in rollbacks._births


def test_what_resets_ended_is_remembered_up_to_a_limit_and_then_not_insisted_on() -> None:
    endings = Endings(Context(replay(path().journal()).state, Findings()))
    for number in range(CUTS_KEPT):
        endings._remember("lease", number)  # type: ignore[arg-type]
    assert endings._all_cuts_known
    endings._remember("lease", CUTS_KEPT)  # type: ignore[arg-type]
    assert not endings._all_cuts_known
    assert len(endings._cuts) == CUTS_KEPT


def test_an_insert_with_one_length_that_is_no_multiple_of_the_page_says_which_lengths() -> None:
    journal = one_request()
    for field, wrong in (("length", 7), ("prefix_len", 1), ("protected_len", 2)):
        sentences = [f.sentence for f in of(audit(edited(journal, 8, **{field: wrong})), "credit")]
        assert any("each is a multiple of the page size" in sentence for sentence in sentences), field


def test_a_refused_part_may_be_longer_than_what_lies_between_the_dead_part_and_the_match() -> None:
    # Two pages are accepted, the first of them dead, and two are refused.
    story = (
        Story(opened(recovery="skip"))
        .then("acquire", *acquired(1, None, 0))
        .then("alloc", allocated(pages(1, 2, 3, 4), pages(0, 2, 3, 4)))
        .then(
            "advance",
            created(1, pages(1), None),
            created(2, pages(2), pages(2), parent=1, start=4),
            created(3, pages(3, 4), pages(3, 4), parent=2, start=8),
            rolled_back(2, 3, cause=RollbackCause.SKIPPED),
            inserted(8, full=[(0, 8)], swa=[(4, 8)], refused=8),
            *acquired(2, 2, 8),
            unlocked(1, None),
            undone=[2],
        )
    )
    assert audit(story.journal()).findings == ()


def test_pages_of_somebody_else_in_the_insert_of_a_request_are_told_under_credit() -> None:
    journal = with_transaction_after(one_request(), 3, "alloc", allocated(pages(9), pages(8)))
    journal = edited(journal, 7, full_pages=pages(9), swa_pages=pages(8))
    sentences = [finding.sentence for finding in of(audit(journal), "credit")]
    assert any("took pages it does not hold" in sentence for sentence in sentences)


def test_an_insert_into_another_namespace_than_a_recovery_in_it_breaks_namespace() -> None:
    journal = recovery_without_lock()
    assert "namespace" in broken(audit(edited(journal, 9, namespace="z")))


def test_the_last_page_of_a_pool_is_remembered_as_handed_out_by_an_undone_event() -> None:
    story = Story(opened(full=3, swa=3)).then("mine", allocated(pages(3)), rolled_back(0, 1), undone=[0])
    verdict = audit(story.then("free", freed(pages(3), pages(3))).journal())
    assert first_of(verdict, "rollback-neutral").pages == (3,)


def test_a_request_that_stands_on_somebody_elses_lease_is_told_so() -> None:
    story = Story().then("acquire", *acquired(1, None, 0, request="other"))
    story.then("open_request", request_opened("r1", 1, pages()))
    told = [f.sentence for f in of(audit(story.journal()), "lock-order") if f.request == "r1"]
    assert any("which is not its own" in sentence for sentence in told)


def test_pages_that_a_recovery_takes_out_of_the_order_of_the_row_are_told_under_credit() -> None:
    story = path().then("evict", tombstoned(2, pages(2), pages(2)), evicted(0, 4))
    story.then("alloc", allocated(pages(5, 6), pages(5, 6)))
    duplicate = freed(pages(5), pages(5), cause=Cause.DUPLICATE)
    heal = recovered(2, mode=RecoveryMode.ADOPT_INCOMING, node_full=pages(2), incoming=pages(6), swa=pages(6))
    summary = inserted(8, full=[(4, 8)], swa=[(4, 8)], duplicates=4)
    right = audit(story.then("insert", duplicate, heal, summary).journal())
    assert not of(right, "credit")
    wrong = path().then("evict", tombstoned(2, pages(2), pages(2)), evicted(0, 4))
    wrong.then("alloc", allocated(pages(5, 6), pages(5, 6)))
    found = of(audit(wrong.then("insert", heal, duplicate, summary).journal()), "credit")
    assert any("do not stand at the positions" in finding.sentence for finding in found)


def test_a_tombstone_that_a_commit_passes_is_told_once_although_its_lock_is_looked_at_too() -> None:
    story = Story(opened(window=8, swa=16)).then("alloc", allocated(pages(1, 2)))
    story.then(
        "insert",
        created(1, pages(1), pages(1)),
        created(2, pages(2), pages(2), parent=1, start=4),
        inserted(8, full=[(0, 8)], swa=[(0, 8)]),
    )
    story.then("open_request", *acquired(1, None, 0, request="r"), request_opened("r", 1, pages()))
    story.then("extend", allocated(pages(3, 4, 5), owner="r", row_start=0))
    story.then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))
    match, touch, _ = acquired(3, 3, 12, window=(2, 3), request="r")
    lock = replace(locked(3, 3, 12, request="r"), swa_from=4)
    journal = story.then(
        "commit",
        freed(pages(3), pages(3), owner="r", cause=Cause.DUPLICATE),
        freed(pages(4), pages(4), owner="r", cause=Cause.DUPLICATE),
        created(3, pages(5), pages(5), parent=2, start=8),
        inserted(12, full=[(8, 12)], swa=[(8, 12)], duplicates=8, request="r"),
        match,
        touch,
        lock,
        unlocked(1, None, request="r"),
        row_changed("r", 3, pages(1, 2, 5)),
        request="r",
    ).journal()
    assert [finding.node for finding in of(audit(journal), "insert-match")] == [1]


@pytest.mark.parametrize(("tokens", "refused", "told"), [("1..3", 1, 0), ("1..4", 2, 1), ("1..5", 3, 1)])
def test_what_an_insert_says_was_refused_is_what_the_rollback_gave_back(
    tokens: str, refused: int, told: int
) -> None:
    s = Told(locked_recovery="skip", window=2)
    request = s.START("r", tokens)
    s.INS("1..4")
    s.INS("1..8")
    lost = s.LOCK("1..8")
    s.RELSWA(lost)
    s.LOCK("1..2")
    s.EVICT(0, 64)
    assert s.UNF(request).refused == refused
    journal = number_transactions(s.sink.transactions)
    assert audit(journal).findings == ()
    seq = next(e.seq for t in journal for e in t.events if getattr(e.event, "refused", 0) == refused)
    verdict = audit(edited(journal, seq, refused=told))
    if told:
        assert first_of(verdict, "insert-match").seq == seq
    else:
        assert first_of(verdict, "credit").seq == seq
