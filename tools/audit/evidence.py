"""One audit of one journal, wherever it is kept: all invariants, or its chain alone.

Where files and a database are to be read together and cannot be, the database is looked at alone: rows that
were tampered with are a verdict and no reason to give up, and only where they are sound is it the files that
do not belong here.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kvledger.core.errors import JournalError
from kvledger.journal import Journal
from kvledger.journal.audit import Verdict
from kvledger.journal.chain_check import ChainCheck, KeptAnchor
from kvledger.journal.export import is_exported
from kvledger.tools.audit.chain import check_source, check_stored, journal_of
from kvledger.tools.audit.chain_report import ChainReport, report_of
from kvledger.tools.audit.judge import judge, judge_source, judge_unread
from kvledger.tools.progress import Progress
from kvledger.tools.reading.sources import open_source


@dataclass(frozen=True, slots=True)
class Evidence:
    """Which journal to judge, where it is kept, and an anchor to hold it against.

    `where` is a database or exported files; `exported` names files that precede a database.
    """

    where: str
    journal: int | None = None
    exported: Path | None = None
    anchor: KeptAnchor | None = None


@dataclass(frozen=True, slots=True)
class _Case:
    """A journal that was opened: its number, its chain, and how all of it is audited."""

    number: int
    check: ChainCheck
    judge: Callable[[Progress | None], Verdict]


def audit_stored(evidence: Evidence, *, progress: Progress | None = None) -> Verdict:
    """Audit a journal with its chain.

    Errors as `open_source` and `audit`; but where files and database do not go together that is an error only
    if nothing is wrong with the database itself.
    """
    with ExitStack() as opened:
        case = _open(evidence, opened)
        verdict = case.judge(progress)
        notes = (*verdict.notes, *case.check.notes())
        return verdict.model_copy(update={"tail": case.check.tail, "notes": notes})


def audit_chain(evidence: Evidence) -> ChainReport:
    """Verify the chain of a journal and nothing else. Errors as `audit_stored` and `report_of`."""
    with ExitStack() as opened:
        case = _open(evidence, opened)
        return report_of(case.check, case.number)


def _open(evidence: Evidence, opened: ExitStack) -> _Case:
    if is_exported(evidence.where):
        source = opened.enter_context(
            open_source(evidence.where, evidence.journal, exported=evidence.exported)
        )
        in_files = check_source(source, evidence.anchor)
        return _Case(
            source.source.info.id, in_files, lambda told: judge_source(source, chain=in_files, progress=told)
        )
    store = opened.enter_context(Journal.open(evidence.where, create=False))
    number = journal_of(store, evidence.journal, evidence.anchor)
    alone = check_stored(store, number, evidence.anchor)
    if evidence.exported is None:
        return _Case(number, alone, lambda told: judge(store, number, chain=alone, progress=told))
    try:
        both = opened.enter_context(
            open_source(evidence.where, number, exported=evidence.exported, may_be_torn=True)
        )
    except JournalError as error:
        # Rows that were tampered with are a verdict; files that do not belong to sound ones are a mistake.
        unread = error
        if not alone.is_broken():
            raise
        return _Case(number, alone, lambda told: judge_unread(unread, chain=alone))
    check = check_source(both, evidence.anchor)
    return _Case(number, check, lambda told: judge_source(both, chain=check, progress=told))
