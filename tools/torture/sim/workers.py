"""A recorder's work done in turn, in the simulation's own thread: nothing happens unless somebody steps it.

Where the recorder would wait for its writer's thread, the writer is stepped here and now. Everything else of
queue, writer and outage is what runs in threads elsewhere.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvledger.core.errors import JournalError
from kvledger.journal.outage import Probing, take_batch
from kvledger.journal.rows import Submission
from kvledger.journal.submission_queue import SubmissionQueue
from kvledger.journal.workers import Writing
from kvledger.journal.writer_loop import WriterLoop


class QueueInTurn(SubmissionQueue):
    """The queue of a recorder whose writer is stepped. `batch_events` is how much it takes at once."""

    def __init__(self, limit: int, *, worth_waking: int, batch_events: int) -> None:
        super().__init__(limit, worth_waking=worth_waking)
        self.batch_events = batch_events
        self.step: Callable[[], bool] | None = None

    @property
    def has_work(self) -> bool:
        """Whether a step of the writer would find anything to do."""
        return bool(self._waiting) or self.retry_due

    def take(self) -> list[Submission] | None:
        """What waits, without waiting for more."""
        if self.failure is not None or (self.closing and not self._waiting):
            return None
        batch = take_batch(self._waiting, self.batch_events)
        for _ in batch:
            self._waiting.popleft()
        return batch

    def _wait_for_room(self) -> None:
        self._step_unlocked()

    def _wait_at_a_gate(self) -> None:
        self._step_unlocked()

    def _step_unlocked(self) -> None:
        """One step of the writer. The lock is held, and let go of meanwhile."""
        if self.step is None or not self.has_work:
            raise JournalError("the recorder waits for a writer that has nothing to do")
        self.lock.release()
        try:
            self.step()
        finally:
            self.lock.acquire()


@dataclass
class WritingInTurn:
    """A writer's loop that runs to its end when somebody waits for it."""

    loop: WriterLoop
    ended: bool = False

    def start(self) -> None:
        """Nothing yet."""

    def is_alive(self) -> bool:
        """Whether the loop has not ended."""
        return not self.ended

    def step(self) -> bool:
        """One step, as long as the loop goes on."""
        if not self.ended:
            self.ended = not self.loop.step()
        return not self.ended

    def join(self, timeout: float | None = None) -> None:
        """Run to the end, however long that takes."""
        while self.step():
            pass


@dataclass
class Asking:
    """A question whether the store is back, asked when the simulation says so."""

    probe: Callable[[], None]
    back: Callable[[], None]
    stopped: bool = False

    def stop(self) -> None:
        """Ask no more."""
        self.stopped = True

    def ask(self) -> None:
        """Ask once; where the store is back, say so and end."""
        if self.stopped:
            return
        try:
            self.probe()
        except JournalError:
            return
        self.stopped = True
        self.back()


class InTurn:
    """Workers for one recorder, and the handles by which a simulation makes them work."""

    def __init__(self, batch_events: int) -> None:
        self._batch_events = batch_events
        self.waiting: QueueInTurn | None = None
        self.asking: Asking | None = None

    def queue(self, limit: int, *, worth_waking: int) -> SubmissionQueue:
        """A queue that never waits."""
        self.waiting = QueueInTurn(limit, worth_waking=worth_waking, batch_events=self._batch_events)
        return self.waiting

    def writing(self, loop: WriterLoop, *, name: str) -> Writing:
        """The loop, to be stepped."""
        writing = WritingInTurn(loop)
        if self.waiting is not None:
            self.waiting.step = writing.step
        return writing

    def probing(self, probe: Callable[[], None], back: Callable[[], None], *, first_attempt: int) -> Probing:
        """A question that waits to be asked."""
        self.asking = Asking(probe, back)
        return self.asking

    def step(self) -> bool:
        """Let the writer do one batch; False where there was nothing to do."""
        if self.asking is not None:
            self.asking.ask()
        if self.waiting is None or self.waiting.step is None or not self.waiting.has_work:
            return False
        self.waiting.step()
        return True
