"""Journals whose undone stretches are not neutral: rollback-neutral."""

from dataclasses import replace

import pytest

from kvledger.core.events import Event
from kvledger.journal.audit import audit
from tests.support.hand_written import (
    Journal,
    Story,
    allocated,
    broken,
    created,
    edited,
    first_of,
    freed,
    inserted,
    locked,
    pages,
    request_opened,
    rolled_back,
    swa_unlocked,
    touched,
    with_transaction_after,
)
from tests.support.stories import nested_rollbacks, one_request, refused_commit


def marked(journal: Journal, seq: int, *, undone: bool) -> Journal:
    """The journal with another mark on the event at `seq`."""
    changed = []
    for transaction in journal:
        events = [
            replace(stored, undone=undone) if stored.seq == seq else stored for stored in transaction.events
        ]
        changed.append(replace(transaction, events=events))
    return changed


def test_an_event_marked_undone_that_no_rollback_names_breaks_rollback_neutral() -> None:
    verdict = audit(marked(one_request(), 15, undone=True))
    assert "rollback-neutral" in broken(verdict)
    finding = first_of(verdict, "rollback-neutral")
    assert (finding.seq, finding.transaction) == (15, 5)


def test_an_undone_event_that_is_not_marked_breaks_rollback_neutral() -> None:
    finding = first_of(audit(marked(nested_rollbacks(), 3, undone=False)), "rollback-neutral")
    assert (finding.seq, finding.transaction) == (3, 2)
    assert "not marked" in finding.sentence


@pytest.mark.parametrize(("first", "end"), [(1, 3), (3, 2), (-1, 2), (0, 9)])
def test_a_rollback_that_does_not_end_at_itself_breaks_rollback_neutral(first: int, end: int) -> None:
    verdict = audit(edited(refused_commit(), 8, first=first, end=end))
    assert first_of(verdict, "rollback-neutral").seq == 8


def test_a_rollback_that_begins_inside_an_earlier_one_breaks_rollback_neutral() -> None:
    verdict = audit(edited(nested_rollbacks(), 7, first=3))
    sentences = [f.sentence for f in verdict.findings if f.invariant == "rollback-neutral"]
    assert any("begins inside an earlier one" in sentence for sentence in sentences)


def test_a_transaction_that_was_rolled_back_has_no_live_event() -> None:
    finding = first_of(audit(marked(nested_rollbacks(), 9, undone=False)), "rollback-neutral")
    assert (finding.seq, finding.transaction) == (9, 3)


@pytest.mark.parametrize(
    ("event", "born"),
    [
        (touched(7, first_stamp=9), "node 7"),
        (swa_unlocked(5, 7), "lease 5"),
        (locked(9, 7, 4), "node 7"),
        (created(8, pages(5), pages(5), parent=7, start=4), "node 7"),
    ],
)
def test_a_node_or_lease_born_in_an_undone_event_cannot_be_used_later(event: Event, born: str) -> None:
    verdict = audit(with_transaction_after(nested_rollbacks(), 2, "later", event))
    assert broken(verdict) == {"rollback-neutral"}
    finding = first_of(verdict, "rollback-neutral")
    assert finding.seq == 9
    assert f"{born} was born in an undone event" in finding.sentence


def test_a_request_born_in_an_undone_event_cannot_be_used_later() -> None:
    journal = (
        Story()
        .then(
            "lost",
            locked(1, None, 0, request="r"),
            request_opened("r", 1, pages()),
            rolled_back(0, 2),
            undone=[0, 1],
        )
        .then("extend", allocated(pages(1), owner="r", row_start=0))
        .journal()
    )
    finding = first_of(audit(journal), "rollback-neutral")
    assert (finding.seq, finding.request) == (5, "r")


def test_a_page_that_only_an_undone_event_handed_out_cannot_be_used_later() -> None:
    later = with_transaction_after(nested_rollbacks(), 3, "free", freed(pages(3), pages(3)))
    finding = first_of(audit(later), "rollback-neutral")
    assert (finding.seq, finding.pages) == (11, (3,))
    into_tree = with_transaction_after(
        nested_rollbacks(),
        3,
        "insert",
        created(9, pages(3), pages(3)),
        inserted(4, full=[(0, 4)], swa=[(0, 4)]),
    )
    assert first_of(audit(into_tree), "rollback-neutral").pages == (3,)


def test_a_page_that_was_handed_out_again_for_good_is_no_longer_an_undone_ones() -> None:
    journal = with_transaction_after(nested_rollbacks(), 3, "alloc", allocated(pages(3)))
    journal = with_transaction_after(journal, 4, "free", freed(pages(3), pages(3)))
    assert audit(journal).verdict == "pass"
