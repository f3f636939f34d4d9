"""The audit passes what is healthy, and its verdict says what it looked at."""

import pytest

from kvledger.journal.audit import INVARIANTS, Verdict, audit
from kvledger.journal.replay import ReplayError, replay
from tests.support.hand_written import checkpoint, with_transaction_after
from tests.support.stories import (
    HEALTHY,
    one_request,
    recovery_under_lock,
    refused_commit,
    reset_in_the_middle,
)


@pytest.mark.parametrize("story", HEALTHY)
def test_a_healthy_journal_passes_with_every_invariant_verified_that_it_has_evidence_for(story: str) -> None:
    verdict = audit(HEALTHY[story]())
    assert verdict.findings == ()
    assert verdict.verdict == "pass"
    statuses = {report.id: report.status for report in verdict.invariants}
    unread = {"chain", "checkpoint", "locked-content"}
    assert statuses == {i.id: "not_checked" if i.id in unread else "verified" for i in INVARIANTS}


@pytest.mark.parametrize("story", HEALTHY)
def test_a_checkpoint_that_replay_reproduces_passes_wherever_it_stands(story: str) -> None:
    journal = HEALTHY[story]()
    for transaction in journal:
        digest = replay(journal, upto=transaction.last_seq).state.digest()
        told = with_transaction_after(journal, transaction.number, "checkpoint", checkpoint(digest))
        verdict = audit(told)
        assert verdict.findings == (), transaction.op
        assert (verdict.counts.checkpoints, verdict.counts.checkpoints_reproduced) == (1, 1)


def test_the_counts_say_what_was_followed() -> None:
    counts = audit(recovery_under_lock()).counts
    assert (counts.events, counts.transactions) == (16, 9)
    assert (counts.locks_followed, counts.pages_followed, counts.locks_open_at_end) == (1, 1, 0)
    assert (counts.recoveries, counts.recoveries_under_lock, counts.mixed_nodes_at_end) == (1, 1, 1)
    assert (counts.evictions, counts.tombstones, counts.inserts, counts.matches) == (1, 1, 2, 1)
    refused = audit(refused_commit()).counts
    assert (refused.rollbacks, refused.anomalies, refused.skipped, refused.undone_events) == (1, 1, 0, 1)
    assert audit(one_request()).counts.requests == 1


def test_locks_cut_by_a_reset_are_reported_apart_and_break_nothing() -> None:
    verdict = audit(reset_in_the_middle())
    assert verdict.verdict == "pass"
    assert verdict.counts.locks_cut_by_reset == 2
    assert [(cut.seq, cut.lease, cut.request) for cut in verdict.locks_cut] == [(13, 2, "r1"), (15, 1, None)]


def test_a_verdict_survives_json_and_reads_as_text() -> None:
    verdict = audit(recovery_under_lock())
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    page = verdict.render()
    assert "verdict: pass" in page
    assert all(invariant.id in page and invariant.sentence in page for invariant in INVARIANTS)


def test_progress_is_told_the_number_of_events_at_the_end() -> None:
    told: list[int] = []
    audit(one_request(), progress=told.append)
    assert told[-1] == 18


def test_an_empty_journal_cannot_be_audited() -> None:
    with pytest.raises(ReplayError, match="nothing to audit"):
        audit([])
