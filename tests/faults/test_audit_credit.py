"""Journals whose counters say what did not happen: credit."""

import pytest

from kvledger.journal.audit import audit
from tests.support.hand_written import broken, edited, first_of, without
from tests.support.stories import eviction_and_reuse, one_request, recovery_under_lock, recovery_without_lock


@pytest.mark.parametrize("changes", [{"counted_full": 4}, {"counted_swa": 8}, {"counted_full": 12}])
def test_an_eviction_that_counts_other_than_it_freed_breaks_credit(changes: dict[str, int]) -> None:
    verdict = audit(edited(eviction_and_reuse(), 10, **changes))
    assert broken(verdict) == {"credit"}
    assert first_of(verdict, "credit").seq == 10


def test_an_eviction_that_is_never_counted_breaks_credit() -> None:
    verdict = audit(without(eviction_and_reuse(), 7))
    assert broken(verdict) == {"credit"}
    assert first_of(verdict, "credit").transaction == 4


def test_asking_for_more_than_was_there_is_no_violation() -> None:
    assert audit(edited(eviction_and_reuse(), 10, asked_full=1000, asked_swa=1000)).verdict == "pass"


@pytest.mark.parametrize(
    "changes",
    [
        {"adopted_full": ((0, 4),)},
        {"adopted_full": ((0, 4), (4, 8))},
        {"adopted_swa": ()},
        {"duplicates": 4},
    ],
    ids=["less Full", "not merged", "no SWA", "a duplicate"],
)
def test_an_insert_that_counts_other_than_the_tree_took_breaks_credit(changes: dict[str, object]) -> None:
    verdict = audit(edited(one_request(), 8, **changes))
    assert broken(verdict) == {"credit"}
    finding = first_of(verdict, "credit")
    assert (finding.seq, finding.request) == (8, "r1")


def test_a_recovery_adopts_full_only_where_nobody_has_locked_it() -> None:
    verdict = audit(edited(recovery_without_lock(), 9, adopted_full=()))
    assert (broken(verdict), first_of(verdict, "credit").seq) == ({"credit"}, 9)
    verdict = audit(edited(recovery_under_lock(), 14, adopted_full=((0, 4),)))
    assert (broken(verdict), first_of(verdict, "credit").seq) == ({"credit"}, 14)


def test_the_incoming_full_of_a_recovery_under_lock_counts_as_duplicate() -> None:
    verdict = audit(edited(recovery_under_lock(), 14, duplicates=0))
    assert (broken(verdict), first_of(verdict, "credit").seq) == ({"credit"}, 14)


def test_an_insert_that_is_never_summed_up_breaks_credit() -> None:
    verdict = audit(without(recovery_without_lock(), 4))
    assert broken(verdict) == {"credit"}
    assert first_of(verdict, "credit").transaction == 3
