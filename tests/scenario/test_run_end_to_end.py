"""The main job: a workload under pressure, its journal replayed and audited, its KV read back."""

import json
from pathlib import Path
from typing import Literal

import pytest

from kvledger.core.config import CacheConfig, KVLayout
from kvledger.core.events import PrefixMatched
from kvledger.journal import Journal, StoredTransaction
from kvledger.journal.codec import encode
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.run.report import RunReport
from kvledger.tools.run.runner import RunSetup, run_workload
from kvledger.tools.scheduler import SchedulerSettings
from kvledger.tools.workload import Workload, builtin_workload
from kvledger.tools.workload.trace import parse_trace

REPORTED = {
    "requests",
    "steps",
    "prompt_tokens",
    "output_tokens",
    "hit_ratio",
    "evicted_full",
    "evicted_swa",
    "tombstones",
    "recoveries",
    "recoveries_locked",
    "rollbacks",
    "retractions",
    "aborts",
    "mixed_nodes",
    "events",
    "transactions",
    "bytes_per_event",
    "cache_seconds",
    "journal_seconds",
    "kv_reads",
    "kv_wrong",
    "audit",
}


def run(
    database: Path,
    workload: Workload,
    *,
    page_size: int = BUILTIN.page_size,
    window: int = BUILTIN.window,
    full_tokens: int = BUILTIN.full_tokens,
    swa_tokens: int = BUILTIN.swa_tokens,
    layout: KVLayout | None = BUILTIN.layout,
    settings: SchedulerSettings = BUILTIN.settings,
    locked_recovery: Literal["remap", "skip"] = "remap",
    eviction: Literal["lru", "lru-2"] = "lru",
) -> RunReport:
    config = CacheConfig(
        page_size=page_size,
        sliding_window=window,
        full_tokens=full_tokens,
        swa_tokens=swa_tokens,
        layout=layout,
        locked_recovery=locked_recovery,
        eviction=eviction,
    )
    setup = RunSetup(
        config=config, settings=settings, database=str(database), name="test", durability="background"
    )
    return run_workload(setup, workload)


def recorded(database: Path) -> list[StoredTransaction]:
    with Journal.open(database, create=False) as journal:
        return list(journal.reader().transactions())


def assert_healthy(report: RunReport) -> None:
    assert report.kv_findings == []
    assert report.kv_wrong == 0
    assert report.audit.findings == ()
    assert report.audit.verdict == "pass"
    assert report.passed
    assert report.anomalies == report.refused == 0
    assert report.requests == report.finished + report.aborts + report.rejected


def test_the_built_in_workload_presses_on_everything_and_passes(tmp_path: Path) -> None:
    report = run(tmp_path / "run.db", builtin_workload(140, seed=0))
    assert_healthy(report)
    assert report.recoveries_locked > 20
    for figure in (
        report.evicted_full,
        report.evicted_swa,
        report.slid_tokens,
        report.tombstones,
        report.retractions,
        report.aborts,
        report.branch_points,
        report.refreshes,
        report.mixed_nodes,
        report.kv_reads,
    ):
        assert figure
    assert 0.1 < report.hit_ratio < 0.9
    assert report.rejected == 0


