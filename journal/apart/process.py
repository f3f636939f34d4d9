"""The process that stores, as its recorder sees it: begun, written to, watched, ended.

A fresh interpreter, never a fork of the scheduler, in a session of its own and at low priority. Between both
are some megabytes of memory (board.py), with a ring that takes what is to be stored and numbers by which the
process tells how far it is, and a pipe that wakes it. The process ends when it is told to, and by the pipe's
end, however this side ended.
"""

import os
import pickle
import signal
import subprocess
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.apart.board import (
    ASLEEP,
    CLOSED,
    FAILED,
    PHASE,
    RECORDING,
    STARTING,
    UNAVAILABLE,
    UNKEPT,
    Board,
)
from kvledger.journal.apart.frames import END, ORDERS, frame, new_batch
from kvledger.journal.apart.orders import Orders
from kvledger.journal.apart.plans import Piece
from kvledger.journal.apart.ring import PUBLISHED, RingWriter
from kvledger.journal.interpreter import current_folder, fresh_interpreter

START_SECONDS = 60.0
"""How long the process may take to import and to begin a journal, beside what it waits for locks."""

LOOK_SECONDS = 0.001
"""How often who waits for the process looks at its board."""

END_SECONDS = 2.0
"""How long who finds the pipe's other end closed waits for the process's end, to say how it ended."""

NICENESS = 5
"""Its priority: where there is but one core the scheduler goes first."""

ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT
"""Asks whether a process has ended, and how, and leaves it to be asked again."""

UNKNOWN = 0
"""The status of one that somebody else has waited for, as `subprocess` has it."""

NOT_STARTED = "no journal can be started"
"""How `Journal.record` begins what it raises, in that process too."""

PROGRAM = "import os; os.nice({niceness}); from kvledger.journal.apart.writer import main; main({board})"


_LIVE: "weakref.WeakSet[WritingProcess]" = weakref.WeakSet()
"""Those that were begun here and have not ended."""

_BEGINNING = threading.RLock()
"""Held from the making of a pipe until who has it is in `_LIVE`. A fork in another thread waits for that, so
that its child closes what it was given of the pipe: the process would never see the end of one that somebody
holds, and who closes a recording that has failed waits for just that."""


