"""Journals that lose, double or mismatch pages: conservation and mapping."""

import pytest

from kvledger.core.events import Cause, Event, MappingSet, Pool
from kvledger.journal.audit import audit
from tests.support.hand_written import (
    Story,
    allocated,
    broken,
    created,
    edited,
    first_of,
    freed,
    inserted,
    locked,
    opened,
    pages,
    request_opened,
    with_transaction_after,
)
from tests.support.stories import eviction_and_reuse, one_request, recovery_under_lock, recovery_without_lock


def held_pages() -> Story:
    return Story().then("alloc", allocated(pages(1, 2), pages(3, 4)))  # 2


def test_a_page_handed_out_twice_breaks_conservation() -> None:
    journal = held_pages().then("alloc", allocated(pages(5, 2), pages(5, 6))).journal()
    verdict = audit(journal)
    finding = first_of(verdict, "conservation")
    assert (finding.seq, finding.pages) == (3, (2,))
    assert "held by the caller" in finding.sentence


def test_an_swa_page_handed_out_twice_breaks_conservation() -> None:
    verdict = audit(held_pages().then("alloc", allocated(pages(5), pages(4))).journal())
    finding = first_of(verdict, "conservation")
    assert (finding.seq, finding.pages) == (3, (4,))


@pytest.mark.parametrize("pool", [Pool.BOTH, Pool.FULL])
def test_a_page_freed_twice_breaks_conservation(pool: Pool) -> None:
    once = freed(pages(1), pages(3))
    journal = held_pages().then("free", once, freed(pages(1), pages(0), pool=pool)).journal()
    verdict = audit(journal)
    assert broken(verdict) == {"conservation"}
    finding = first_of(verdict, "conservation")
    assert (finding.seq, finding.pages) == (4, (1,))
    assert "waiting for the end of the transaction" in finding.sentence


def test_a_page_named_twice_in_one_event_breaks_conservation() -> None:
    verdict = audit(held_pages().then("free", freed(pages(1, 1), pages(3, 3))).journal())
    assert broken(verdict) == {"conservation"}
    assert (first_of(verdict, "conservation").seq, first_of(verdict, "conservation").pages) == (3, (1,))


def test_a_repetition_is_found_in_a_long_event_too() -> None:
    many = pages(*range(1, 2001))
    twice = pages(*range(1, 1999), 7, 2000)
    opening = opened(full=4000, swa=4000)
    assert audit(Story(opening).then("alloc", allocated(many)).journal()).verdict == "pass"
    finding = first_of(audit(Story(opening).then("alloc", allocated(twice, many)).journal()), "conservation")
    assert (finding.seq, finding.pages) == (2, (7,))


def test_a_caller_that_frees_the_page_of_a_request_breaks_conservation() -> None:
    journal = with_transaction_after(one_request(), 3, "free", freed(pages(3), pages(3)))
    finding = first_of(audit(journal), "conservation")
    assert (finding.seq, finding.pages) == (6, (3,))
    assert "held by request 'r1'" in finding.sentence


def test_a_page_freed_in_a_transaction_may_not_be_handed_out_before_its_end() -> None:
    journal = held_pages().then("mine", freed(pages(1), pages(3)), allocated(pages(1), pages(5))).journal()
    verdict = audit(journal)
    assert broken(verdict) == {"conservation"}
    assert (first_of(verdict, "conservation").seq, first_of(verdict, "conservation").pages) == (4, (1,))


def test_a_page_that_eviction_freed_may_be_handed_out_at_once() -> None:
    assert audit(eviction_and_reuse()).verdict == "pass"
    slow = edited(eviction_and_reuse(), 8, cause=Cause.FINISH)
    assert first_of(audit(slow), "conservation").seq == 11


def test_pages_that_enter_the_tree_from_the_free_set_break_conservation() -> None:
    journal = edited(one_request(), 6, full_pages=pages(9))
    finding = first_of(audit(journal), "conservation")
    assert (finding.seq, finding.pages) == (6, (9,))


def test_pages_of_two_owners_in_one_node_break_conservation() -> None:
    journal = (
        Story()
        .then("alloc", allocated(pages(1)))
        .then("mine", *_open_with_page(2))
        .then("insert", created(1, pages(1, 2), pages(1, 2)), inserted(8, full=[(0, 8)], swa=[(0, 8)]))
        .journal()
    )
    assert "more than one owner" in first_of(audit(journal), "conservation").sentence