def test_the_report_has_the_promised_keys_and_agrees_with_the_journal_and_its_audit(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    report = run(database, builtin_workload(40, seed=2))
    document = json.loads(report.model_dump_json())
    assert document.keys() >= REPORTED
    assert document["audit"]["verdict"] == "pass"
    assert document["audit"]["findings"] == []
    transactions = recorded(database)
    assert report.transactions == len(transactions) == report.audit.counts.transactions
    assert report.events == sum(len(t.events) for t in transactions) == report.audit.counts.events
    assert report.durable_seq == report.events
    assert report.recoveries == report.audit.counts.recoveries
    assert report.recoveries_locked == report.audit.counts.recoveries_under_lock
    assert report.tombstones == report.audit.counts.tombstones
    assert report.mixed_nodes == report.audit.counts.mixed_nodes_at_end
    assert report.audit.counts.checkpoints == report.audit.counts.checkpoints_reproduced > 0
    assert report.audit.counts.locks_open_at_end == 0
    assert report.output_tokens <= sum(len(request.output) for request in builtin_workload(40, seed=2))


def test_one_seed_makes_two_runs_equal_event_for_event(tmp_path: Path) -> None:
    journals = []
    for name in ("first.db", "second.db"):
        run(tmp_path / name, builtin_workload(40, seed=7))
        journals.append(
            [
                (
                    t.number,
                    t.op,
                    t.request_id,
                    t.reason,
                    [(e.seq, e.undone, encode(e.event)) for e in t.events],
                )
                for t in recorded(tmp_path / name)
            ]
        )
    assert len(journals[0]) > 500
    assert journals[0] == journals[1]


@pytest.mark.parametrize(
    ("page_size", "window"), [(1, 7), (1, 128), (2, 5), (4, 100), (8, 64), (64, 20), (64, 100), (256, 300)]
)
def test_any_page_size_and_window_passes(tmp_path: Path, page_size: int, window: int) -> None:
    report = run(
        tmp_path / "run.db",
        builtin_workload(20, seed=3),
        page_size=page_size,
        window=window,
        full_tokens=12_288,
        swa_tokens=6_144,
    )
    assert_healthy(report)
    assert report.rejected == 0
    assert report.evicted_full > 0 < report.evicted_swa
    assert report.recoveries_locked > 0 < report.mixed_nodes


def test_a_budget_below_a_page_passes(tmp_path: Path) -> None:
    settings = BUILTIN.settings.model_copy(update={"token_budget": 40})
    report = run(tmp_path / "run.db", builtin_workload(12, seed=3), page_size=64, settings=settings)
    assert_healthy(report)


def test_pools_too_small_for_a_request_reject_it_and_serve_the_others(tmp_path: Path) -> None:
    workload = builtin_workload(40, seed=3)
    longest = max(len(request.prompt) + len(request.output) for request in workload)
    assert longest > 1_600
    report = run(tmp_path / "run.db", workload, full_tokens=1_600, swa_tokens=1_600)
    assert_healthy(report)
    assert report.rejected > 0
    assert report.finished > 20


def test_an_swa_pool_smaller_than_a_step_is_filled_in_smaller_chunks(tmp_path: Path) -> None:
    report = run(tmp_path / "run.db", builtin_workload(15, seed=3), swa_tokens=512)
    assert_healthy(report)
    assert report.rejected == 0


def test_skipping_locked_recovery_refuses_parts_and_still_passes(tmp_path: Path) -> None:
    report = run(tmp_path / "run.db", builtin_workload(60, seed=0), locked_recovery="skip")
    assert (report.kv_wrong, report.audit.findings, report.audit.verdict) == (0, (), "pass")
    assert report.recoveries_locked == report.mixed_nodes == report.anomalies == 0
    assert report.refused > 0
    assert report.rollbacks > 0


def test_under_lru_2_more_is_found_and_the_journal_replays_and_passes(tmp_path: Path) -> None:
    workload = builtin_workload(120, seed=0)
    # Only its hits count, and no KV is needed for those.
    by_recency = run(tmp_path / "lru.db", workload, layout=None)
    report = run(tmp_path / "lru-2.db", builtin_workload(120, seed=0), eviction="lru-2")
    assert_healthy(report)
    assert report.evicted_full > 0 < report.evicted_swa
    assert report.hit_ratio > by_recency.hit_ratio
    with Journal.open(tmp_path / "lru-2.db", create=False) as journal:
        config = journal.reader().recorded_config()
    assert config is not None
    assert config["eviction"] == "lru-2"


def test_without_a_layout_nothing_is_read_and_the_events_are_the_same(tmp_path: Path) -> None:
    workload = builtin_workload(20, seed=4)
    with_kv = run(tmp_path / "with.db", workload)
    without = run(tmp_path / "without.db", workload, layout=None)
    assert (without.kv_reads, without.kv_wrong) == (None, None)
    assert without.passed
    assert without.events == with_kv.events


def trace_lines() -> list[str]:
    """Conversations over a shared head block, turns 20 s apart, as a trace of a chat service has them."""
    lines = []
    block = 1
    for turn in range(3):
        for client in range(12):
            blocks = [0, *range(1_000 * client + 1, 1_000 * client + 3 + 2 * turn)]
            length = len(blocks) * 512 - 37 * (client % 3)
            lines.append(
                json.dumps(
                    {
                        "timestamp": 20_000 * turn + 900 * client,
                        "input_length": length,
                        "output_length": 40 + 13 * client,
                        "hash_ids": blocks,
                    }
                )
            )
            block += 1
    return lines


@pytest.mark.parametrize(("page_size", "window"), [(64, 1_024), (1, 128)])
def test_a_trace_passes_and_its_later_turns_hit(tmp_path: Path, page_size: int, window: int) -> None:
    workload = parse_trace(trace_lines(), name="trace")
    report = run(
        tmp_path / "run.db",
        workload,
        page_size=page_size,
        window=window,
        full_tokens=25_600,
        swa_tokens=6_400,
        layout=KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=4),
        settings=SchedulerSettings(token_budget=1_024),
    )
    assert_healthy(report)
    assert report.finished == len(workload)
    assert report.output_tokens == sum(len(request.output) for request in workload)
    assert report.prompt_tokens == sum(len(request.prompt) for request in workload)
    assert report.hit_ratio > 0.1


def test_the_prefixes_a_journal_says_were_reused_are_those_the_report_counts(tmp_path: Path) -> None:
    database = tmp_path / "run.db"
    report = run(database, builtin_workload(25, seed=5), full_tokens=98_304, swa_tokens=98_304)
    opened = [t for t in recorded(database) if t.op == "open_request"]
    matched = [e.event for t in opened for e in t.events if isinstance(e.event, PrefixMatched)]
    assert len(matched) == len(opened) == report.requests
    assert report.hit_tokens == sum(event.length for event in matched) > 0
