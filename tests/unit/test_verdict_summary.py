"""The line of a report that says how many invariants were verified, and what became of the others."""

import io

import pytest
from rich.console import Console

from kvledger.journal.audit import INVARIANTS, Verdict, audit
from kvledger.journal.audit.verdict import InvariantReport, Status
from kvledger.tools.run.report import NAMED_AT_MOST, verdict_summary
from tests.support.stories import one_request

IDS = [invariant.id for invariant in INVARIANTS]
TOTAL = len(IDS)
SEQUENCE: dict[str, Status] = {"sequence": "failed"}
CONTENT: dict[str, Status] = {"locked-content": "not_checked"}
TWO: dict[str, Status] = {"checkpoint": "not_checked", "chain": "not_checked"}
MANY: dict[str, Status] = dict.fromkeys(IDS[: NAMED_AT_MOST + 1], "unverified")


def line(statuses: dict[str, Status]) -> str:
    """The line of a verdict in which all invariants but those of `statuses` are verified."""
    reports = tuple(
        InvariantReport(id=one.id, sentence=one.sentence, status=statuses.get(one.id, "verified"), findings=0)
        for one in INVARIANTS
    )
    return shown(audit(one_request()).model_copy(update={"invariants": reports}))


def shown(verdict: Verdict) -> str:
    page = io.StringIO()
    Console(file=page, width=200).print(verdict_summary(verdict))
    return next(text.strip() for text in page.getvalue().splitlines() if " invariants over " in text)


@pytest.mark.parametrize(
    ("statuses", "begins", "ends"),
    [
        ({}, f"{TOTAL} invariants over ", " transactions"),
        (CONTENT, f"{TOTAL - 1} of {TOTAL} invariants over ", " transactions (locked-content not checked)"),
        (TWO, f"{TOTAL - 2} of {TOTAL} ", " transactions (checkpoint, chain not checked)"),
        (CONTENT | SEQUENCE, f"{TOTAL - 2} of ", " (locked-content not checked; sequence failed)"),
        (MANY, f"{TOTAL - len(MANY)} of {TOTAL} ", f" transactions ({len(MANY)} unverified)"),
    ],
)
def test_only_verified_invariants_are_counted_and_the_others_are_named(
    statuses: dict[str, Status], begins: str, ends: str
) -> None:
    told = line(statuses)
    assert told.startswith(begins)
    assert told.endswith(ends)


def test_a_journal_without_evidence_for_an_invariant_does_not_count_it() -> None:
    assert shown(audit(one_request())).endswith(" (locked-content, checkpoint, chain not checked)")
