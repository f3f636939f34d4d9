"""What docs/embedding.md shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from kvledger.journal import Journal
from kvledger.tools.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "embedding.md"
README = ROOT / "README.md"

EACH_ALONE = """
import sys
for code in sys.argv[1:]:
    exec(compile(code, "block", "exec"), {"__name__": "__main__"})
"""


def blocks(language: str, document: Path = DOCUMENT) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [code for found, code in fenced if found == language]


def run(*codes: str, folder: Path) -> None:
    """Each of the programs with names of its own, in one process."""
    subprocess.run([sys.executable, "-W", "error", "-c", EACH_ALONE, *codes], cwd=folder, check=True)


def test_hybrid_models_share_prefixes_in_the_ten_lines_that_the_readme_shows_and_runs() -> None:
    shared, _, _ = blocks("python")
    (shown,) = blocks("")
    # test_readme.py runs them: ten lines at most, this output, and a journal that passes the audit.
    assert shared == blocks("python", README)[3]
    assert shown == blocks("", README)[1]


def test_the_engine_and_the_scheduler_with_its_own_rows_run_and_the_audit_passes(tmp_path: Path) -> None:
    _, engine, rows = blocks("python")
    run(engine, rows, folder=tmp_path)
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "engine.db")]).exit_code == 0
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "rows.db")]).exit_code == 0
    with Journal.open(tmp_path / "rows.db", create=False) as journal:
        told = {transaction.op for transaction in journal.reader().transactions()}
    assert {"acquire", "alloc", "evict", "advance", "insert", "free_swa", "release_swa", "release"} <= told
