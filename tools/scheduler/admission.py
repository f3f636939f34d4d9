"""Who may join the batch: the cache says what fits now, the scheduler what it has promised already."""

from kvledger.core import HybridCache
from kvledger.tools.scheduler.job import Job
from kvledger.tools.scheduler.meter import Meter


class Admission:
    """Decides for the head of the queue, without changing anything.

    The first chunk has to fit in both pools (`can_fit`, which counts what locking the match would take
    away). The Full KV of the rest of the prompt has to fit beside what the batch is still going to prefill;
    the SWA side of a long prompt need not, as its chunks leave the window one after the other. Room to decode
    is a page per request, no more: when it runs out somebody is retracted.
    """

    def __init__(self, cache: HybridCache, meter: Meter, *, page_size: int, budget: int) -> None:
        self._cache = cache
        self._meter = meter
        self._page_size = page_size
        self._budget = budget

    def fits(self, job: Job, running: list[Job]) -> bool:
        """Whether `job` may be opened, or resumed, now. Cost: a match and a sum over the batch."""
        tokens = job.tokens[: job.known]
        namespace = job.spec.namespace
        with self._meter:
            length = self._cache.match_prefix(tokens, namespace).length
            full = self._cache.sizes().full
        rest = job.known - min(length, job.known - 1)
        promised = sum(other.known - other.reserved for other in running)
        watermark = self._page_size * (len(running) + 1)
        if rest + promised + watermark > full.free + full.evictable:
            return False
        with self._meter:
            return self._cache.can_fit(tokens, min(rest, self._budget), namespace)
