"""Who hears what becomes of a recorder's transactions: its keeper, and whoever subscribes while it records.

Everything here is called in the writer's thread, after the commit. The keeper is part of recording. A
subscriber is a guest: one that raises is told so in the log and hears nothing more, and recording goes on.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from kvledger.journal.rows import Follower, Submission

log = logging.getLogger("kvledger.journal")


class Followers:
    """Passes on what a writer tells, in order. `subscribe` and `unsubscribe` are safe from any thread."""

    def __init__(self, keeper: Follower | None = None) -> None:
        self._keeper = keeper
        self._guests: tuple[Follower, ...] = ()
        self._lock = threading.Lock()

    def subscribe(self, follower: Follower) -> None:
        """Let `follower` hear of every batch from the next one on. It must be quick and must not block."""
        with self._lock:
            self._guests = (*self._guests, follower)

    def unsubscribe(self, follower: Follower) -> None:
        """Let `follower` hear nothing more; does nothing for one that is not subscribed."""
        with self._lock:
            self._guests = tuple(guest for guest in self._guests if guest is not follower)

    def stored(self, batch: Sequence[Submission], *, number: int, seq: int, link: bytes) -> None:
        """`batch` was committed."""
        if self._keeper is not None:
            self._keeper.stored(batch, number=number, seq=seq, link=link)
        self._tell(lambda guest: guest.stored(batch, number=number, seq=seq, link=link))

    def dropped(self, batch: Sequence[Submission]) -> None:
        """`batch` was given up."""
        if self._keeper is not None:
            self._keeper.dropped(batch)
        self._tell(lambda guest: guest.dropped(batch))

    def _tell(self, tell: Callable[[Follower], None]) -> None:
        for guest in self._guests:
            try:
                tell(guest)
            except Exception:
                log.exception("a subscriber of the recorder failed and hears nothing more")
                self.unsubscribe(guest)