class WritingProcess:
    """One process, which records what it is written. Raises JournalError where it cannot begin,
    StoreUnavailable where its store does not answer.

    `words` are the board's numbers; `batch` takes what is handed over together; `failure` says why nothing
    more is stored, None while it is. `carried` says that this is a fork of who began it, which the process
    does not hear.
    """

    def __init__(self, orders: Orders) -> None:
        self.failure: str | None = None
        self.carried = False
        with _BEGINNING:
            try:
                self._board = Board()
                self.words = self._board.words
                self._process, self._pipe = _begun(self._board)
            except (OSError, ValueError) as error:
                raise JournalError(f"the process that stores cannot be started: {error}") from error
            self._ring = RingWriter(self._board.ring, self._board.counters)
            self.batch = new_batch()
            self._pipe_identity = _identity(self._pipe)
            self._open = True
            self._told = False
            self._code: int | None = None
            self._end_at: int | None = None
            self._patience_s = START_SECONDS + orders.lock_timeout_s
            _LIVE.add(self)
        try:
            self.write(frame(ORDERS, pickle.dumps(orders)))
            self._wait_for_start()
        except BaseException:
            if self._has_ended() is None:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Its number, as the operating system counts."""
        return self._process.pid

    @property
    def text(self) -> str:
        """What the process said last."""
        return self._board.text

    def write(self, pieces: Sequence[Piece]) -> None:
        """Copy `pieces` to where the process finds them, once there is room. `failure` says where it has
        ended; raises JournalError where it does while it is waited for."""
        try:
            self._ring.write(pieces, self._wait_for_room)
        except BaseException as error:
            # Of what was cut short nothing may follow.
            self.fail(f"events could not be handed over: {error!r}")
            raise
        self.look_after()

    def open(self, most: int) -> None:
        """Let the batch add at once what is ordinary, up to `most` events, while all is well."""
        board = self._board
        phase = self.words[PHASE : PHASE + 1]
        self.batch.open(phase, RECORDING, board.ring, board.counters, most)

    def look_after(self) -> None:
        """Once something was written: see that somebody reads it. `failure` says where nobody does."""
        if self.words[ASLEEP]:
            self.wake()
        if self._has_ended() is not None:
            self.look()

    def wake(self) -> None:
        """Have the process look at the ring now."""
        if self.failure is not None:
            return
        try:
            if _identity(self._pipe) != self._pipe_identity:
                raise OSError("its pipe was closed, and the number is that of another file")
            # A full pipe is full of calls that were not heard yet: one will do.
            with _no_sigpipe(), suppress(BlockingIOError):
                os.write(self._pipe, b"\0")
        except OSError as error:
            self.look(wait_s=END_SECONDS)
            self.fail(f"the process that stores cannot be reached: {error}")

    def _wait_for_room(self) -> None:
        if self.words[ASLEEP]:
            self.wake()
        self.look()
        if self.failure is not None:
            raise JournalError(self.failure)
        sleep(LOOK_SECONDS)

    def look(self, *, wait_s: float = 0.0) -> None:
        """Learn whether the process has failed, or has ended before it was told to."""
        deadline = monotonic() + wait_s
        while (code := self._has_ended()) is None and monotonic() < deadline:
            sleep(LOOK_SECONDS)
        phase = self.words[PHASE]
        if phase == FAILED:
            self.fail(self.text)
        elif code is not None and phase in (STARTING, RECORDING):
            how = f"signal {-code}" if code < 0 else f"status {code}"
            self.fail(f"the process that stores has ended with {how}")
        elif phase in (CLOSED, UNKEPT) and not self._told:
            self.fail("the process that stores has ended, and was not told to")

    def _has_ended(self) -> int | None:
        """Its status, or its signal as a negative number; None while it runs.

        `Popen.poll` and `wait` take a lock, which an interrupt at the wrong moment leaves held for good.
        """
        if self._code is None:
            try:
                found = os.waitid(os.P_PID, self._process.pid, ENDED)
            except ChildProcessError:
                self._code = UNKNOWN
            else:
                if found is not None:
                    exited = found.si_code == os.CLD_EXITED
                    self._code = found.si_status if exited else -found.si_status
        return self._code

    def fail(self, why: str) -> None:
        """Nothing more is stored; the first reason is the one that is told."""
        self.batch.shut()
        if self.failure is None:
            self.failure = why

    def end(self) -> None:
        """Tell the process that nothing more comes, and wait until it has stored what it was given.

        May be called again after an interrupt.
        """
        self._told = True
        published = self._board.counters[PUBLISHED]
        if self._end_at is None:
            self._end_at = published
        # Nothing else comes here: what was published since then is the end, before an interrupt.
        if self._open and self.failure is None and published == self._end_at:
            with suppress(JournalError):  # It has ended, and `failure` says how.
                self.write(frame(END))
        self.forget()
        while (code := self._has_ended()) is None:
            sleep(LOOK_SECONDS)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        self._process.returncode = code
        if not self._ring.is_read():
            self.fail("the process that stores has ended before it had read everything")
        _LIVE.discard(self)

    def forget(self) -> None:
        """Close the pipe, once. A forked child does no more: the process is not its own."""
        # In this order: an interrupt in between finds another file under the number, or none.
        if self._open and _identity(self._pipe) == self._pipe_identity:
            os.close(self._pipe)
        self._open = False

    def _wait_for_start(self) -> None:
        deadline = monotonic() + self._patience_s
        while self.failure is None and self.words[PHASE] == STARTING:
            self.look()
            if monotonic() > deadline:
                self.fail(f"the process that stores did not start within {self._patience_s:.0f} s")
            sleep(LOOK_SECONDS)
        self.look()
        if self.failure is not None:
            words = "" if self.failure.startswith(NOT_STARTED) else f"{NOT_STARTED}: "
            raise (StoreUnavailable if self.words[UNAVAILABLE] else JournalError)(words + self.failure)


def _begun(board: Board) -> "tuple[subprocess.Popen[bytes], int]":
    """The process, and the end of the pipe that is written to."""
    try:
        theirs, ours = os.pipe()
        try:
            os.set_blocking(ours, False)
            program = PROGRAM.format(niceness=NICENESS, board=board.file)
            process = fresh_interpreter(
                program, folder=current_folder(), stdin=theirs, keeping=[board.file], own_session=True
            )
        except BaseException:
            os.close(ours)
            raise
        finally:
            os.close(theirs)
    finally:
        board.forget_file()
    return process, ours


def _identity(file: int) -> tuple[int, int] | None:
    """What tells an open file from another under the same number; None for none."""
    try:
        found = os.fstat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _no_sigpipe() -> Iterator[None]:
    """A reader that is gone is an error here, also in a program that lets the signal end it."""
    if signal.getsignal(signal.SIGPIPE) != signal.SIG_DFL:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
    try:
        yield
    except BrokenPipeError:
        signal.sigtimedwait([signal.SIGPIPE], 0)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _carry_all() -> None:
    try:
        for one in list(_LIVE):
            one.carried = True
            one.batch.shut()
            one.forget()
        _LIVE.clear()
    finally:
        _BEGINNING.release()


os.register_at_fork(before=_BEGINNING.acquire, after_in_parent=_BEGINNING.release, after_in_child=_carry_all)
