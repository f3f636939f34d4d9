"""What the writer's thread does until the queue is closed: take a batch, store it, keep the journal up.

What becomes of a failure of the store is `on_failure`. With "halt" the loop ends with it, and nothing is
stored after it. With "degrade" it goes on through an outage (kvledger.journal.outage).

Checkpoints and exports are not recording, which goes on when one fails: kvledger.journal.keeper says what
then becomes of them. An error that the keeper did not expect is kept in `upkeep_problem`.
"""

import logging
import time
from collections.abc import Callable

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.durability import OnFailure
from kvledger.journal.keeper import Keeper
from kvledger.journal.outage import Outage, Probing, Writer
from kvledger.journal.rows import Submission
from kvledger.journal.stored_tokens import StoredTokens
from kvledger.journal.submission_queue import BATCH_EVENTS, SubmissionQueue

log = logging.getLogger("kvledger.journal")


class WriterLoop:
    """Moves what is in `queue` into the store behind `writer`. `run` belongs to one thread."""

    def __init__(
        self,
        writer: Writer,
        queue: SubmissionQueue,
        *,
        tokens: StoredTokens,
        keeper: Keeper | None,
        on_failure: OnFailure,
        probe: Callable[..., Probing] | None = None,
    ) -> None:
        self._writer = writer
        self._queue = queue
        self._tokens = tokens
        self._keeper = keeper
        self._on_failure = on_failure
        self._probe = probe
        self.outage: Outage | None = None
        """The time of failure that lasts right now ("degrade" only); changes under the queue's lock."""
        self._dropped_before = 0
        self.upkeep_problem: JournalError | None = None
        """The last error that came out of the keeper, None before the first."""
        self.unkept: JournalError | None = None
        """Why the last checkpoint or export of a closed recorder is missing, if it is."""

    @property
    def dropped_events(self) -> int:
        """Events given up in this outage and those before it."""
        outage = self.outage
        return self._dropped_before + (0 if outage is None else outage.given_up_events)

    def run(self) -> None:
        """Take a batch, store it, say so; until closed and drained, or failed. Then close the writer."""
        while self.step():
            pass

    def step(self) -> bool:
        """Take one batch, store it, say so. False once closed and drained, or failed, the writer closed."""
        goes_on = False
        try:
            batch = self._queue.take()
            if batch is not None:
                self._write(self._as_stored(batch))
                self._keep_up()
                goes_on = True
            else:
                self._end_outage_at_close()
                if self._keeper is not None and self._queue.failure is None:
                    self._finish(self._keeper)
        except JournalError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(JournalError(f"the writer met an error of its own: {error!r}"))
        finally:
            if not goes_on:
                self._end()
        return goes_on

    def _end(self) -> None:
        if self.outage is not None:
            self.outage.stop()
        try:
            self._writer.close()
        except JournalError as error:
            self._fail(error)

    def _as_stored(self, batch: list[Submission]) -> list[Submission]:
        """What the token policy keeps of a batch: once for each transaction, in order, stored or not."""
        began = time.thread_time()
        kept = [self._stored_form(item) for item in batch]
        self._writer.counters.cpu_seconds += time.thread_time() - began
        return kept

    def _stored_form(self, item: Submission) -> Submission:
        stored = self._tokens.stored(item.record)
        return item if stored is item.record else item._replace(record=stored)

    def _write(self, batch: list[Submission]) -> None:
        """Store a batch; or, in an outage, hold it, and try the store when that is due."""
        if self.outage is None:
            before = self._writer.counters.transactions
            try:
                self._writer.store(batch)
            except JournalError as error:
                if self._on_failure == "halt":
                    try:
                        self._find_out(error)
                    finally:
                        self._settle(batch[: self._writer.counters.transactions - before])
                    raise
                stored = self._writer.counters.transactions - before
                self._settle(batch[:stored])
                self._begin_outage(error, batch[stored:])
            else:
                self._settle(batch)
            return
        self.outage.hold(batch)
        self._settle(batch)
        if self._queue.retry_due and not self._queue.closing:
            self._retry()

    def _find_out(self, error: JournalError) -> None:
        """After a failure that halts: learn whether the batch was stored, its answer lost on the way.

        Raises StoreUnavailable where that cannot be learnt.
        """
        if not isinstance(error, StoreUnavailable):
            return
        try:
            self._writer.resync()
        except JournalError as second:
            raise StoreUnavailable(
                f"{error}; whether the batch that failed was stored is not known: {second}"
            ) from error

    def _settle(self, batch: list[Submission]) -> None:
        self._queue.settle(batch, durable_seq=self._writer.durable_seq)

    def _fail(self, error: JournalError) -> None:
        self._queue.fail(error, durable_seq=self._writer.durable_seq)

    def _begin_outage(self, error: JournalError, batch: list[Submission]) -> None:
        outage = Outage(
            self._writer,
            error,
            limit=self._queue.limit,
            back=self._queue.call_for_retry,
            probe=self._probe,
        )
        outage.hold(batch)
        with self._queue.lock:
            self.outage = outage
            self._queue.store_went_away()
        self._settle(batch)
        if isinstance(error, StoreUnavailable):
            outage.wait_for_store()
        else:
            # The database is there and will never take this batch: waiting would not help.
            outage.give_up(len(batch))
            self._retry()

    def _retry(self) -> None:
        """Try to end the outage; what the store refuses again waits for the next time."""
        outage = self.outage
        if outage is None:
            return
        self._queue.retry_due = False
        try:
            outage.resume(BATCH_EVENTS)
        except StoreUnavailable as error:
            outage.error = error
            outage.wait_for_store()
            return
        with self._queue.lock:
            self.outage = None
            self._dropped_before += outage.given_up_events
            self._queue.store_caught_up(durable_seq=self._writer.durable_seq)

    def _end_outage_at_close(self) -> None:
        if self._queue.failure is None:
            self._retry()
        outage = self.outage
        if outage is not None:
            raise JournalError(
                f"the store did not come back: {outage.held_events} events held and {outage.given_up_events} "
                f"given up were not stored: {outage.error}"
            )

    def _keep_up(self) -> None:
        """Let the keeper do what it must, and the rest of its work while nobody waits for the writer."""
        keeper = self._keeper
        if keeper is None or not keeper.worth_working:
            return
        self._queue.open_gates()
        while keeper.must_work or (keeper.has_work and self._queue.idle):
            try:
                if not keeper.work(store_is_there=self.outage is None):
                    return
            except Exception as error:
                # Whatever it was, recording goes on; what is due stays so and is tried after a later batch.
                self._note(_upkeep_problem(error))
                return
            # Whoever wants the interpreter need not wait until all of it is done.
            time.sleep(0)

    def _finish(self, keeper: Keeper) -> None:
        try:
            keeper.finish()
        except Exception as error:
            self.unkept = _upkeep_problem(error)
            self._note(self.unkept)

    def _note(self, problem: JournalError) -> None:
        if str(problem) != str(self.upkeep_problem):
            log.warning("recording goes on, but the journal was not kept up: %s", problem)
        self.upkeep_problem = problem


def _upkeep_problem(error: Exception) -> JournalError:
    if isinstance(error, JournalError):
        return error
    return JournalError(f"checkpoints and exports met an error of their own: {error!r}")
