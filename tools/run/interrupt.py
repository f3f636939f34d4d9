"""SIGINT at a moment that suits: a run ends between two steps, where no transaction is open."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupt_between_steps() -> Iterator[Callable[[], None]]:
    """Hold SIGINT back until the function given is called, which then raises KeyboardInterrupt.

    A second SIGINT does not wait: it is for a step that never ends. Outside the main thread, which no signal
    interrupts, nothing is held back.
    """
    asked = False

    def raise_if_asked() -> None:
        if asked:
            raise KeyboardInterrupt

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        raise_if_asked()
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield raise_if_asked
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield raise_if_asked
    finally:
        signal.signal(signal.SIGINT, before)
