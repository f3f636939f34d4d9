"""SIGTERM while recording: what was accepted is on disk before the signal takes its course."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import Evicted
from kvledger.journal import Journal
from kvledger.journal.drain import SigtermDrain
from tests.support.stored_events import record

SCRIPT = """
import os, signal, sys
from kvledger.core.events import Evicted
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal

def previous(number, frame):
    print("previous", recorder.durable_seq, flush=True)
    sys.exit(7)

if sys.argv[2] == "handler":
    signal.signal(signal.SIGTERM, previous)
if sys.argv[2] == "ignored":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
recorder = Journal.open(sys.argv[1]).record(durability="background", drain_on_sigterm=sys.argv[3] == "drain")

def append():
    recorder.append(TransactionRecord("op", None, [Evicted(0, 0, 0, 0)], bytearray(1)))

for _ in range(2_000):
    append()
os.kill(os.getpid(), signal.SIGTERM)
print("still here", recorder.durable_seq, flush=True)
os._exit(9)
"""


def run(path: Path, before: str, drain: str = "drain") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path), before, drain],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.strip()


def stored(path: Path) -> int:
    with Journal.open(path, create=False) as journal:
        return journal.reader().head().seq


@pytest.mark.parametrize(
    ("before", "status", "said"),
    [
        ("nothing", -signal.SIGTERM, ""),
        ("handler", 7, "previous 2000"),
        ("ignored", 9, "still here 2000"),
    ],
)
def test_at_sigterm_everything_accepted_is_stored_and_then_the_signal_goes_on(
    tmp_path: Path, before: str, status: int, said: str
) -> None:
    assert run(tmp_path / "run.db", before) == (status, said)
    assert stored(tmp_path / "run.db") == 2_000


def test_without_the_option_sigterm_ends_the_process_at_once(tmp_path: Path) -> None:
    assert run(tmp_path / "run.db", "nothing", "plain") == (-signal.SIGTERM, "")
    assert stored(tmp_path / "run.db") <= 2_000


@pytest.fixture
def restored_handler() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield before
    signal.signal(signal.SIGTERM, before)


def test_a_signal_in_the_middle_of_a_call_waits_for_its_end(restored_handler: Any) -> None:
    heard: list[str] = []
    signal.signal(signal.SIGTERM, lambda _number, _frame: heard.append("previous"))
    drain = SigtermDrain(lambda: heard.append("drained"))
    with drain:
        signal.raise_signal(signal.SIGTERM)
        assert heard == []
    assert heard == ["drained", "previous"]
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["drained", "previous"] * 2
    drain.remove()


def test_a_call_whose_end_an_interrupt_kept_from_running_puts_no_signal_off_for_good(
    restored_handler: Any,
) -> None:
    heard: list[str] = []
    signal.signal(signal.SIGTERM, lambda _number, _frame: heard.append("previous"))
    drain = SigtermDrain(lambda: heard.append("drained"))
    drain.__enter__()  # and no exit
    signal.raise_signal(signal.SIGTERM)
    assert heard == []
    with drain:
        assert heard == []
    assert heard == ["drained", "previous"]
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["drained", "previous"] * 2
    drain.remove()


def test_recorders_that_drain_are_chained_and_can_close_in_any_order(
    restored_handler: Any, tmp_path: Path
) -> None:
    heard: list[str] = []

    def previous(_number: int, _frame: Any) -> None:
        heard.append("previous")

    signal.signal(signal.SIGTERM, previous)
    with Journal.open(tmp_path / "run.db") as journal:
        first, second = (journal.record(durability="background", drain_on_sigterm=True) for _ in range(2))
        for made in (first, second):
            made.append(record(Evicted(0, 0, 0, 0)))
        signal.raise_signal(signal.SIGTERM)
        assert (first.durable_seq, second.durable_seq, heard) == (1, 1, ["previous"])
        first.close()
        second.append(record(Evicted(0, 0, 0, 0)))
        signal.raise_signal(signal.SIGTERM)
        assert (second.durable_seq, heard) == (2, ["previous"] * 2)
        second.close()
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["previous"] * 3


def test_draining_can_only_be_asked_for_on_the_main_thread(tmp_path: Path) -> None:
    raised: list[BaseException] = []

    def start(journal: Journal) -> None:
        try:
            journal.record(drain_on_sigterm=True)
        except InvalidArgument as error:
            raised.append(error)

    with Journal.open(tmp_path / "run.db") as journal:
        thread = threading.Thread(target=start, args=(journal,))
        thread.start()
        thread.join()
        assert len(raised) == 1
        assert journal.list() == ()
