"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvledger.tools.cli import app

README = Path(__file__).parents[2] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "run.db").exists()


def test_the_output_in_the_readme_is_what_run_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = blocks("")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run"])
    assert result.exit_code == 0, result.output

    def comparable(text: str) -> list[str]:
        return [line.rstrip() for line in text.strip().splitlines() if not line.startswith("CPU time")]

    assert comparable(result.stdout) == comparable(shown)


def test_every_command_stands_in_the_readme() -> None:
    text = README.read_text()
    names = [
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    ]
    names += [group.name for group in app.registered_groups if group.name]
    assert names
    for name in names:
        assert f"`kvledger {name}" in text, name
