"""Which reads of a running batch are checked, and when.

Everything a request could read (its whole Full row and the SWA window before its next token) is checked
when it is admitted, when a recovery touched a node its row lies on, when it finishes and at every sweep;
the window and the newest slots at every step.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kvledger.core.events import Pages
from kvledger.tools.kv.check import KVCheck
from kvledger.tools.scheduler.forward import Work
from kvledger.tools.scheduler.job import Job


class Watch:
    """Chooses ranges for a `KVCheck`; without one it watches nothing."""

    def __init__(self, check: KVCheck | None, *, window: int, page_size: int, full_pages: int) -> None:
        self._check = check
        self._window = window
        self._page_size = page_size
        self._full_pages = full_pages

    def admitted(self, job: Job, step: int) -> None:
        """The prefix it was given, before anything is computed on top of it."""
        if self._check is not None and job.computed:
            self._everything(self._check, job, step, "admission")
            self._check.compare(step)

    def step(
        self,
        step: int,
        *,
        running: Sequence[Job],
        batch: Sequence[Work],
        leaving: Iterable[Job],
        recovered: Pages | None,
        sweep: bool,
    ) -> None:
        """What the batch could read at the end of this step."""
        check = self._check
        if check is None:
            return
        whole = {job.name: "finish" for job in leaving}
        if recovered is not None:
            whole.update((job.name, "recovery") for job in self._touched(running, recovered))
        for job in running:
            if sweep or job.name in whole:
                self._everything(check, job, step, whole.get(job.name, "sweep"))
            else:
                check.window(job, max(0, job.computed - self._window), job.computed, "window")
        for work in batch:
            if not sweep and work.job.name not in whole:
                check.full(work.job, work.start, work.end, "newest")
        check.compare(step)

    def _everything(self, check: KVCheck, job: Job, step: int, reason: str) -> None:
        check.own_row(job, job.live.slots_of(0, job.computed), step)
        check.full(job, 0, job.computed, reason)
        check.window(job, max(0, job.computed - self._window), job.computed, reason)

    def _touched(self, running: Sequence[Job], recovered: Pages) -> Iterable[Job]:
        """Jobs whose rows contain any of the pages: one table look-up per page of their rows."""
        table = np.zeros(self._full_pages + 1, dtype=bool)
        table[recovered] = True
        for job in running:
            if table[job.row[: job.computed : self._page_size] // self._page_size].any():
                yield job
