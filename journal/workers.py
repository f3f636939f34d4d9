"""Who does a recorder's work beside the cache's thread: storing, and asking whether a lost store is back.

Threads of their own do. A simulation that wants everything in one thread, in an order that it chooses, has
workers of its own (kvledger.tools.torture.sim.workers); queue, encoding, chain and store are the same.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from kvledger.journal.outage import Prober, Probing
from kvledger.journal.submission_queue import SubmissionQueue
from kvledger.journal.writer_loop import WriterLoop


class Writing(Protocol):
    """What runs a writer's loop."""

    def start(self) -> None:
        """Begin."""

    def is_alive(self) -> bool:
        """Whether the loop has not ended."""

    def join(self, timeout: float | None = None) -> None:
        """Return when the loop has ended, which it does after its queue was closed, or `timeout` s passed."""


class Workers(Protocol):
    """What a recorder has made for it."""

    def queue(self, limit: int, *, worth_waking: int) -> SubmissionQueue:
        """What a recorder's transactions wait in."""

    def writing(self, loop: WriterLoop, *, name: str) -> Writing:
        """What will run `loop`."""

    def probing(self, probe: Callable[[], None], back: Callable[[], None], *, first_attempt: int) -> Probing:
        """What calls `probe` until it does not raise, and then `back`."""


class Threads:
    """One thread for each."""

    def queue(self, limit: int, *, worth_waking: int) -> SubmissionQueue:
        """The queue between two threads."""
        return SubmissionQueue(limit, worth_waking=worth_waking)

    def writing(self, loop: WriterLoop, *, name: str) -> Writing:
        """A daemon: it does not hold up the interpreter's exit, and the recorder drains the queue before."""
        return threading.Thread(target=loop.run, name=name, daemon=True)

    def probing(self, probe: Callable[[], None], back: Callable[[], None], *, first_attempt: int) -> Probing:
        """A thread that asks with growing pauses."""
        return Prober(probe, back, first_attempt=first_attempt)
