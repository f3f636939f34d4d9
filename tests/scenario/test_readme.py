"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvledger.journal import Journal
from kvledger.tools.cli import app
from kvledger.tools.cli.show import show_app

README = Path(__file__).parents[2] / "README.md"

EACH_ALONE = """
import sys
for code in sys.argv[1:]:
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})
"""
"""Programs, each with names of its own, in one process."""


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [code for found, code in fenced if found == language]


def printed(code: str, folder: Path) -> str:
    arguments = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_code_of_the_readme_runs(tmp_path: Path) -> None:
    scheduler, layout, _, _ = blocks("python")
    arguments = [sys.executable, "-W", "error", "-c", EACH_ALONE, scheduler, layout]
    subprocess.run(arguments, cwd=tmp_path, check=True)
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "run.db")]).exit_code == 0
    with Journal.open(tmp_path / "run.db", create=False) as journal:
        told = {(t.op, t.request_id) for t in journal.reader().transactions()}
    # The way round OutOfSlots was taken, and the audit has a checkpoint to reproduce.
    assert {("retract", "r2"), ("refresh", "r2"), ("commit", "r1"), ("checkpoint", None)} <= told


def test_the_inspector_of_the_readme_says_where_it_is_and_leaves_a_sound_journal(tmp_path: Path) -> None:
    inspector = blocks("python")[2]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+\n", printed(inspector, tmp_path))
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "live.db")]).exit_code == 0


def test_the_ten_lines_of_the_readme_share_prefixes_as_shown(tmp_path: Path) -> None:
    batching = blocks("python")[3]
    assert len([line for line in batching.splitlines() if line]) <= 10
    assert printed(batching, tmp_path) == blocks("")[1]
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "kvledger-transformers.db")]).exit_code == 0


def test_the_output_in_the_readme_is_what_run_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, _ = blocks("")
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
    row = next(line for line in text.splitlines() if line.startswith("| `kvledger show"))
    for command in show_app.registered_commands:
        assert f"{command.name}`" in row, command.name
