"""Our cache in the harness that measures caches of other projects: a real trace, with every slot checked.

The harness is not part of this repository; it stands beside it, in ../shared/peers, with its trace in
../shared/traces. Timings mean nothing here; what counts is what the harness verifies.
"""

import importlib.util
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kvledger.journal import Journal
from kvledger.journal.apart import ApartRecorder
from kvledger.journal.audit import audit
from kvledger.tools.bench.peer_adapter import Journaled, OnDisk, Unrecorded

SHARED = Path(__file__).parents[3] / "shared"
PEERS = SHARED / "peers"
TRACE = SHARED / "traces" / "conversation_trace.jsonl"
REQUESTS = 40
FULL, SWA = 98_304, 49_152
LONGEST_PROMPT = 8_192
SYSTEMS = {"journaled": Journaled, "unrecorded": Unrecorded}


def loaded(name: str) -> ModuleType:
    """A module of the harness, which imports its neighbours by their bare names."""
    spec = importlib.util.spec_from_file_location(name, PEERS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    """`workload` and `drivers`; nothing of them is left behind."""
    needed = (PEERS / "workload.py", PEERS / "drivers.py", TRACE)
    absent = [str(path) for path in needed if not path.is_file()]
    if absent:
        pytest.skip(
            f"the harness of other caches is to stand beside the repository; missing: {', '.join(absent)}"
        )
    for name in ("workload", "drivers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    workload = loaded("workload")
    yield workload, loaded("drivers")
    for name in ("workload", "drivers"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("trim", [False, True], ids=["keep", "trim"])
@pytest.mark.parametrize("page", [64, 1])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_trace_is_served_with_every_slot_of_every_hit_checked(
    harness: tuple[ModuleType, ModuleType], system: str, page: int, trim: bool
) -> None:
    workload, drivers = harness
    cache = SYSTEMS[system](page, FULL, SWA)
    trace = workload.TraceWorkload(str(TRACE), REQUESTS, LONGEST_PROMPT)
    report = drivers.TraceDriver(cache, trim=trim, verify=True).run(trace)
    assert report["requests"] == REQUESTS
    assert report["rejected"] == 0
    assert report["verified_hits"] > REQUESTS
    assert report["hit_tokens"] > 0
    assert report["calls_by_op"]["evict"] > 0, "pools so large that nothing is evicted show little"
    assert report["calls_by_op"]["commit"] >= REQUESTS
    assert report["conservation"]["full"]["ok"]
    assert report["conservation"]["swa"]["ok"]
    assert report["own_sanity_check"] == "ok"
    assert report["all_slots_back_after_evict_all"]
    sizes = cache.cache.sizes()
    assert (sizes.full.held, sizes.swa.held) == (0, 0)


@pytest.mark.parametrize(("made", "page"), [(Journaled, 64), (Journaled, 1), (OnDisk, 64)])
def test_the_journal_of_a_trace_passes_its_audit(
    harness: tuple[ModuleType, ModuleType],
    made: type[Journaled],
    page: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workload, drivers = harness
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache = made(page, FULL, SWA)
    trace = workload.TraceWorkload(str(TRACE), REQUESTS, LONGEST_PROMPT)
    drivers.TraceDriver(cache, trim=True).run(trace)
    cache.cache.checkpoint()
    cache.match_indices(np.array([1], dtype=np.int32))  # a step begins: what was recorded is flushed
    if isinstance(cache.recorder, ApartRecorder):
        cache.recorder.wait_until_stored()
    (database,) = tmp_path.glob("*/peer.db")
    with Journal.open(database, create=False) as journal:
        verdict = audit(journal.reader())
        told = Counter(transaction.op for transaction in journal.reader().transactions())
    assert verdict.verdict == "pass", verdict.findings
    assert verdict.counts.checkpoints == 1
    # Less than a page more, and there is nothing to publish: most requests bring more.
    assert min(told["advance"], told["insert"]) > REQUESTS // 2


def test_a_run_with_a_journal_and_one_without_hit_the_same(harness: tuple[ModuleType, ModuleType]) -> None:
    workload, drivers = harness
    reports: list[dict[str, Any]] = []
    for made in SYSTEMS.values():
        trace = workload.TraceWorkload(str(TRACE), REQUESTS, LONGEST_PROMPT)
        reports.append(drivers.TraceDriver(made(64, FULL, SWA), trim=True).run(trace))
    one, other = reports
    for figure in ("hit_tokens", "branch_commits", "cached_full_tokens_at_end", "cached_swa_tokens_at_end"):
        assert one[figure] == other[figure], figure


@pytest.mark.parametrize("page", [64, 1])
def test_each_operation_that_the_harness_times_does_what_it_is_timed_for(
    harness: tuple[ModuleType, ModuleType], page: int
) -> None:
    """The driver asserts lengths of hits and amounts evicted and recovered as it goes."""
    workload, drivers = harness
    driver = drivers.MicroDriver(
        Unrecorded(page, 400_000, 199_936), workload.MicroWorkload(background_conversations=2)
    )
    driver.n = lambda count: min(count, 2)  # its own least, at any scale, is five rounds
    results = driver.run()
    assert len(results) >= len(drivers.MicroDriver.CASES)
    for name, result in results.items():
        assert result["n"] > 0, name
        assert "conservation_error" not in result, name
