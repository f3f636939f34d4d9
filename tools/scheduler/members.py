"""Who waits and who runs: admission, resumption, retraction and goodbye, with the cache call of each."""

from collections import deque

from kvledger.core import HybridCache
from kvledger.tools.scheduler.admission import Admission
from kvledger.tools.scheduler.forward import Forward
from kvledger.tools.scheduler.job import Job
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.settings import Counts
from kvledger.tools.scheduler.watch import Watch


class Members:
    """The queue and the batch. `running` is in order of admission, so its last job is the newest."""

    def __init__(
        self,
        cache: HybridCache,
        *,
        max_running: int,
        budget: int,
        counts: Counts,
        forward: Forward,
        watch: Watch,
        meter: Meter,
    ) -> None:
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self._cache = cache
        self._max_running = max_running
        self._counts = counts
        self._forward = forward
        self._watch = watch
        self._meter = meter
        self._admission = Admission(cache, meter, page_size=cache.config.page_size, budget=budget)

    def admit(self) -> None:
        """Move jobs from the head of the queue into the batch while they fit."""
        while self.waiting and len(self.running) < self._max_running:
            job = self.waiting[0]
            if self._admission.fits(job, self.running):
                self.waiting.popleft()
                self._join(job)
            elif self.running:
                return
            else:
                # An empty batch means all that is cached may go: what does not fit now never will.
                self.waiting.popleft()
                self._reject(job)

    def refresh(self, job: Job) -> None:
        """Match again: a job that waited in the batch may find that somebody published its prefix."""
        with self._meter:
            job.live.refresh()
        before = job.prefix
        self._start(job)
        if job.prefix != before:
            self._counts.refreshes += 1
            self._watch.admitted(job, self._counts.steps)

    def close(self, job: Job) -> None:
        """Goodbye: the client left, or has all it asked for."""
        self.running.remove(job)
        with self._meter:
            if job.gone:
                job.live.abort()
            else:
                job.live.finish()
        if job.gone:
            self._counts.aborts += 1
        else:
            self._counts.finished += 1
        self._forward.leave(job)

    def retract(self, job: Job) -> None:
        """Take `job` out of the batch: its computed KV is published, it waits at the head of the queue."""
        self.running.remove(job)
        if not self.running:
            self._reject(job)
            return
        self._counts.retractions += 1
        with self._meter:
            job.live.retract()
        if job.spec.abort_at is None:
            self.waiting.appendleft(job)
            return
        # A client that was going to leave does so now: the abort of a request that waits.
        with self._meter:
            job.live.abort()
        self._counts.aborts += 1
        self._forward.leave(job)

    def _join(self, job: Job) -> None:
        if job.request is None:
            self._forward.prepare(job)
            with self._meter:
                job.request = self._cache.open_request(
                    job.name, job.tokens[: job.known], namespace=job.spec.namespace
                )
            self._start(job)
            self._counts.prompt_tokens += job.known
            self._counts.hit_tokens += job.prefix
        else:
            with self._meter:
                job.live.refresh()
            self._start(job)
        self.running.append(job)
        self._watch.admitted(job, self._counts.steps)
        if job.spec.abort_at == 0:
            self.close(job)

    def _start(self, job: Job) -> None:
        """Take over what a match gave: everything before `prefix_len` is there."""
        request = job.live
        prefix = request.prefix_len
        job.prefix = job.reserved = job.computed = job.protected = prefix
        job.row[:prefix] = request.slots_of(0, prefix)
        job.branch = request.publish_len if request.publish_len > prefix else None
        job.opened_at_step = self._counts.steps

    def _reject(self, job: Job) -> None:
        """The pools are too small for this request, whoever else leaves."""
        self._counts.rejected += 1
        if job.request is not None:
            with self._meter:
                job.request.abort()
        self._forward.leave(job)
