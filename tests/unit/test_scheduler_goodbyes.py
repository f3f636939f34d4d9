"""The forward pass hears of each request's end once, however it ends."""

from collections import Counter
from collections.abc import Sequence

from kvledger.core import CacheConfig, HybridCache
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.scheduler import Scheduler
from kvledger.tools.scheduler.forward import NoForward, Work
from kvledger.tools.scheduler.job import Job
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload import builtin_workload


class Goodbyes(NoForward):
    """Counts goodbyes, and whether anything is computed after one."""

    def __init__(self) -> None:
        self.said: Counter[str] = Counter()
        self.computed_after = 0

    def run(self, batch: Sequence[Work]) -> None:
        self.computed_after += sum(self.said[work.job.name] for work in batch)

    def leave(self, job: Job) -> None:
        self.said[job.name] += 1


def test_every_request_takes_its_leave_of_the_forward_once_and_computes_no_more() -> None:
    # So small that some requests are retracted and others are too large at all.
    config = CacheConfig(page_size=16, sliding_window=128, full_tokens=2_048, swa_tokens=1_024)
    cache = HybridCache(config)
    forward = Goodbyes()
    meter = Meter()
    scheduler = Scheduler(
        cache,
        settings=BUILTIN.settings,
        forward=forward,
        watch=Watch(None, window=128, page_size=16, full_pages=config.full_pages),
        tap=TapSink(None, meter),
        meter=meter,
        flush=lambda: None,
    )
    workload = list(builtin_workload(80, seed=0))
    scheduler.run(workload)
    counts = scheduler.counts
    assert forward.said == Counter(request.request_id for request in workload)
    assert forward.computed_after == 0
    assert min(counts.finished, counts.aborts, counts.rejected, counts.retractions) > 0
