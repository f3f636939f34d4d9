"""The process that an Inspector has for the past dies or never starts, or its scheduler dies before it."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kvledger.api import ApiSettings, Inspector
from kvledger.api.apart import process as own_process
from kvledger.api.apart.attempts import ATTEMPTS
from kvledger.api.apart.process import NICENESS
from kvledger.journal import Journal
from tests.support.inspected import DEADLINE_SECONDS, ask, inspected, kill, process_of

J = "/v1/journals/1"
PAST = f"{J}/tree?at=90"


def told(inspector: Inspector) -> tuple[str, str | None]:
    """What the service says of its process."""
    ready = ask(inspector, "/readyz").json
    return ready["own_process"], ready["own_process_problem"]


def metric(inspector: Inspector, name: str) -> float:
    (value,) = re.findall(rf"^kvledger_own_process_{name} (\S+)$", scrape(inspector), re.MULTILINE)
    return float(value)


def scrape(inspector: Inspector) -> str:
    return ask(inspector, "/metrics").body.decode()


def test_nobody_looks_and_no_process_is_started(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        assert ask(inspector, "/healthz").status == 200
        assert told(inspector) == ("idle", None)
        assert (metric(inspector, "up"), metric(inspector, "starts_total")) == (0, 0)


def test_one_that_was_killed_is_begun_anew_and_each_question_is_answered(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        first = ask(inspector, PAST)
        assert told(inspector) == ("up", None)
        pid = process.pid
        kill(process, more_attempts=1)
        # The first may find that it has ended, or begin another one; the second finds another one.
        assert ask(inspector, PAST) == ask(inspector, PAST) == first
        while process.phase != "up":
            assert ask(inspector, PAST) == first
        assert process.pid not in (None, pid)
        assert (metric(inspector, "up"), process.attempts.begun) == (1, 2)


def test_one_that_dies_too_often_stays_gone_and_the_service_says_so(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        first = ask(inspector, PAST)
        kill(process)
        for _ in range(3):
            assert ask(inspector, PAST) == first
        while process.phase == "up":
            assert ask(inspector, PAST) == first
        phase, problem = told(inspector)
        assert (phase, process.pid) == ("gone", None)
        assert problem is not None
        assert str(-signal.SIGKILL) in problem
        assert metric(inspector, "up") == 0
        assert metric(inspector, "missed_total") >= 3


def test_a_question_under_way_when_it_is_killed_is_answered_all_the_same(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        first = ask(inspector, PAST)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(ask(inspector, PAST)))
        asking.start()
        # The newest state is at hand while the other one stands still.
        assert ask(inspector, f"{J}/tree").status == 200
        kill(process)
        asking.join(DEADLINE_SECONDS)
        assert answers == [first]


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python", ""])
def test_one_that_does_not_start_leaves_the_questions_to_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(own_process, "get_executable", lambda: program)
    with inspected(tmp_path / "run.db") as (inspector, _):
        for _ in range(ATTEMPTS + 2):
            assert ask(inspector, PAST).status == 200
        begun = ask(inspector, f"{J}/audits", method="POST", body=b"{}")
        assert begun.status == 202
        assert ask(inspector, dict(begun.headers)["location"]).json["id"] == begun.json["id"]
        phase, problem = told(inspector)
        assert phase == "gone"
        assert "did not start" in str(problem)
        assert metric(inspector, "starts_total") == ATTEMPTS


def test_where_audits_had_to_run_in_the_schedulers_process_they_stay_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        with monkeypatch.context() as broken:
            broken.setattr(own_process, "get_executable", lambda: "/bin/false")
            here = ask(inspector, f"{J}/audits", method="POST", body=b"{}").json["id"]
        assert ask(inspector, PAST).status == 200
        assert process.phase == "up"
        listed = ask(inspector, f"{J}/audits").json["items"]
        assert [one["id"] for one in listed] == [here]


def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "START_SECONDS", 0.0)
    with inspected(tmp_path / "run.db") as (inspector, _):
        assert ask(inspector, PAST).status == 200
        assert told(inspector)[0] == "gone"


def test_it_is_asked_for_nothing_where_it_is_not_wanted(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db", own_process=False) as (inspector, _):
        assert ask(inspector, PAST).status == 200
        assert (inspector.own_process, told(inspector)) == (None, ("here", None))


def test_closing_the_inspector_ends_it_and_leaves_nothing_but_the_database(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        assert ask(inspector, PAST).status == 200
        pid = process.pid
        inspector.close()
        assert process.pid is None
        with pytest.raises(ChildProcessError):
            os.waitpid(pid or 0, os.WNOHANG)
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]


def test_closing_the_inspector_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        assert ask(inspector, f"{J}/pools").status == 200
        assert process.phase == "starting"
        inspector.close()
        assert (process.pid, process.phase) == (None, "gone")


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_neither_its_command_line_nor_its_environment_has_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "0123456789abcdef-secret"
    monkeypatch.setenv("KVLEDGER_TOKEN", token)
    with inspected(tmp_path / "run.db", settings=ApiSettings(port=0)) as (inspector, _):
        assert ask(inspector, PAST, Authorization=f"Bearer {token}").status == 200
        process = process_of(inspector)
        hiding = inspector.library.hide.shared()
        place = Path(f"/proc/{process.pid}")
        seen = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        for secret in (token, hiding["key"], hiding["mark"], "run.db", "KVLEDGER_"):
            assert secret.encode() not in seen, secret
        mine = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid or 0) == min(19, mine + NICENESS)


SCHEDULER = """
import os, signal, sys, threading, urllib.request
from kvledger.api import Inspector
from kvledger.core import HybridCache
from kvledger.journal import Journal
from tests.support.inspected import CONFIG, serve_some

