"""The process that an Inspector has for the past dies, hangs or never starts: each question is answered."""

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.api import Inspector
from kvledger.api.apart import OwnProcess, link
from kvledger.api.apart import process as own_process
from kvledger.api.apart.attempts import ATTEMPTS, Attempts
from kvledger.api.apart.process import NICENESS
from kvledger.core import HybridCache
from kvledger.journal import Journal, interpreter
from tests.support.inspected import (
    CONFIG,
    DEADLINE_SECONDS,
    Answer,
    ask,
    inspected,
    kill,
    process_of,
    serve_some,
)

J = "/v1/journals/1"
PAST = f"{J}/tree?at=90"
TOKEN = "0123456789abcdef-secret"


@pytest.fixture(scope="module", autouse=True)
def _with_a_token() -> Iterator[None]:
    """Every service here has a token, by the environment."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KVLEDGER_TOKEN", TOKEN)
        yield


@pytest.fixture(scope="module")
def service(
    _with_a_token: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Inspector, Path]]:
    """One service, and its database, for whatever can be begun anew: to start a process takes seconds."""
    path = tmp_path_factory.mktemp("ends") / "run.db"
    with inspected(path) as (inspector, _):
        yield inspector, path


def put(inspector: Inspector, address: str = PAST, *, body: bytes | None = None) -> Answer:
    """A question by somebody who has the token, a POST where it has a body."""
    method = "GET" if body is None else "POST"
    return ask(inspector, address, method=method, body=body, Authorization=f"Bearer {TOKEN}")


def up(inspector: Inspector) -> tuple[OwnProcess, Answer]:
    """The process once it answers, started anew where it is gone, and what it answers."""
    process = process_of(inspector)
    process.attempts = Attempts()
    before = process.answered
    while process.answered == before:
        first = put(inspector)
    assert first.status == 200
    return process, first


def told(inspector: Inspector) -> tuple[str, str | None]:
    """What the service says of its process."""
    ready = put(inspector, "/readyz").json
    return ready["own_process"], ready["own_process_problem"]


def metric(inspector: Inspector, name: str) -> float:
    text = put(inspector, "/metrics").body.decode()
    (value,) = re.findall(rf"^kvledger_own_process_{name} (\S+)$", text, re.MULTILINE)
    return float(value)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_neither_its_command_line_nor_its_environment_has_a_secret(service: tuple[Inspector, Path]) -> None:
    inspector, _ = service
    process, _ = up(inspector)
    hiding = inspector.library.hide.shared()
    place = Path(f"/proc/{process.pid}")
    seen = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
    for secret in (TOKEN, hiding["key"], hiding["mark"], "run.db", "KVLEDGER_"):
        assert secret.encode() not in seen, secret
    mine = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, process.pid or 0) == min(19, mine + NICENESS)


def test_an_interrupt_from_the_terminal_is_the_schedulers_matter(service: tuple[Inspector, Path]) -> None:
    inspector, _ = service
    process, first = up(inspector)
    missed, pid = process.missed, process.pid
    assert pid is not None
    os.kill(pid, signal.SIGINT)
    assert put(inspector) == first
    assert (process.phase, process.missed, process.pid) == ("up", missed, pid)


def test_one_that_was_killed_is_begun_anew_and_each_question_is_answered(
    service: tuple[Inspector, Path],
) -> None:
    inspector, _ = service
    process, first = up(inspector)
    assert told(inspector) == ("up", None)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(put(inspector)))
    asking.start()
    # The newest state is at hand while the other one stands still.
    assert put(inspector, f"{J}/tree").status == 200
    kill(process, more_attempts=1)
    asking.join(DEADLINE_SECONDS)
    assert answers == [first], "the question under way"
    # The first may find that it has ended, or begin another one; the second finds another one.
    assert put(inspector) == put(inspector) == first
    # It counts as up until its end was waited for, and until then nothing is begun.
    while process.phase != "up" or process.pid == pid:
        assert put(inspector) == first
    assert process.pid not in (None, pid)
    assert (metric(inspector, "up"), process.attempts.begun) == (1, 2)


def test_one_that_hangs_is_killed_and_one_that_ends_too_often_stays_gone_which_the_service_says(
    service: tuple[Inspector, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector, path = service
    process, first = up(inspector)
    monkeypatch.setattr(link, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(own_process, "END_SECONDS", 0.0)
    process.attempts = Attempts(limit=1)
    assert process.attempts.begin()
    assert process.pid is not None
    missed = process.missed
    os.kill(process.pid, signal.SIGSTOP)
    for _ in range(3):
        assert put(inspector) == first
    while process.phase == "up":
        assert put(inspector) == first
    assert told(inspector) == ("gone", f"it ended with status {-signal.SIGKILL}")
    assert process.pid is None
    assert metric(inspector, "up") == 0
    assert metric(inspector, "missed_total") >= missed + 3
    # What is there when it is killed is a journal as good as before.
    with Journal.open(path, create=False) as store:
        assert list(store.verify()) == []


def test_nobody_looks_and_no_process_is_started(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        assert put(inspector, "/healthz").status == 200
        assert told(inspector) == ("idle", None)
        assert (metric(inspector, "up"), metric(inspector, "starts_total")) == (0, 0)


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python", ""])
def test_one_that_does_not_start_leaves_the_questions_to_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(interpreter, "get_executable", lambda: program)
    with inspected(tmp_path / "run.db") as (inspector, _):
        for _ in range(ATTEMPTS + 2):
            assert put(inspector, PAST).status == 200
        begun = put(inspector, f"{J}/audits", body=b"{}")
        assert begun.status == 202
        assert put(inspector, dict(begun.headers)["location"]).json["id"] == begun.json["id"]
        phase, problem = told(inspector)
        assert phase == "gone"
        assert "did not start" in str(problem)
        assert metric(inspector, "starts_total") == ATTEMPTS


def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "START_SECONDS", 0.0)
    monkeypatch.setattr(own_process, "END_SECONDS", 0.0)
    with inspected(tmp_path / "run.db") as (inspector, _):
        assert put(inspector, PAST).status == 200
        assert told(inspector)[0] == "gone"


def test_it_is_asked_for_nothing_where_it_is_not_wanted(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db", own_process=False) as (inspector, _):
        assert put(inspector, PAST).status == 200
        assert (inspector.own_process, told(inspector)) == (None, ("here", None))


def test_closing_the_inspector_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    with inspected(tmp_path / "run.db") as (inspector, _):
        process = process_of(inspector)
        assert put(inspector, f"{J}/pools").status == 200
        assert process.phase == "starting"
        inspector.close()
        assert (process.pid, process.phase) == (None, "gone")


def test_a_scheduler_may_go_elsewhere_and_closing_its_inspector_leaves_nothing_but_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Journal.open("run.db") as journal, journal.record() as recorder:
        serve_some(HybridCache(CONFIG, sink=recorder))
        recorder.flush()
        monkeypatch.chdir(tmp_path / "elsewhere")
        # Where it stands when it is inspected is no folder any more.
        (tmp_path / "elsewhere").rmdir()
        try:
            with Inspector.attach(recorder) as inspector:
                timeline = inspector.library.opened(1).timeline
                last = int(recorder.durable_seq)
                assert timeline.wait_beyond(last - 1, DEADLINE_SECONDS) >= last
                process = process_of(inspector)
                with monkeypatch.context() as broken:
                    broken.setattr(interpreter, "get_executable", lambda: "/bin/false")
                    here = put(inspector, f"{J}/audits", body=b"{}").json["id"]
                assert put(inspector, f"{J}/tree").status == put(inspector).status == 200
                assert (process.phase, process.missed) == ("up", 1)
                # Where audits had to run in the scheduler's process they stay there.
                listed = put(inspector, f"{J}/audits").json["items"]
                assert [one["id"] for one in listed] == [here]
                pid = process.pid
            assert process.pid is None
            with pytest.raises(ChildProcessError):
                os.waitpid(pid or 0, os.WNOHANG)
        finally:
            os.chdir(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]
