"""What docs/embedding.md shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from kvledger.journal import Journal
from kvledger.tools.cli import app

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedding.md"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", DOCUMENT.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [code for found, code in fenced if found == language]


def run(code: str, folder: Path) -> str:
    arguments = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(arguments, cwd=folder, check=True, capture_output=True, text=True).stdout


def test_hybrid_models_share_prefixes_in_ten_lines_and_the_audit_passes(tmp_path: Path) -> None:
    shared, _, _ = blocks("python")
    (shown,) = blocks("")
    assert len([line for line in shared.splitlines() if line]) <= 10
    assert run(shared, tmp_path) == shown
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "kvledger-transformers.db")]).exit_code == 0


def test_the_engine_that_owns_its_memory_runs_and_the_audit_passes(tmp_path: Path) -> None:
    _, engine, _ = blocks("python")
    run(engine, tmp_path)
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "engine.db")]).exit_code == 0


def test_the_scheduler_that_keeps_its_own_rows_runs_and_the_audit_passes(tmp_path: Path) -> None:
    _, _, rows = blocks("python")
    run(rows, tmp_path)
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "rows.db")]).exit_code == 0
    with Journal.open(tmp_path / "rows.db", create=False) as journal:
        told = {transaction.op for transaction in journal.reader().transactions()}
    assert {"acquire", "alloc", "evict", "advance", "insert", "free_swa", "release_swa", "release"} <= told