recorder = Journal.open(sys.argv[1]).record()
serve_some(HybridCache(CONFIG, sink=recorder))
recorder.flush()
inspector = Inspector.attach(recorder)
timeline = inspector.library.opened(1).timeline
timeline.wait_beyond(int(recorder.durable_seq) - 1, 60)
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/tree?at=90").read()
print(inspector.own_process.phase, flush=True)
"""
"""What a scheduler's process begins with, that ends as its test says."""

ENDS = {
    "left": "os._exit(3)",
    "failed": "raise SystemExit(3)",
    "closed": "inspector.close(); recorder.close()",
    "killed while an audit runs": """
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/audits", data=b"").read()
os.kill(os.getpid(), signal.SIGKILL)
""",
    "killed, with a child that was forked and lives on": """
if not os.fork():
    os.close(1), os.close(2)
    os.read(0, 1)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
""",
    "over, after a child that was forked": """
if not os.fork():
    sys.exit(0)
os.wait()
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/tree?at=80").read()
assert inspector.own_process.phase == "up"
recorder.close()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_it_ends_with_the_scheduler_however_that_ends(tmp_path: Path, end: str) -> None:
    # It has the scheduler's stderr: while it lives, that has no end.
    scheduler = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error::ResourceWarning",
            "-c",
            SCHEDULER + ENDS[end],
            str(tmp_path / "run.db"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    with scheduler:
        assert scheduler.stdout is not None
        assert scheduler.stderr is not None
        lines = scheduler.stdout.readline()
        reader = threading.Thread(target=lambda: said.append(scheduler.stderr.read()))  # type: ignore[union-attr]
        said: list[str] = []
        reader.start()
        reader.join(DEADLINE_SECONDS)
        assert not reader.is_alive(), "the process outlived its scheduler"
        assert (lines, said) == ("up\n", [""])


def test_a_scheduler_may_go_elsewhere_or_stand_in_a_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with inspected("run.db") as (inspector, _):
        monkeypatch.chdir(tmp_path / "elsewhere")
        begun = ask(inspector, f"{J}/audits", method="POST", body=b"{}")
        assert (begun.status, process_of(inspector).missed) == (202, 0)
        monkeypatch.chdir(tmp_path)
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").rmdir()
    try:
        with inspected(tmp_path / "other.db") as (inspector, _):
            assert ask(inspector, PAST).status == 200
            assert process_of(inspector).missed == 0
    finally:
        os.chdir(tmp_path)


def test_an_interrupt_from_the_terminal_is_the_schedulers_matter(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        first = ask(inspector, PAST)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGINT)
        assert ask(inspector, PAST) == first
        assert (process.phase, process.missed, process.attempts.begun) == ("up", 0, 1)


def test_what_is_there_when_it_dies_is_a_journal_as_good_as_before(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        assert ask(inspector, PAST).status == 200
        kill(process_of(inspector))
    with Journal.open(tmp_path / "run.db", create=False) as store:
        assert list(store.verify()) == []
