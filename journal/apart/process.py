"""The process that stores, as its recorder sees it: begun, written to, watched, ended.

A fresh interpreter, never a fork of the scheduler, in a session of its own and at low priority. Between both
are a pipe, which takes what is to be stored, and a page of memory, on which the process tells how far it is
(board.py). The process ends when it is told to, and by the pipe's end, however this side ended.
"""

import fcntl
import os
import pickle
import signal
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.apart.board import (
    CLOSED,
    FAILED,
    PHASE,
    RECORDING,
    STARTING,
    UNAVAILABLE,
    UNKEPT,
    Board,
)
from kvledger.journal.apart.frames import END, ORDERS, frame
from kvledger.journal.apart.orders import Orders
from kvledger.journal.interpreter import current_folder, fresh_interpreter

PIPE_BYTES = 2**20
"""What may be under way: the most that Linux gives without privileges."""

START_SECONDS = 60.0
"""How long the process may take to import and to begin a journal, beside what it waits for locks."""

LOOK_SECONDS = 0.001
"""How often who waits for the process looks at its board."""

END_SECONDS = 2.0
"""How long a pipe that nobody reads any more waits for the process's end, to say how it ended."""

NICENESS = 5
"""Its priority: where there is but one core the scheduler goes first."""

NOT_STARTED = "no journal can be started"
"""How `Journal.record` begins what it raises, in that process too."""

PROGRAM = "import os; os.nice({niceness}); from kvledger.journal.apart.writer import main; main({board})"


_LIVE: "weakref.WeakSet[WritingProcess]" = weakref.WeakSet()
"""Those that were begun here and have not ended."""


class WritingProcess:
    """One process, which records what it is written. Raises JournalError where it cannot begin,
    StoreUnavailable where its store does not answer.

    `words` are the board's numbers; `failure` says why nothing more is stored, None while it is.
    """

    def __init__(self, orders: Orders) -> None:
        self.failure: str | None = None
        try:
            self._board = Board()
            self.words = self._board.words
            self._process, self._pipe = _begun(self._board)
        except (OSError, ValueError) as error:
            raise JournalError(f"the process that stores cannot be started: {error}") from error
        self._file = _identity(self._pipe)
        self._open = True
        self._told = False
        self._patience_s = START_SECONDS + orders.lock_timeout_s
        _LIVE.add(self)
        try:
            self.write(frame(ORDERS, pickle.dumps(orders)))
            self._wait_for_start()
        except BaseException:
            self._process.kill()
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

    def write(self, data: bytes) -> None:
        """Put all of `data` into the pipe, once there is room. Where nobody reads it, `failure` says so."""
        view = memoryview(data)
        try:
            if _identity(self._pipe) != self._file:
                raise OSError("its pipe was closed, and the number is that of another file")
            with _no_sigpipe():
                while view:
                    view = view[os.write(self._pipe, view) :]
        except OSError as error:
            self.look(wait_s=END_SECONDS)
            self.fail(f"the process that stores cannot be reached: {error}")

    def look(self, *, wait_s: float = 0.0) -> None:
        """Learn whether the process has failed, or has ended before it was told to."""
        try:
            code = self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            code = None
        phase = self.words[PHASE]
        if phase == FAILED:
            self.fail(self.text)
        elif code is not None and phase in (STARTING, RECORDING):
            how = f"signal {-code}" if code < 0 else f"status {code}"
            self.fail(f"the process that stores has ended with {how}")
        elif phase in (CLOSED, UNKEPT) and not self._told:
            self.fail("the process that stores has ended, and was not told to")

    def fail(self, why: str) -> None:
        """Nothing more is stored; the first reason is the one that is told."""
        if self.failure is None:
            self.failure = why

    def end(self) -> None:
        """Tell the process that nothing more comes, and wait until it has stored what it was given.

        May be called again after an interrupt.
        """
        self._told = True
        if self._open and self.failure is None:
            self.write(frame(END, b""))
        self.forget()
        self._process.wait()
        _LIVE.discard(self)

    def forget(self) -> None:
        """Close the pipe, once. A forked child does no more: the process is not its own."""
        # In this order: an interrupt in between finds another file under the number, or none.
        if self._open and _identity(self._pipe) == self._file:
            os.close(self._pipe)
        self._open = False

    def _wait_for_start(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while self.failure is None and self.words[PHASE] == STARTING:
            self.look()
            if time.monotonic() > deadline:
                self.fail(f"the process that stores did not start within {self._patience_s:.0f} s")
            time.sleep(LOOK_SECONDS)
        self.look()
        if self.failure is not None:
            words = "" if self.failure.startswith(NOT_STARTED) else f"{NOT_STARTED}: "
            raise (StoreUnavailable if self.words[UNAVAILABLE] else JournalError)(words + self.failure)


def _begun(board: Board) -> "tuple[subprocess.Popen[bytes], int]":
    """The process, and the end of the pipe that is written to."""
    try:
        theirs, ours = os.pipe()
        try:
            # Where it cannot be made larger it stays as it is.
            with suppress(OSError, AttributeError):
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
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


def _forget_all() -> None:
    for one in list(_LIVE):
        one.forget()
    _LIVE.clear()


os.register_at_fork(after_in_child=_forget_all)
