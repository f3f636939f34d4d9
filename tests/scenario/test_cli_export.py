"""Export, prune, audit and replay on the command line: a journal leaves its database and stays whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import Journal
from kvledger.tools.cli import main
from tests.support.recorded_run import record_run, small_run


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal:
        record_run(journal, small_run(30), checkpoint_every=200)
    return path


def document(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> Any:
    assert main([*map(str, arguments), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([*map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_journal_moves_to_files_and_stays_whole(
    database: Path, tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    before = document(capsys, "replay", database, "--at", 300)
    whole = document(capsys, "audit", database)
    document(capsys, "export", database, "--format", form, "--out", folder, "--upto", 100)
    assert "would go" in refused(capsys, "prune", database, "--before", 500, "--exported", folder)
    exported = document(capsys, "export", database, "--format", form, "--out", folder)
    assert exported["seq"] == whole["counts"]["events"]
    pruned = document(capsys, "prune", database, "--before", 500, "--exported", folder)
    assert 200 < pruned["seq"] < 500
    again = document(capsys, "prune", database, "--before", 500, "--exported", folder)
    assert again["events"] == 0

    alone = document(capsys, "audit", database, status=1)
    assert (alone["verdict"], alone["checkpoint_seq"]) == ("unverified", pruned["seq"])
    assert document(capsys, "audit", folder)["verdict"] == "pass"
    both = document(capsys, "audit", database, "--exported", folder)
    assert both["counts"] == whole["counts"]
    for where in ([folder], [database, "--exported", folder]):
        now = document(capsys, "replay", *where, "--at", 300)
        assert (now["seq"], now["digest"]) == (before["seq"], before["digest"])
    assert "were pruned" in refused(capsys, "replay", database, "--at", 100)
    assert document(capsys, "export", database, "--out", folder)["file"] is None


def test_what_cannot_be_is_refused_in_a_sentence(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no journal" in refused(capsys, "audit", tmp_path / "empty")
    assert "no exported journal" in refused(capsys, "audit", tmp_path / "mine.parquet")
    (tmp_path / "mine.jsonl").write_text("{}\n{}\n")
    assert "does not say" in refused(capsys, "replay", tmp_path / "mine.jsonl")
    assert "no folder" in refused(capsys, "export", database, "--out", database)
    assert "no full state stands" in refused(
        capsys, "prune", database, "--before", 1, "--exported", tmp_path / "empty"
    )
    refused(capsys, "export", database, "--out", tmp_path / "x", "--format", "csv")
    assert "holds no journal" in refused(capsys, "audit", tmp_path / "empty", "--chain")


def test_a_part_that_was_not_verified_is_no_pass(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    document(capsys, "export", database, "--out", folder, "--upto", 150)
    document(capsys, "export", database, "--out", folder)
    first = min(folder.iterdir())
    first.unlink()
    verdict = document(capsys, "audit", folder, status=1)
    assert (verdict["verdict"], verdict["gaps"][0]["dropped"]) == ("unverified", 0)