def _open_with_page(page: int) -> tuple[Event, ...]:
    return (
        locked(1, None, 0, request="r1"),
        request_opened("r1", 1, pages()),
        allocated(pages(page), owner="r1", row_start=0),
    )


def test_a_deletion_that_names_other_pages_than_the_nodes_breaks_conservation() -> None:
    journal = edited(eviction_and_reuse(), 8, full_pages=pages(3))
    finding = first_of(audit(journal), "conservation")
    assert (finding.seq, finding.node, finding.pages) == (8, 2, (3,))


def test_a_lost_event_shows_in_the_recount_at_the_end() -> None:
    # The node's page goes back to the caller with no event that takes it out of the tree.
    journal = (
        Story()
        .then("alloc", allocated(pages(1)))
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
    )
    verdict = audit(journal.then("free", freed(pages(1), pages(1))).journal())
    assert "pages of a node are elsewhere" in [finding.sentence for finding in verdict.findings]


def test_a_free_that_names_the_wrong_peer_breaks_mapping() -> None:
    verdict = audit(held_pages().then("free", freed(pages(1), pages(4))).journal())
    assert "mapping" in broken(verdict)
    assert (first_of(verdict, "mapping").seq, first_of(verdict, "mapping").pages) == (3, (1,))


def test_a_free_that_forgets_the_peer_breaks_mapping() -> None:
    verdict = audit(held_pages().then("free", freed(pages(1), pages(0))).journal())
    assert "mapping" in broken(verdict)


def test_a_full_side_free_of_a_page_with_a_peer_breaks_conservation() -> None:
    verdict = audit(held_pages().then("free", freed(pages(1), pages(3), pool=Pool.FULL)).journal())
    assert broken(verdict) == {"conservation"}


def test_a_live_node_whose_swa_pages_are_not_its_peers_breaks_mapping() -> None:
    verdict = audit(edited(one_request(), 6, swa_pages=pages(2)))
    finding = first_of(verdict, "mapping")
    assert (finding.seq, finding.node, finding.pages) == (6, 1, (1,))


def test_a_live_node_without_swa_breaks_mapping() -> None:
    journal = (
        Story()
        .then("alloc_full_only", allocated(pages(1), pages(0)))
        .then("insert", created(1, pages(1), pages(0)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
        .journal()
    )
    finding = first_of(audit(journal), "mapping")
    assert (finding.seq, finding.node, finding.pages) == (3, 1, (1,))


def test_a_tombstone_that_still_maps_breaks_mapping() -> None:
    journal = edited(edited(one_request(), 6, swa_pages=None), 8, adopted_swa=((4, 8),))
    finding = first_of(audit(journal), "mapping")
    assert (finding.seq, finding.node, finding.pages) == (6, 1, (1,))


def test_a_recovery_that_takes_foreign_swa_pages_breaks_mapping() -> None:
    finding = first_of(audit(edited(recovery_without_lock(), 8, swa_pages=pages(5))), "mapping")
    assert (finding.seq, finding.node, finding.pages) == (8, 1, (2,))
    kept = first_of(audit(edited(recovery_under_lock(), 13, swa_pages=pages(5))), "mapping")
    assert (kept.seq, kept.node, kept.pages) == (13, 1, (2,))


def test_the_mapping_of_held_pages_may_be_set_anew_among_themselves() -> None:
    assert audit(held_pages().then("mine", MappingSet(pages(1, 2), pages(4, 3))).journal()).verdict == "pass"


@pytest.mark.parametrize(
    ("event", "invariant"),
    [
        (MappingSet(pages(5), pages(0)), "mapping"),
        (MappingSet(pages(1), pages(7)), "mapping"),
        (MappingSet(pages(1), pages(4)), "mapping"),
        (MappingSet(pages(1), pages(0)), "conservation"),
    ],
    ids=["a page nobody holds", "a free SWA page", "the peer of another page", "a peer left over"],
)
def test_a_mapping_set_anew_must_lose_and_steal_nothing(event: MappingSet, invariant: str) -> None:
    verdict = audit(held_pages().then("mine", event).journal())
    assert first_of(verdict, invariant).seq == 3


def test_an_swa_free_of_a_tree_page_breaks_conservation_but_not_the_full_lock() -> None:
    journal = recovery_under_lock()[:4]
    freed_swa = freed(pages(1), pages(1), pool=Pool.SWA)
    verdict = audit(with_transaction_after(journal, 4, "free_swa", freed_swa))
    assert broken(verdict) >= {"conservation", "locked-swa"}
    assert "locked-full" not in broken(verdict)
    assert first_of(verdict, "locked-swa").holders == ("reader",)
