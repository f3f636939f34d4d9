"""The fault this project exists for, put back: recovery replaces the Full KV of a locked node.

Another request is running on it and goes on reading slots that are freed and written by somebody else. Both
watchers have to notice on the built-in workload, each by itself: the reads of the running requests, and the
audit of the journal, with the evidence that leads to the line of code. Beside it stand the faults that a rule
of matching or a lost write would bring.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import pytest

from kvledger.core import cache as cache_module
from kvledger.core import commit as commit_module
from kvledger.core import locking as locking_module
from kvledger.core import matching as matching_module
from kvledger.core.device_pools import DevicePools
from kvledger.core.insertion import Insertion
from kvledger.core.matching import Walk
from kvledger.core.node import Node
from kvledger.core.pools import PoolChanges
from kvledger.core.state import CacheState
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.run.report import RunReport
from kvledger.tools.run.runner import RunSetup, run_workload
from kvledger.tools.workload import builtin_workload
from tests.support.old_recovery import replace_full_whoever_reads_it


def run_built_in(
    database: Path, *, locked_recovery: Literal["remap", "skip"] = "remap", requests: int = 80
) -> RunReport:
    setup = RunSetup(
        config=BUILTIN.config(layout=BUILTIN.layout, locked_recovery=locked_recovery),
        settings=BUILTIN.settings,
        database=str(database),
        name="seed fault",
        durability="background",
    )
    return run_workload(setup, builtin_workload(requests, seed=0))


def test_healthy_recovery_under_lock_satisfies_both_watchers(tmp_path: Path) -> None:
    report = run_built_in(tmp_path / "run.db")
    assert report.recoveries_locked > 20
    assert (report.kv_wrong, report.audit.verdict) == (0, "pass")


@pytest.mark.interpreted
def test_replacing_locked_full_is_seen_by_the_reads_and_by_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Insertion, "_recover", replace_full_whoever_reads_it)
    report = run_built_in(tmp_path / "run.db")

    assert report.stopped is None
    assert report.kv_wrong
    assert not report.passed
    assert any("read wrong KV for position" in finding for finding in report.kv_findings)

    assert report.audit.verdict == "fail"
    finding = next(finding for finding in report.audit.findings if finding.invariant == "locked-full")
    assert finding.seq is not None
    assert finding.request is not None
    assert finding.node is not None
    assert finding.pages


def match_a_page_too_early(state: CacheState, namespace: str, key: bytes | bytearray, limit: int) -> Walk:
    """The match rule with a window that is one page short."""
    lenient = SimpleNamespace(
        roots=state.roots,
        page_bytes=state.page_bytes,
        window=state.window - state.page_size,
        shape=state.shape,
        last_walk=None,
    )
    return walk_by_the_rule(cast(CacheState, lenient), namespace, key, limit)


walk_by_the_rule = matching_module.walk


def accept_everything(insertion: Insertion, start: Node | None, base: int) -> tuple[int, Node | None]:
    """A commit that does not match again: whatever was inserted counts as usable."""
    return insertion.row.end, insertion.steps[-1].node


def plant_lenient_match(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (matching_module, cache_module, locking_module):
        monkeypatch.setattr(module, "walk", match_a_page_too_early)


def plant_blind_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_module, "_accepted", accept_everything)


Plant = Callable[[pytest.MonkeyPatch], None]
RULE_FAULTS: list[Any] = [
    pytest.param(plant_lenient_match, "remap", id="a match one page short of a window"),
    pytest.param(plant_blind_commit, "skip", id="a commit that accepts everything"),
]


@pytest.mark.interpreted
@pytest.mark.parametrize(("plant", "locked_recovery"), RULE_FAULTS)
def test_a_match_without_a_window_is_stopped_by_the_cache_itself_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant, locked_recovery: Literal["remap", "skip"]
) -> None:
    plant(monkeypatch)
    report = run_built_in(tmp_path / "run.db", locked_recovery=locked_recovery)
    assert report.stopped is not None
    assert "window-match" in report.stopped
    assert not report.passed
    # Nothing of the refused operation is in the journal, and all before it is.
    assert report.audit.verdict == "pass"
    assert 0 < report.requests < 80
    assert report.durable_seq == report.audit.counts.events == report.events > 100


@pytest.mark.interpreted
@pytest.mark.parametrize(("plant", "locked_recovery"), RULE_FAULTS)
def test_a_match_without_a_window_is_seen_by_the_reads_and_by_the_audit_where_the_cache_is_blind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Plant, locked_recovery: Literal["remap", "skip"]
) -> None:
    plant(monkeypatch)
    monkeypatch.setattr(locking_module, "_check_live", lambda window: None)
    report = run_built_in(tmp_path / "run.db", locked_recovery=locked_recovery)
    assert report.stopped is None
    assert report.kv_wrong
    assert any("read wrong KV for position" in finding for finding in report.kv_findings)
    assert report.audit.verdict == "fail"
    assert "window-match" in {finding.invariant for finding in report.audit.findings}


def never_written(pools: DevicePools, changes: PoolChanges) -> np.ndarray:
    """Of the changes of the mapping, those that reach the mirror: none."""
    return np.zeros(len(changes.mapped_full), dtype=bool)


def never_rewritten(pools: DevicePools, changes: PoolChanges) -> np.ndarray:
    """Only those of pages that had no SWA page yet: a recovery's change is lost."""
    return pools.mapping.cpu().numpy()[changes.mapped_full] == 0


@pytest.mark.parametrize("arrives", [never_written, never_rewritten])
def test_a_mirror_that_differs_from_the_mapping_is_seen_by_the_reads(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arrives: Callable[[DevicePools, PoolChanges], np.ndarray],
) -> None:
    commit = DevicePools.commit

    def losing(pools: DevicePools, changes: PoolChanges) -> None:
        kept = arrives(pools, changes)
        commit(
            pools,
            PoolChanges(
                freed_full=changes.freed_full,
                freed_swa=changes.freed_swa,
                mapped_full=changes.mapped_full[kept],
                mapped_swa=changes.mapped_swa[kept],
            ),
        )

    monkeypatch.setattr(DevicePools, "commit", losing)
    report = run_built_in(tmp_path / "run.db", requests=40)
    assert report.kv_wrong
    assert not report.passed
    # The journal tells what the host decided, and that was right.
    assert report.audit.verdict == "pass"
