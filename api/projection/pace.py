"""How much processor time the projection may take from the process it lives in.

Inside a scheduler's process every microsecond of Python here is one in which the scheduler's thread has to
wait for the interpreter. The projection therefore works in spells, each paid from one account that fills up
at a fixed share of the wall clock's time: work that is not affordable yet waits, however many ask for it. In
a process of its own nothing is metered.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BURST_SECONDS = 0.03
"""What may be taken at once after a time of rest: a few answers, less than a frame of anything."""

LONGEST_WAIT_SECONDS = 0.05
"""A waiting spell looks again after this: another one may have taken what it waited for."""


class Pace:
    """An account of processor seconds; `share` of a core is what it allows on average, None sets no limit.

    A spell may overdraw it: the ones after it wait until the debt is paid. Safe from any thread.
    """

    def __init__(
        self,
        share: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.share = share
        self._clock = clock
        self._processor = processor
        self._sleep = sleep
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._balance = BURST_SECONDS
        self._filled = clock()

    @contextmanager
    def spell(self) -> Iterator[None]:
        """Wait until there is something on the account, work, and pay for the thread's time of the block."""
        if self.share is None:
            yield
            return
        # One waits for the account, the others for their turn: a long piece of work in many spells lets
        # short ones in between.
        with self._turn:
            self._wait(self.share)
        began = self._processor()
        try:
            yield
        finally:
            spent = self._processor() - began
            with self._lock:
                self._balance -= spent

    def _wait(self, share: float) -> None:
        while True:
            with self._lock:
                now = self._clock()
                self._balance = min(BURST_SECONDS, self._balance + (now - self._filled) * share)
                self._filled = now
                missing = -self._balance
            if missing < 0:
                return
            self._sleep(min(LONGEST_WAIT_SECONDS, missing / share + 0.001))
