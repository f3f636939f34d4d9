"""Runs tests in forked copies of one process that has imported and collected everything.

A copy costs some ten milliseconds, where a start of pytest costs seconds. It runs chosen tests until the
first fails and tells its parent through its exit status; whatever it did to the code ends with it. Fixtures
of a session are made in each copy anew.
"""

import os
import pickle
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.live import Live
from tests.mutation.operators import Mutant

CPU_SECONDS = 5
TIMES = 10
"""A test on a mutant has so many seconds of CPU and so many times what it takes on the right code."""

WALL_SECONDS = 240
"""For a mutant that waits for something that does not come."""

MEMORY_BYTES = 6 << 30
"""Address space of a copy; a mutant that allocates without end is stopped by it."""

BROKE_DOWN = 70
"""Exit status of a copy in which the tool, not a test, failed."""

Outcome = Literal["killed", "timeout", "survived"]


@dataclass(frozen=True)
class Trial:
    """What became of a mutant: `by` is the test that failed, or was running when the time was up."""

    outcome: Outcome
    by: str
    tests: int
    cpu_s: float


class Copies:
    """Forks this process, one copy at a time."""

    def __init__(self, session: pytest.Session, live: Live) -> None:
        self._live = live
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._scratch = factory.getbasetemp()

    def reached(self, item: pytest.Item) -> tuple[set[tuple[str, int]], float]:
        """The statements that a test runs, and the seconds of CPU it takes. It has to pass."""

        def look() -> object:
            hits = self._live.watch()
            return run(item, None), hits

        (failed, hits), cpu = self._ask(look)
        assert not failed, f"{item.nodeid} fails on the right code:\n{failed}"
        return hits, cpu

    def tried(self, mutant: Mutant, items: Sequence[pytest.Item], cost: Mapping[str, float]) -> Trial:
        """Run tests, each of a known cost in seconds, against a mutant until one fails."""
        reader, writer = os.pipe()

        def work() -> int:
            self._live.plant(mutant)
            for index, item in enumerate(items):
                os.write(writer, index.to_bytes(2, "big"))
                signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS + TIMES * cost[item.nodeid])
                following = items[index + 1] if index + 1 < len(items) else None
                if run(item, following):
                    return 1
            return 0

        status, cpu = self._fork(work)
        os.close(writer)
        begun = b""
        while more := os.read(reader, 1 << 16):
            begun += more
        os.close(reader)
        last = int.from_bytes(begun[-2:], "big")
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return Trial("survived", "", len(items), cpu)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == BROKE_DOWN:
            raise RuntimeError(f"the tool failed on {mutant}")
        ended = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGKILL)
        return Trial("timeout" if ended else "killed", items[last].nodeid, last + 1, cpu)

    def _ask(self, work: Callable[[], object]) -> tuple[tuple[str, set[tuple[str, int]]], float]:
        path = self._scratch / "answer"

        def tell() -> int:
            answer = work()
            path.write_bytes(pickle.dumps(answer))
            return 0

        status, cpu = self._fork(tell)
        assert status == 0, f"a copy ended with status {status}"
        return pickle.loads(path.read_bytes()), cpu

    def _fork(self, work: Callable[[], int]) -> tuple[int, float]:
        """Exit status of a copy that did `work`, and the CPU seconds it used."""
        child = os.fork()
        if not child:
            _work(work)
        began = time.monotonic()
        while True:
            done, status, used = os.wait4(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() - began > WALL_SECONDS:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.005)
        for left in self._scratch.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
        return status, used.ru_utime + used.ru_stime


def _work(work: Callable[[], int]) -> NoReturn:
    status = BROKE_DOWN
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def run(item: pytest.Item, following: pytest.Item | None) -> str:
    """Run one test with its fixtures; returns what failed, or nothing."""
    for report in runtestprotocol(item, log=False, nextitem=following):
        if report.failed:
            return str(report.longrepr)
    return ""
