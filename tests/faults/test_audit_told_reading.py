"""How a journal is read to its end, and how the verdict reads as a page. Under a second."""

from collections.abc import Iterator

import pytest

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import RecoveryMode
from kvledger.journal.audit import audit, runner
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.findings import Findings
from kvledger.journal.audit.recount import Recount
from kvledger.journal.audit.verdict import Counts, Gap, InvariantReport, LockCut, Verdict
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import replay
from tests.support.hand_written import (
    acquired,
    edited,
    freed,
    pages,
    with_transaction_after,
)
from tests.support.stories import (
    one_request,
    path,
    recovery_under_lock,
)


def test_the_walk_at_the_end_compares_nodes_with_the_mapping() -> None:
    state = replay(path().journal()).state
    context = Context(state, Findings())
    state.mapping[2] = 7
    Recount(context).end()
    (finding,) = context.findings.kept(["mapping"])
    assert (finding.node, finding.pages) == (2, (2,))


def test_progress_is_told_now_and_then_and_need_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PROGRESS_EVENTS", 5)
    told: list[int] = []
    assert audit(one_request(), progress=told.append).verdict == "pass"
    assert told == [5, 13, 18, 18]
    assert audit(one_request()).verdict == "pass"


def test_after_a_row_that_cannot_be_read_no_lock_is_said_to_be_open_and_the_gap_begins_there() -> None:
    journal = with_transaction_after(
        path().then("acquire", *acquired(1, 2, 8, window=(2,))).journal(),
        3,
        "free",
        freed(pages(9), pages(9)),
    )

    def cut() -> Iterator[StoredTransaction]:
        yield from journal
        raise JournalFormatError("this row cannot be read")

    whole, verdict = audit(journal), audit(cut())
    assert whole.counts.locks_open_at_end == 1
    assert verdict.counts.locks_open_at_end == 0
    last = journal[-1].last_seq
    (gap,) = verdict.gaps
    assert (gap.first_seq, gap.last_seq, gap.reason) == (last + 1, None, "unreadable")
    unread = [finding for finding in verdict.findings if "cannot be read" in finding.sentence]
    assert [(f.seq, f.transaction) for f in unread] == [(last + 1, journal[-1].number + 1)]


def test_a_page_of_findings_says_where_each_is_and_how_many_there_are() -> None:
    verdict = audit(edited(recovery_under_lock(), 13, mode=RecoveryMode.ADOPT_INCOMING))
    text = verdict.render()
    assert "seq 13, transaction 8, held by reader, node 1, pages 1: " in text
    assert f"findings: {len(verdict.findings)} of {len(verdict.findings)} shown, by seq" in text
    healthy = audit(recovery_under_lock()).render()
    assert "findings:" not in healthy
    assert "begins:" not in healthy


def test_a_page_of_a_verdict_tells_what_is_missing_before_what_was_found() -> None:
    verdict = Verdict(
        verdict="unverified",
        counts=Counts(locks_cut_by_reset=2),
        invariants=(InvariantReport(id="chain", sentence="hashes link", status="not_checked", findings=0),),
        findings=(),
        locks_cut=(
            LockCut(seq=40, lease=7, request=None, length=8),
            LockCut(seq=41, lease=8, request="r", length=4),
        ),
        gaps=(
            Gap(first_seq=1, last_seq=9, reason="not here", resumed_seq=9),
            Gap(first_seq=20, last_seq=29, dropped=3, resumed_seq=None),
            Gap(first_seq=50, last_seq=None, reason="unreadable", resumed_seq=None),
        ),
        checkpoint_seq=9,
        tail="the tail",
        notes=("a note",),
    )
    head, _, rest = verdict.render().partition("\n\n")
    lines = head.split("\n")
    starts = [
        "verdict: ",
        "begins: ",
        "tail: ",
        "unverified: ",
        "unverified: ",
        "unverified: ",
        "note: ",
        "checkpoints: ",
    ]
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts
    assert lines[1] == "begins: at the checkpoint of seq 9, with nothing before it"
    assert "events 1 to 9" in lines[3]
    assert "3 of them never stored; nothing after it" in lines[4]
    assert "all events from 50 on" in lines[5]
    assert rest.startswith("  chain  not checked     hashes link\n\nlocks cut by a reset: 2\n")
    assert (
        "  seq 40: lease 7 of a caller, 8 tokens\n  seq 41: lease 8 of request 'r', 4 tokens\n\nchecked:\n"
        in rest
    )


def test_the_walk_at_the_end_counts_the_pages_of_the_tree() -> None:
    state = replay(path().journal()).state
    context = Context(state, Findings())
    del state.nodes[min(state.nodes)]
    Recount(context).end()
    (finding,) = context.findings.kept(["conservation"])
    assert "the tree names 1 Full pages; 2 are bound to it" in finding.sentence
