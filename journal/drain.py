"""Draining on SIGTERM: what a recorder has accepted is on disk before the signal takes its course.

The handler is installed in front of whatever handled the signal before, and passes the signal on to it. It
may interrupt the very call that holds the recorder's lock, and would then wait for itself: so a signal that
comes in the middle of such a call is kept until the call ends.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from kvledger.core.errors import InvalidArgument, JournalError

log = logging.getLogger("kvledger.journal")


def check_can_drain() -> None:
    """Raise InvalidArgument unless a `SigtermDrain` can be made here."""
    if threading.current_thread() is not threading.main_thread():
        raise InvalidArgument("drain_on_sigterm needs the recording to start on the main thread")
    if signal.getsignal(signal.SIGTERM) is None:
        raise InvalidArgument("drain_on_sigterm cannot stand before a handler that is not Python's")


class SigtermDrain:
    """Calls `flush` when SIGTERM arrives. As a context manager it puts the signal off while its block runs.

    Blocks stand beside one another, never within: one whose end an interrupt kept from running ends with the
    next one.

    To be made and removed on the main thread, which is where Python handles signals; raises InvalidArgument
    on another one, or where SIGTERM is handled by code outside Python, which cannot be called from here.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        check_can_drain()
        self._previous: Any = signal.getsignal(signal.SIGTERM)
        self._flush = flush
        self._main = threading.get_ident()
        self._pid = os.getpid()
        self._within = False
        self._put_off: tuple[int, FrameType | None] | None = None
        self._removed = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._within = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.get_ident() == self._main:
            self._within = False
            if self._put_off is not None:
                arrived, self._put_off = self._put_off, None
                self._deliver(*arrived)

    def remove(self) -> None:
        """Drain no more. A handler that was installed after this one goes on passing signals through it."""
        self._removed = True
        on_main = threading.current_thread() is threading.main_thread()
        if on_main and signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._previous)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._within:
            self._put_off = (number, frame)
        else:
            self._deliver(number, frame)

    def _deliver(self, number: int, frame: FrameType | None) -> None:
        if not self._removed and os.getpid() == self._pid:
            try:
                self._flush()
            except JournalError as error:
                log.error("events were lost at SIGTERM: %s", error)
        if callable(self._previous):
            self._previous(number, frame)
        elif self._previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
