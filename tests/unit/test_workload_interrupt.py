"""SIGINT waits for the end of a step, once."""

import signal
import threading

import pytest

from kvledger.tools.run.interrupt import interrupt_between_steps


def test_a_first_sigint_waits_until_the_step_is_over() -> None:
    before = signal.getsignal(signal.SIGINT)
    steps = []
    with interrupt_between_steps() as raise_if_asked:
        raise_if_asked()
        signal.raise_signal(signal.SIGINT)
        steps.append("the rest of the step")
        with pytest.raises(KeyboardInterrupt):
            raise_if_asked()
    assert steps
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_sigint_does_not_wait() -> None:
    with interrupt_between_steps():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_another_thread_holds_nothing_back_and_changes_no_handler() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def run() -> None:
        with interrupt_between_steps() as raise_if_asked:
            raise_if_asked()
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
