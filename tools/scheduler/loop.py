"""The step: from arrivals to goodbyes, each cache call in the order an engine has to make it.

What belongs to whom in the row of a running request:

    [0, protected)          the tree's, on the locked path; the lease keeps it
    [protected, reserved)   the request's own; finish and commit publish it, abort frees it
    [0, computed)           holds KV; computed == reserved between two steps
"""

from collections.abc import Callable

from kvledger.core import HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.tools.progress import Progress
from kvledger.tools.scheduler.forward import Forward, Work
from kvledger.tools.scheduler.job import Job, new_job
from kvledger.tools.scheduler.members import Members
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.plan import chunk_end, plan_step, step_budget
from kvledger.tools.scheduler.settings import Counts, SchedulerSettings
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload.spec import Workload


class Scheduler:
    """Runs a workload through a cache, step by step.

    `tap` is the cache's sink; `flush` is called once per step, after the last cache call of it. Decisions
    depend on the workload, the settings and the cache's answers alone: no clock, no randomness, no order
    of sets.
    """

    def __init__(
        self,
        cache: HybridCache,
        *,
        settings: SchedulerSettings,
        forward: Forward,
        watch: Watch,
        tap: TapSink,
        meter: Meter,
        flush: Callable[[], None],
    ) -> None:
        self.counts = Counts()
        self._cache = cache
        self._page_size = cache.config.page_size
        self._window = cache.config.sliding_window
        self._budget = step_budget(cache.config, settings.token_budget)
        self._settings = settings
        self._forward = forward
        self._watch = watch
        self._tap = tap
        self._meter = meter
        self._flush = flush
        self._members = Members(
            cache,
            max_running=settings.max_running,
            budget=self._budget,
            counts=self.counts,
            forward=forward,
            watch=watch,
            meter=meter,
        )

    def run(self, workload: Workload, *, progress: Progress | None = None) -> None:
        """Serve the whole workload, in order of arrival; `progress` hears how many are done."""
        total = len(workload)
        arrivals = iter(workload)
        coming = next(arrivals, None)
        waiting, running = self._members.waiting, self._members.running
        now_ms = 0
        while coming is not None or waiting or running:
            if coming is not None and not waiting and not running:
                now_ms = max(now_ms, coming.arrival_ms)
            while coming is not None and coming.arrival_ms <= now_ms:
                waiting.append(new_job(coming))
                self.counts.requests += 1
                coming = next(arrivals, None)
            self._step()
            now_ms += self._settings.step_ms
            if progress is not None:
                progress("requests", self.counts.requests - len(waiting) - len(running), total)
        with self._meter:
            self._cache.checkpoint()
        self._flush()

    def _step(self) -> None:
        members = self._members
        self.counts.steps += 1
        retractions = self.counts.retractions
        members.admit()
        batch = self._reserve()
        if batch:
            self._forward.run(batch)
        for work in batch:
            self._publish(work)
        leaving = self._sample(batch)
        sweep = self.counts.steps % self._settings.sweep_steps == 0
        self._watch.step(
            self.counts.steps,
            running=members.running,
            batch=batch,
            leaving=leaving,
            recovered=self._tap.take_recovered(),
            sweep=sweep,
        )
        for job in leaving:
            members.close(job)
        if not batch and members.running and self.counts.retractions == retractions:
            # Everybody waits for somebody else's slots: the newest gives way.
            members.retract(members.running[-1])
        if sweep:
            with self._meter:
                self._cache.checkpoint()
        self._flush()

    def _reserve(self) -> list[Work]:
        """Slots for as much of the plan as there is room for."""
        running = self._members.running
        batch: list[Work] = []
        plan = plan_step(list(running), budget=self._budget, page_size=self._page_size)
        for job, tokens in list(plan):
            if job not in running:
                continue
            decoding = job.decoding
            if job.untouched and job.opened_at_step < self.counts.steps:
                self._members.refresh(job)
            end = chunk_end(start=job.computed, known=job.known, budget=tokens, page_size=self._page_size)
            if self._extend(job, end, retract_others=decoding):
                batch.append(Work(job, job.computed, end, publish=not decoding))
        # A job may have been retracted after it got its slots; its neighbours go on without it.
        return [work for work in batch if work.job in running]

    def _extend(self, job: Job, end: int, *, retract_others: bool) -> bool:
        """Reserve [computed, end) for `job`. A prefill waits for room, a decode takes it from the newest."""
        request = job.live
        start = job.reserved
        while True:
            try:
                with self._meter:
                    request.extend(end - start)
            except OutOfSlots:
                if not retract_others:
                    return False
                victim = self._members.running[-1]
                self._members.retract(victim)
                if victim is job:
                    return False
            else:
                with self._meter:
                    job.row[start:end] = request.slots_of(start, end)
                job.reserved = end
                return True

    def _publish(self, work: Work) -> None:
        """Tell the cache that the KV is there; finished chunks of a prompt become everybody's."""
        job = work.job
        job.computed = work.end
        with self._meter:
            job.live.computed(work.end)
        if not work.publish:
            return
        if job.branch is not None and job.computed >= job.branch:
            if job.branch > job.protected and self._has_window(job, job.branch):
                self._commit(job, job.branch)
                self.counts.branch_points += 1
            job.branch = None
        if job.computed - job.computed % self._page_size > job.protected:
            self._commit(job, None)

    def _has_window(self, job: Job, end: int) -> bool:
        """Whether a window of own live SWA stands before `end`.

        It always does where every chunk is accepted. A cache that skips locked recovery may refuse some, and
        the frontier then runs ahead of what is published.
        """
        frontier = job.live.frontier
        return frontier < job.protected or frontier + self._window <= end

    def _commit(self, job: Job, upto: int | None) -> None:
        with self._meter:
            committed = job.live.commit(upto)
        job.protected = committed.length
        self.counts.refused_tokens += committed.refused
        for start, end in committed.row_changed:
            job.row[start:end] = job.live.slots_of(start, end)

    def _sample(self, batch: list[Work]) -> list[Job]:
        """The next token for each job whose KV is complete; who stays gives up what left the window.

        Returns the jobs that leave after this step.
        """
        leaving: list[Job] = []
        for work in batch:
            job = work.job
            if job.pending == 0 and job.known < len(job.tokens):
                with self._meter:
                    job.live.append(job.tokens[job.known : job.known + 1])
                job.known += 1
                self.counts.output_tokens += 1
            if job.done or job.gone:
                leaving.append(job)
            else:
                with self._meter:
                    self.counts.slid_tokens += job.live.slide()
        return leaving
