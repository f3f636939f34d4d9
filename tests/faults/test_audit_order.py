"""Journals with gaps, wrong digests, broken chains or events that fit nothing."""

from dataclasses import dataclass, replace

import pytest

from kvledger.core.events import EVENTS, Event, EventsDropped, RecoveryMode
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.audit import audit
from kvledger.journal.audit.findings import FINDINGS_KEPT, PAGES_NAMED
from kvledger.journal.replay import ReplayError, replay
from tests.support.hand_written import (
    Journal,
    Story,
    allocated,
    broken,
    checkpoint,
    created,
    deleted,
    edited,
    first_of,
    locked,
    opened,
    pages,
    recovered,
    reset,
    split,
    tombstoned,
    touched,
    unlocked,
    with_event_before,
    with_transaction_after,
    without,
)
from tests.support.stories import HEALTHY, one_request, reset_in_the_middle


def test_a_missing_event_breaks_sequence() -> None:
    journal = one_request()
    events = [stored for stored in journal[4].events if stored.seq != 14]
    journal[4] = replace(journal[4], events=events)
    verdict = audit(journal)
    assert "sequence" in broken(verdict)
    assert (first_of(verdict, "sequence").seq, first_of(verdict, "sequence").transaction) == (15, 5)


def test_a_missing_transaction_breaks_sequence() -> None:
    journal = one_request()
    del journal[4]
    finding = first_of(audit(journal), "sequence")
    assert (finding.seq, finding.transaction) == (16, 6)


def test_transactions_out_of_order_break_sequence() -> None:
    journal = reset_in_the_middle()
    journal[1], journal[2] = journal[2], journal[1]
    verdict = audit(journal)
    assert broken(verdict) >= {"sequence"}
    assert {finding.transaction for finding in verdict.findings if finding.invariant == "sequence"} == {
        2,
        3,
        4,
    }


def test_an_empty_transaction_takes_no_seq_but_a_number() -> None:
    journal = with_transaction_after(one_request(), 2, "mine")
    assert audit(journal).verdict == "pass"
    journal[2] = replace(journal[2], first_seq=Seq(9))
    assert broken(audit(journal)) == {"sequence"}
    journal = with_transaction_after(one_request(), 2, "mine")
    journal[2] = replace(journal[2], number=TxnId(9))
    assert broken(audit(journal)) == {"sequence"}


def test_dropped_events_are_never_a_pass_and_nothing_after_them_is_judged() -> None:
    journal = with_transaction_after(one_request(), 3, "dropped", EventsDropped(100, 200))
    verdict = audit(journal)
    assert (verdict.verdict, verdict.passed, broken(verdict)) == ("unverified", False, set())
    (gap,) = verdict.gaps
    assert (gap.dropped, gap.resumed_seq) == (101, None)
    assert {report.status for report in verdict.invariants} == {"unverified", "not_checked"}
    assert "nothing after it" in verdict.render()
    assert verdict.counts.transactions == 4


def test_a_digest_that_replay_does_not_reach_breaks_checkpoint() -> None:
    journal = one_request()
    digest = replay(journal).state.digest()
    sound = with_transaction_after(journal, 6, "checkpoint", checkpoint(digest))
    assert audit(sound).verdict == "pass"
    verdict = audit(without(sound, 15))
    assert "checkpoint" in broken(verdict)
    wrong = audit(with_transaction_after(journal, 6, "checkpoint", checkpoint("0" * 64)))
    assert broken(wrong) == {"checkpoint"}
    assert (first_of(wrong, "checkpoint").seq, wrong.counts.checkpoints_reproduced) == (19, 0)


@dataclass(frozen=True)
class Break:
    invariant: str
    number: int | None
    seq: int | None
    sentence: str


def test_the_chain_is_not_checked_verified_or_failed_as_its_findings_say() -> None:
    def status(chain: list[Break] | None) -> tuple[str, str]:
        verdict = audit(one_request(), chain=chain)
        return verdict.verdict, next(r.status for r in verdict.invariants if r.id == "chain")

    assert status(None) == ("pass", "not_checked")
    assert status([]) == ("pass", "verified")
    assert status([Break("chain", 4, 6, "changed")]) == ("fail", "failed")
    finding = first_of(audit(one_request(), chain=[Break("chain", 4, 6, "changed")]), "chain")
    assert (finding.transaction, finding.seq, finding.sentence) == (4, 6, "changed")


