"""How often a process that died is started again."""

import time
from collections import deque
from collections.abc import Callable

ATTEMPTS = 3
WINDOW_SECONDS = 600.0
"""So many starts within so many seconds: one that was killed for its memory comes back, one that dies as soon
as it is asked does not take a core for it."""


class Attempts:
    """Counts starts, and says whether there may be another one."""

    def __init__(
        self,
        *,
        limit: int = ATTEMPTS,
        window_seconds: float = WINDOW_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self.window_seconds = window_seconds
        self.begun = 0
        """All starts that there were."""
        self._clock = clock
        self._times: deque[float] = deque(maxlen=limit)

    def begin(self) -> bool:
        """Count a start and say True, or False where there were too many lately."""
        now = self._clock()
        if len(self._times) == self.limit and now - self._times[0] < self.window_seconds:
            return False
        self._times.append(now)
        self.begun += 1
        return True
