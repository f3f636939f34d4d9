"""What is said where a package of an extra is missing: one sentence that names the extra, no traceback."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli import extras, main

ROOT = Path(__file__).parents[2]
PYPROJECT = ROOT / "pyproject.toml"
DEADLINE_SECONDS = 60.0


def test_every_package_of_every_extra_is_known() -> None:
    brought = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    names = {
        requirement.partition(">")[0].partition("[")[0].replace("-", "_"): extra
        for extra, requirements in brought.items()
        if extra not in ("dev", "fuzz")  # what no command needs
        for requirement in requirements
    }
    assert names == extras.EXTRAS


def test_a_package_that_a_command_meets_late_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg.pq'", name="psycopg.pq")

    monkeypatch.setattr("kvledger.tools.torture.kill.kill_repeatedly", missing)
    assert main(["torture", "kill", "--runs", "1"]) == 2
    sentence = "kvledger: this needs more packages: pip install 'kvledger[postgres]' (psycopg is missing)\n"
    assert capsys.readouterr() == ("", sentence)


def test_a_module_of_our_own_that_is_missing_is_a_fault_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'kvledger.gone'", name="kvledger.gone")

    monkeypatch.setattr("kvledger.tools.torture.kill.kill_repeatedly", missing)
    assert main(["torture", "kill", "--runs", "1"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_server_of_its_own_is_not_started_for_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []

    def start() -> None:
        started.append("server")
        raise InvalidArgument("no server here")

    monkeypatch.setattr("kvledger.tools.torture.kill.start_server", start)
    asked = ["torture", "kill", "--engine", "postgresql"]
    assert main(asked) == 2
    assert (started, capsys.readouterr().err) == (["server"], "kvledger: no server here\n")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert main(asked) == 2
    assert started == ["server"]
    said = capsys.readouterr().err
    assert said.startswith("kvledger: PostgreSQL needs psycopg")
    assert said.endswith("pip install 'kvledger[postgres]'\n")


def test_the_import_of_the_service_names_the_extra() -> None:
    code = "import sys\nsys.modules['fastapi'] = None\nfrom kvledger.api import Inspector"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 1
    sentence = "kvledger.api needs more packages: pip install 'kvledger[api]' (fastapi is missing)"
    assert done.stderr.endswith(f"ModuleNotFoundError: {sentence}\n")


def test_what_a_person_is_to_type_is_quoted_where_it_names_an_extra() -> None:
    """Of brackets that are not quoted zsh makes a pattern, and finds no file that matches."""
    bare = re.compile(r"pip install (?:-\S+ )*[\w.-]+\[")
    folders = ("core", "journal", "api", "tools", "docs")
    files = [path for folder in folders for form in ("*.py", "*.md") for path in (ROOT / folder).rglob(form)]
    files += ROOT.glob("*.md")
    assert [path for path in files if bare.search(path.read_text(encoding="utf-8"))] == []
