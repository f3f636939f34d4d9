"""Thread CPU time spent in the cache and in the journal, apart from everything around them."""

import time
from collections.abc import Callable
from types import TracebackType


class Meter:
    """Adds up sections of thread CPU time: `with meter: cache_call()`. Sections do not nest.

    `journal_ns` grows inside such sections too (a sink's append runs in a cache call), so the cache's own
    time is the sections' less that.
    """

    def __init__(self) -> None:
        self.section_ns = 0
        self.journal_ns = 0
        self._inside_ns = 0
        self._start = 0
        self._journal_start = 0

    def __enter__(self) -> None:
        self._journal_start = self.journal_ns
        self._start = time.thread_time_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.section_ns += time.thread_time_ns() - self._start
        self._inside_ns += self.journal_ns - self._journal_start

    def timed_journal(self, call: Callable[[], object]) -> Callable[[], None]:
        """`call` with its time added to the journal's."""

        def timed() -> None:
            start = time.thread_time_ns()
            try:
                call()
            finally:
                self.journal_ns += time.thread_time_ns() - start

        return timed

    @property
    def cache_seconds(self) -> float:
        """Thread CPU seconds in cache calls without the journal's share."""
        return (self.section_ns - self._inside_ns) / 1e9

    @property
    def journal_seconds(self) -> float:
        """Thread CPU seconds in the sink, on the scheduler's thread."""
        return self.journal_ns / 1e9
