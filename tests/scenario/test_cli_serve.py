"""`kvledger serve`: from the address it prints to the signal that ends it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from kvledger.journal import Journal
from kvledger.tools.cli import main
from tests.support.service import DEADLINE_SECONDS, library_over, recorded, served

TOKEN = "a-token-nobody-guesses"
EXTRA = (
    "fastapi",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "pydantic_settings",
    "sse_starlette",
    "limits",
)
"""What the extra `api` brings."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("serve"))


IN_THE_BACKGROUND = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Begins a program as a shell without job control does with an `&` behind it: SIGINT is ignored."""


@contextmanager
def begun(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command in a process of its own, and the first line that it prints."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "", **environment},
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def serve(database: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "kvledger.tools", "serve", str(database), "--port", "0", *options]


@contextmanager
def serving(database: Path, *options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service, and the address that it printed."""
    with begun(serve(database, *options), environment) as running:
        yield running


WITHOUT_THE_EXTRA = f"""
import contextlib, io, json, sys
for name in {EXTRA!r}: sys.modules[name] = None
from kvledger.tools.cli import main
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(arguments)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""


def without_the_extra(*commands: Sequence[str]) -> list[tuple[int, str, str]]:
    """Status, stdout and stderr of each command where the packages of the extra cannot be imported."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_EXTRA, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=True,
    )
    assert done.stderr == ""
    return [(status, out, err) for status, out, err in map(json.loads, done.stdout.splitlines())]


@pytest.mark.parametrize("through", [(), IN_THE_BACKGROUND], ids=["here", "in the background"])
def test_it_prints_its_address_answers_and_ends_when_it_is_interrupted(
    database: Path, through: tuple[str, ...]
) -> None:
    with begun([*through, *serve(database)], {}) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{url}/readyz").status_code == 200
        assert httpx.get(f"{url}/v1/journals").json()["items"][0]["name"] == "small"
        with httpx.stream("GET", f"{url}/v1/journals/1/events/stream") as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            for _ in lines:
                pass
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, out, err) == (130, "", "kvledger: interrupted\n")


def test_its_token_comes_from_a_file_or_the_environment_and_is_never_printed(
    database: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nmore\n", encoding="utf-8")
    for options, environment in (
        (["--host", "0.0.0.0", "--token-file", str(file)], {}),
        (["--host", "0.0.0.0"], {"KVLEDGER_TOKEN": TOKEN}),
        ([], {"KVLEDGER_TOKEN": TOKEN, "KVLEDGER_HOST": "0.0.0.0"}),
    ):
        with serving(database, *options, **environment) as (process, url):
            assert url.startswith("http://127.0.0.1:"), "an address that nobody can open"
            assert httpx.get(f"{url}/v1/journals").status_code == 401
            assert httpx.get(f"{url}/?token={TOKEN}").status_code == 303
            assert httpx.get(f"{url}/?token={TOKEN}x").status_code == 401
            known = {"Authorization": f"Bearer {TOKEN}"}
            assert httpx.get(f"{url}/v1/journals", headers=known).status_code == 200
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert TOKEN not in out + err
        assert "listens at every address of this machine (0.0.0.0)" in err


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        (["--host", "0.0.0.0"], {}, "not a loopback address"),
        (["--host", "::"], {}, "not a loopback address"),
        (["--token-file", "/no/such/file"], {}, "cannot be read"),
        ([], {"KVLEDGER_TOKEN": "tooshort"}, "characters"),
        ([], {"KVLEDGER_TOKEN": ""}, "characters"),
        (["--host", "no such host"], {"KVLEDGER_TOKEN": TOKEN}, "cannot listen"),
        (["--journal", "9"], {}, "holds no journal 9"),
        ([], {"KVLEDGER_PORT": "many"}, "port"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence_before_it_listens(
    database: Path,
    options: list[str],
    environment: dict[str, str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    port = [] if "KVLEDGER_PORT" in environment else ["--port", "0"]
    assert main(["serve", str(database), *port, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.startswith("kvledger: ")
    assert err.count("\n") == 1
    assert "tooshort" not in err


def test_a_database_without_a_journal_is_served_and_said_to_have_none(tmp_path: Path) -> None:
    Journal.open(tmp_path / "empty.db").close()
    with serving(tmp_path / "empty.db") as (process, url):
        assert httpx.get(f"{url}/readyz").status_code == 200
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    # Of one that has a journal nothing is said: the first test here knows all that comes.
    assert "holds no journal yet" in err


def test_a_database_that_is_not_there_is_refused_and_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "none.db")]) == 2
    assert "none.db" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_taken_is_refused(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with library_over(database) as library, served(library) as service:
        assert main(["serve", str(database), "--port", service.url.rpartition(":")[2]]) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_without_the_packages_it_says_what_to_install_and_every_other_command_works(database: Path) -> None:
    name = str(database)
    refused, *others = without_the_extra(
        ["serve", name], ["audit", name], ["events", name, "--limit", "1"], ["--help"]
    )
    assert refused == (
        2,
        "",
        "kvledger: the service needs more packages: pip install 'kvledger[api]' (fastapi is missing)\n",
    )
    assert len(others) == 3
    for status, _, err in others:
        assert status == 0, err
        assert "kvledger:" not in err
