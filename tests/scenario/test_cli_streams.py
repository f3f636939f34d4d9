"""The program and the streams around it: closed pipes, full disks and SIGINT change no verdict silently."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kvledger.journal import Journal
from kvledger.tools.cli import main

PROGRAM = [sys.executable, "-m", "kvledger.tools"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run.db"
    assert main(["run", "--requests", "6", "--durability", "background", "--db", str(path), "--json"]) == 0
    return path


@pytest.fixture(scope="module")
def changed(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database with one byte changed."""
    path = tmp_path_factory.mktemp("cli") / "changed.db"
    source, target = sqlite3.connect(database), sqlite3.connect(path)
    source.backup(target)
    target.execute("UPDATE transactions SET op = 'commiT' WHERE number = 3")
    target.commit()
    source.close()
    target.close()
    return path


def with_a_reader_that_left(*arguments: object, unbuffered: bool) -> tuple[int, str]:
    """Exit status and stderr of a command whose stdout is a pipe that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1" if unbuffered else ""},
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("form", "unbuffered"), [([], True), (["--json"], False)])
def test_a_command_returns_its_own_status_to_whoever_stopped_reading(
    database: Path, changed: Path, form: list[str], unbuffered: bool
) -> None:
    assert with_a_reader_that_left("audit", database, *form, unbuffered=unbuffered) == (0, "")
    assert with_a_reader_that_left("audit", changed, *form, unbuffered=unbuffered) == (1, "")


def test_a_page_of_many_writes_goes_on_without_its_reader(database: Path, tmp_path: Path) -> None:
    assert with_a_reader_that_left("show", "tree", database, unbuffered=True) == (0, "")
    path = tmp_path / "new.db"
    assert with_a_reader_that_left("run", "--requests", "3", "--db", path, unbuffered=False) == (0, "")
    assert main(["audit", str(path)]) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("command", [["audit"], ["show", "tree"]])
def test_output_that_cannot_be_written_is_said_in_one_sentence(database: Path, command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, *command, str(database)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "kvledger: the output cannot be written: No space left on device\n"


def test_a_command_without_stdout_still_has_a_status(changed: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *PROGRAM, "audit", str(changed)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")


def test_sigint_closes_the_journal_and_says_how_far_it_reaches(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with subprocess.Popen(
        [*PROGRAM, "run", "--requests", "100000", "--no-verify-kv", "--db", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for_events(path, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    said = re.fullmatch(
        rf"kvledger: interrupted; journal 1 in {re.escape(str(path))} is durable to seq (\d+); "
        rf"`kvledger audit {re.escape(str(path))}` reads it\n",
        err,
    )
    assert said, err
    with Journal.open(path, create=False) as journal:
        assert journal.reader().head().seq == int(said[1]) > 0
    assert main(["audit", str(path)]) == 0


def test_sigterm_ends_a_run_whose_journal_is_whole_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    arguments = ["run", "--requests", "100000", "--no-verify-kv", "--durability", "background"]
    with subprocess.Popen(
        [*PROGRAM, *arguments, "--db", str(path)], stderr=subprocess.DEVNULL, text=True
    ) as process:
        wait_for_events(path, process)
        process.terminate()
    assert process.returncode == -signal.SIGTERM
    with Journal.open(path, create=False) as journal:
        assert journal.reader().head().seq > 0
    assert main(["audit", str(path)]) == 0


def wait_for_events(path: Path, process: subprocess.Popen[str]) -> None:
    """Look now and then until the run has stored something. One that ended instead has failed."""
    while not has_ended(process):
        if path.exists():
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            try:
                if connection.execute("SELECT count(*) FROM transactions").fetchone()[0] > 50:
                    return
            except sqlite3.OperationalError:
                continue  # The tables are not there yet.
            finally:
                connection.close()
    pytest.fail(f"the run ended by itself with status {process.returncode}")


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Waits a little for its end: whoever looks all the time takes from what the process needs to get on."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(0.02)
    return process.returncode is not None


def test_the_program_tells_its_version_and_runs_as_a_module() -> None:
    done = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"kvledger \d+\.\d+\.\d+\S*\n", done.stdout)
