"""The fault this project exists for, put back: recovery replaces the Full KV of a locked node.

Another request is running on it and goes on reading slots that are freed and written by somebody else. Both
watchers have to notice on the built-in workload, each by itself: the reads of the running requests, and the
audit of the journal, with the evidence that leads to the line of code.
"""

from pathlib import Path

import pytest

from kvledger.core.config import CacheConfig
from kvledger.core.events import RecoveryMode, SwaRecovered
from kvledger.core.insertion import FULL_AND_SWA, Insertion
from kvledger.core.node import Node
from kvledger.tools.presets import BUILTIN
from kvledger.tools.report import RunReport
from kvledger.tools.run import RunSetup, run_workload
from kvledger.tools.workload import builtin_workload


def replace_full_whoever_reads_it(insertion: Insertion, node: Node, start: int, end: int) -> None:
    """Recovery as it was before the mend: the lock on the node is not looked at."""
    row = insertion.row
    incoming = row.part(start, end)
    state = insertion.ledger.state
    insertion.ledger.apply(
        SwaRecovered(
            node.id,
            RecoveryMode.ADOPT_INCOMING,
            node.full,
            incoming,
            state.pages.peers(incoming),
            state.tick(),
            row.origin,
            row.origin,
        )
    )
    insertion._step(end, node, FULL_AND_SWA, 0)


def run_built_in(database: Path) -> RunReport:
    setup = RunSetup(
        config=CacheConfig(
            page_size=BUILTIN.page_size,
            sliding_window=BUILTIN.window,
            full_tokens=BUILTIN.full_tokens,
            swa_tokens=BUILTIN.swa_tokens,
            layout=BUILTIN.layout,
        ),
        settings=BUILTIN.settings,
        database=str(database),
        name="seed fault",
        durability="background",
    )
    return run_workload(setup, builtin_workload(80, seed=0))


def test_healthy_recovery_under_lock_satisfies_both_watchers(tmp_path: Path) -> None:
    report = run_built_in(tmp_path / "run.db")
    assert report.recoveries_locked > 20
    assert (report.kv_wrong, report.audit.verdict) == (0, "pass")


def test_replacing_locked_full_is_seen_by_the_reads_and_by_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Insertion, "_recover", replace_full_whoever_reads_it)
    report = run_built_in(tmp_path / "run.db")

    assert report.kv_wrong
    assert not report.passed
    assert any("read wrong KV for position" in finding for finding in report.kv_findings)

    assert report.audit.verdict == "fail"
    finding = next(finding for finding in report.audit.findings if finding.invariant == "locked-full")
    assert finding.seq is not None
    assert finding.request is not None
    assert finding.node is not None
    assert finding.pages