NOTHING_FITS: list[Event] = [
    touched(99, first_stamp=1),
    split(99, 100, 4),
    split(1, 2, 4),
    split(2, 50, 6),
    split(2, 50, 4),
    split(2, 50, 8),
    deleted(99, pages(1), None),
    deleted(1, pages(1), pages(1)),
    deleted(2, pages(2), pages(2)),
    deleted(2, pages(2), None, parent=1),
    deleted(2, pages(2, 3), pages(2, 3), parent=1),
    tombstoned(99, pages(1), pages(1)),
    tombstoned(1, pages(1, 2), pages(1)),
    recovered(1, mode=RecoveryMode.ADOPT_INCOMING, node_full=pages(1), incoming=pages(3), swa=pages(3)),
    created(2, pages(3), pages(3)),
    created(-1, pages(3), pages(3)),
    created(9, pages(), pages()),
    created(9, pages(3), pages(3, 4)),
    created(9, pages(3), pages(3), start=4),
    created(9, pages(3), pages(3), parent=99),
    replace(created(9, pages(3), pages(3)), tokens=b"1234"),
    created(9, pages(17), pages(3)),
    created(9, pages(0), pages(3)),
    created(9, pages(-1), pages(3)),
    created(9, pages(3), pages(9)),
    allocated(pages(4), pages(-4)),
    allocated(pages(4), pages(4, 5)),
    allocated(pages(4), owner="r1"),
    allocated(pages(4), owner="r1", row_start=9),
    allocated(pages(4), owner="nobody", row_start=0),
    locked(9, 99, 4),
    locked(2, 2, 8),
    opened(),
    created(2**63, pages(3), pages(3)),
    created(9, pages(3), pages(3), stamp=2**64),
    split(2, 2**63, 4),
    touched(1, first_stamp=2**64),
    locked(2**64, 2, 8),
    reset(2**64),
]


@pytest.mark.parametrize("event", NOTHING_FITS, ids=lambda event: event.kind)
def test_an_event_that_does_not_fit_is_a_finding_in_the_audit_and_an_error_in_replay(event: Event) -> None:
    journal = with_event_before(one_request(), 14, event)
    verdict = audit(journal)
    assert broken(verdict) == {"well-formed"}
    assert first_of(verdict, "well-formed").seq == 14
    with pytest.raises(ReplayError) as caught:
        replay(journal)
    assert caught.value.seq == 14


class Unheard:
    """An event of a type that no version knows."""

    kind = "unheard"


def test_an_unknown_type_of_event_is_a_finding_and_an_error() -> None:
    journal = with_event_before(one_request(), 14, Unheard())  # type: ignore[arg-type]
    assert broken(audit(journal)) == {"well-formed"}
    with pytest.raises(ReplayError, match="Unheard is not known"):
        replay(journal)


def test_every_kind_of_event_can_be_read() -> None:
    seen = {type(stored.event) for story in HEALTHY.values() for t in story() for stored in t.events}
    silent = {"events_dropped", "mapping_set", "call_ignored", "checkpoint", "kv_fingerprinted", "kv_unread"}
    assert {kind for kind, cls in EVENTS.items() if cls not in seen} == silent


def test_a_reset_that_leaves_something_is_not_well_formed() -> None:
    verdict = audit(with_event_before(one_request(), 14, reset(1)))
    assert "well-formed" in broken(verdict)
    assert "leaves 2 nodes, 1 leases and 1 requests" in first_of(verdict, "well-formed").sentence
    backwards = audit(edited(reset_in_the_middle(), 17, generation=0))
    assert broken(backwards) == {"well-formed"}


def test_findings_and_their_pages_are_limited_and_the_rest_is_counted() -> None:
    story = Story(opened(full=400, swa=400)).then("alloc", allocated(pages(*range(1, 101))))
    for _ in range(FINDINGS_KEPT + 5):
        story.then("alloc", allocated(pages(*range(1, 101)), pages(*[0] * 100)))
    verdict = audit(story.journal())
    kept = [finding for finding in verdict.findings if finding.invariant == "conservation"]
    assert len(kept) == FINDINGS_KEPT
    assert (len(kept[0].pages), kept[0].pages_total) == (PAGES_NAMED, 100)
    report = next(report for report in verdict.invariants if report.id == "conservation")
    assert report.findings >= FINDINGS_KEPT + 5
    assert "and 84 more" in verdict.render()


def test_a_journal_that_does_not_begin_with_its_opening_cannot_be_audited() -> None:
    journal: Journal = without(one_request(), 1)
    with pytest.raises(ReplayError, match="begins with cache_opened"):
        audit(journal)
    for opening in (opened(page_size=0), opened(swa=-1), opened(full=2**31)):
        with pytest.raises(ReplayError, match="cache_opened gives"):
            audit(Story(opening).journal())


def test_a_release_of_a_lease_that_never_was_names_it() -> None:
    verdict = audit(with_event_before(one_request(), 14, unlocked(77, None)))
    assert "lease 77" in first_of(verdict, "lock-order").sentence
