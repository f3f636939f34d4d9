"""Probes of work: what a call costs beside a large tree, and a workload whose reads are checked."""

import gc
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.sinks import MemorySink
from kvledger.journal.audit import audit
from kvledger.journal.records import number_transactions
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.run.runner import RunSetup, run_workload
from kvledger.tools.workload import builtin_workload


def _with_nodes(nodes: int, sink: MemorySink) -> HybridCache:
    """A cache with a tree of so many nodes."""
    config = CacheConfig(page_size=1, sliding_window=1, full_tokens=4 * nodes + 8, swa_tokens=4 * nodes + 8)
    cache = HybridCache(config, sink=sink)
    for number in range(nodes):
        cache.insert([number], cache.alloc(1))
    return cache


def _calls_of(work: Callable[[], object]) -> int:
    """How many calls of functions `work` takes."""
    calls = 0

    def count(frame: object, event: str, what: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    # What a collection would free, other tests' objects among it, may call something too.
    gc.collect()
    gc.disable()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def _take_and_free(cache: HybridCache) -> None:
    cache.free(cache.alloc(1))


def work_of_a_small_call(folder: Path) -> str | None:
    """What an operation costs does not follow the size of the tree."""
    costs = []
    for nodes in (4, 64):
        cache = _with_nodes(nodes, MemorySink())
        costs.append(_calls_of(partial(_take_and_free, cache)))
    few, many = costs
    return None if many <= few + 4 else f"the count of calls: {few} beside 4 nodes, {many} beside 64"


def work_of_an_audit(folder: Path) -> str | None:
    """What a transaction costs the audit does not follow the size of the tree."""
    costs = []
    for nodes in (4, 64):
        sink = MemorySink()
        cache = _with_nodes(nodes, sink)
        totals = []
        for more in (0, 10):
            for _ in range(more):
                cache.free(cache.alloc(1))
            transactions = number_transactions(sink.transactions)
            totals.append(_calls_of(partial(audit, transactions)))
        costs.append(totals[1] - totals[0])
    few, many = costs
    return None if many <= few + 20 else f"the count of calls: {few} beside 4 nodes, {many} beside 64"


def served(folder: Path) -> str | None:
    """The built-in workload with real KV: requests read what was computed for their tokens."""
    setup = RunSetup(
        config=BUILTIN.config(layout=BUILTIN.layout),
        settings=BUILTIN.settings,
        database=str(folder / "run.db"),
        name="planted",
        durability="background",
    )
    report = run_workload(setup, builtin_workload(24, seed=0))
    if report.kv_wrong:
        return f"the reads: {report.kv_findings[0]}"
    if report.stopped is not None:
        return f"stopped: {report.stopped}"
    return None if report.audit.verdict == "pass" else f"audit: {report.audit.findings[0].sentence}"
