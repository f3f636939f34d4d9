"""Journals in which a running request could read what is neither its own nor locked: row-safety."""

import pytest

from kvledger.core.events import Cause, Pool
from kvledger.journal.audit import audit
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    broken,
    edited,
    first_of,
    freed,
    opened,
    pages,
    request_opened,
    unlocked,
    with_transaction_after,
    without,
)
from tests.support.stories import one_request, refused_commit, two_namespaces


def test_a_row_that_names_other_pages_than_its_locked_path_breaks_row_safety() -> None:
    journal = edited(one_request(), 13, pages=pages(1, 3), row_pages=5)
    verdict = audit(journal)
    assert broken(verdict) == {"row-safety"}
    finding = first_of(verdict, "row-safety")
    assert (finding.transaction, finding.request, finding.node, finding.pages) == (4, "r1", 2, (3,))


def test_a_row_that_keeps_a_page_the_tree_refused_or_took_breaks_row_safety() -> None:
    # The lease protects one page only, but the second one has become the tree's.
    journal = edited(refused_commit(), 14, pages=pages(1, 5), row_pages=2)
    finding = first_of(audit(journal), "row-safety")
    assert (finding.request, finding.pages) == ("r1", (5,))


def test_a_request_opened_with_pages_off_its_path_breaks_row_safety() -> None:
    journal = edited(two_namespaces(), 14, pages=pages(1))
    verdict = audit(journal)
    assert broken(verdict) == {"row-safety"}
    finding = first_of(verdict, "row-safety")
    assert (finding.request, finding.node, finding.pages) == ("r1", 2, (1,))


def test_a_row_shorter_than_its_lease_breaks_row_safety() -> None:
    finding = first_of(audit(edited(two_namespaces(), 14, pages=pages())), "row-safety")
    assert "its lease reaches 1" in finding.sentence


def test_a_request_that_loses_sight_of_its_pages_breaks_row_safety() -> None:
    journal = edited(one_request(), 13, row_pages=2)
    finding = first_of(audit(journal), "row-safety")
    assert (finding.transaction, finding.request, finding.pages) == (4, "r1", (3, 4, 5))


def test_a_request_that_frees_a_page_and_still_names_it_breaks_row_safety() -> None:
    journal = without(one_request(), 18)
    journal = edited(journal, 17, cause=Cause.ABORT)
    finding = first_of(audit(journal), "row-safety")
    assert (finding.transaction, finding.request) == (6, "r1")


def test_a_slide_that_skips_a_page_of_the_row_is_not_well_formed() -> None:
    def slid(*given_back: int) -> Journal:
        behind = freed(pages(*given_back), pages(*given_back), owner="r1", pool=Pool.SWA, cause=Cause.WINDOW)
        opening = (*acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))
        story = Story().then("open_request", *opening)
        story.then("extend", allocated(pages(5, 2, 3, 4), owner="r1", row_start=0))
        return story.then("slide", behind).journal()

    assert audit(slid(5, 2)).findings == ()
    for skipping in ((2,), (5, 3), (2, 5)):
        finding = first_of(audit(slid(*skipping)), "well-formed")
        assert (finding.seq, finding.request, finding.pages) == (6, "r1", skipping)


@pytest.mark.parametrize(("window", "kept"), [(1, 1), (4, 1), (5, 2), (9, 3)])
def test_a_slide_that_goes_into_the_window_of_the_last_page_breaks_row_safety(window: int, kept: int) -> None:
    """Of five pages the last token stands in the fifth: the window before that one, in whole pages, stays."""
    opening = (*acquired(1, None, 0, request="r1"), request_opened("r1", 1, pages()))
    for given_back in range(1, 6):
        behind = pages(*range(1, given_back + 1))
        story = Story(opened(window=window)).then("open_request", *opening)
        story.then("extend", allocated(pages(1, 2, 3, 4, 5), owner="r1", row_start=0))
        story.then("slide", freed(behind, behind, owner="r1", pool=Pool.SWA, cause=Cause.WINDOW))
        verdict = audit(story.journal())
        right = given_back <= 4 - kept
        assert broken(verdict) == (set() if right else {"row-safety"})
        if not right:
            finding = first_of(verdict, "row-safety")
            assert (finding.seq, finding.request) == (6, "r1")
            assert finding.pages == tuple(range(5 - kept, given_back + 1))


def test_a_request_that_closes_with_pages_breaks_row_safety() -> None:
    verdict = audit(without(one_request(), 17))
    assert broken(verdict) == {"row-safety"}
    finding = first_of(verdict, "row-safety")
    assert (finding.seq, finding.request, finding.pages) == (17, "r1", (3, 4, 5))


def test_a_running_request_whose_lease_was_released_breaks_row_safety() -> None:
    journal = with_transaction_after(one_request(), 4, "release", unlocked(2, 2, request="r1"))
    finding = first_of(audit(journal), "row-safety")
    assert (finding.seq, finding.transaction, finding.request) == (14, 5, "r1")
    assert "stands on lease 2, which is not held" in finding.sentence


def test_a_row_written_over_by_an_allocation_breaks_row_safety() -> None:
    journal = with_transaction_after(
        one_request(), 3, "extend", allocated(pages(7), pages(7), owner="r1", row_start=1)
    )
    finding = first_of(audit(journal), "row-safety")
    assert (finding.seq, finding.request, finding.pages) == (6, "r1", (2, 3, 4, 5))
