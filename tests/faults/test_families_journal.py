"""Families of faults of events, journals and what follows them, each with the right value.

The numbers are those of docs/planted-faults.md. Each probe is a short run of the journal, or of a workload,
that tells what it sees if anything is wrong; the faults that they find are planted in tests/planted.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.scheduler import Scheduler
from kvledger.tools.scheduler.forward import NoForward, Work
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload import builtin_workload
from tests.planted import probes, probes_store, probes_work

WINDOW = 128

PROBES = {
    "18 and 29: what requests read is what was computed for them": probes_work.served,
    "30: the stored hash of a prefix is the one in the digest": probes.recorded_hashes,
    "32: a batch that was refused once leaves no gap": probes.recorded_through_a_refusal,
    "33: an older transaction is not folded again": probes.replayed_after_it_was_live,
    "34: two recordings have two epochs": probes.recorded_twice,
    "35: what is hashed is what is stored": probes.recorded,
    "35: a clock that goes back changes no order": probes.recorded_while_the_clock_goes_back,
    "36: batches are links of one chain": probes.recorded_by_two,
    "37: a writer has the write lock from its beginning": probes_store.begun_at_once,
    "37: a released savepoint goes with the transaction around it": probes_store.savepoints_undone,
    "38: the write-ahead log stays short": probes_store.the_log_stays_short,
    "39: a table that is rebuilt keeps its children": probes_store.migrated,
    "40: a full queue loses nothing": probes.recorded_in_a_narrow_queue,
    "40: what is durable is on the disk": probes.what_is_durable,
    "41: replay comes to the digest of every checkpoint": probes.replayed,
    "42: a call costs no more beside a large tree": probes_work.work_of_a_small_call,
    "42: a transaction costs an audit no more beside a large tree": probes_work.work_of_an_audit,
}


@pytest.mark.parametrize("family", PROBES)
def test_a_family_of_faults_has_the_right_value(family: str, tmp_path: Path) -> None:
    probe: Callable[[Path], str | None] = PROBES[family]
    assert probe(tmp_path) is None


class Launched(NoForward):
    """Looks at the mapping rows that a batch reads, when it is launched."""

    def __init__(self, cache: HybridCache) -> None:
        self._cache = cache
        self.looked_at = 0

    def run(self, batch: Sequence[Work]) -> None:
        for work in batch:
            read = work.job.row[max(0, work.start - WINDOW) : work.end]
            assert self._cache.swa_slots(read).all(), (
                f"{work.job.name} has no SWA in [{work.start}, {work.end})"
            )
            self.looked_at += len(read)


def test_18_every_row_that_a_launched_batch_reads_has_its_swa() -> None:
    config = CacheConfig(page_size=16, sliding_window=WINDOW, full_tokens=8_192, swa_tokens=4_096)
    cache, meter = HybridCache(config), Meter()
    forward = Launched(cache)
    scheduler = Scheduler(
        cache,
        settings=BUILTIN.settings,
        forward=forward,
        watch=Watch(None, window=WINDOW, page_size=16, full_pages=config.full_pages),
        tap=TapSink(None, meter),
        meter=meter,
        flush=lambda: None,
    )
    scheduler.run(builtin_workload(40, seed=0))
    assert scheduler.counts.slid_tokens > 0
    assert forward.looked_at > 10_000
