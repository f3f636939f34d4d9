"""`kvledger db` on each kind of database."""

import json
from pathlib import Path

import pytest

from kvledger.journal import Journal
from kvledger.journal.database import store_url
from kvledger.journal.migration import demigrate
from kvledger.journal.models import SCHEMA_REVISION, SCHEMA_TABLE
from kvledger.tools.cli import main
from tests.support.format_1 import OLD_SCHEMA, fill_with_format_1
from tests.support.stored_events import record, short_story
from tests.support.stores import change


def test_upgrade_makes_the_tables_of_a_server_and_current_tells_of_them(
    empty_database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "current", empty_database]) == 0
    assert "no tables of kvledger yet" in capsys.readouterr().out
    assert main(["audit", empty_database]) == 2
    assert "kvledger db upgrade" in capsys.readouterr().err
    for _ in range(2):
        assert main(["db", "upgrade", empty_database]) == 0
        assert f"has schema {SCHEMA_REVISION}" in capsys.readouterr().out
    with Journal.open(empty_database) as journal, journal.record(name="rank0") as recorder:
        for transaction in short_story():
            recorder.append(transaction)
    assert main(["db", "current", empty_database]) == 0
    out = capsys.readouterr().out
    assert f"schema {SCHEMA_REVISION}, the newest" in out
    assert "durable to seq            8  rank0" in out


def test_current_is_a_document_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal, journal.record(name="rank0") as recorder:
        recorder.append(record())
    assert main(["db", "current", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["revision"] == document["newest"] == SCHEMA_REVISION
    assert document["journals"] == [{"journal": 1, "name": "rank0", "durable_seq": 0, "number": 1}]


def test_current_tells_of_an_older_schema_whose_tables_are_the_newest_and_of_its_journals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.db")
    with Journal.open(path) as journal, journal.record(name="rank0") as recorder:
        recorder.append(record())
    demigrate(store_url(path), to="0002")
    assert main(["db", "current", path]) == 0
    out = capsys.readouterr().out
    assert f"has schema 0002, here the same as {SCHEMA_REVISION}, the newest" in out
    assert "rank0" in out


def test_current_of_a_missing_file_could_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "current", str(tmp_path / "run.db")]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_a_newer_version_is_told_from_one_that_can_be_upgraded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.db")
    fill_with_format_1(path)
    assert main(["db", "current", path]) == 0
    assert f"has schema {OLD_SCHEMA}; this version brings {SCHEMA_REVISION}" in capsys.readouterr().out
    assert main(["db", "upgrade", path]) == 0
    change(path, f"UPDATE {SCHEMA_TABLE} SET version_num = '9999'")
    capsys.readouterr()
    assert main(["db", "current", path]) == 0
    assert "has schema 9999, of a newer version" in capsys.readouterr().out
    for command in (
        ["db", "upgrade", path],
        ["audit", path],
        ["export", path, "--out", str(tmp_path / "out")],
    ):
        assert main(command) == 2
        assert "was written by a newer version: its schema is 9999" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_run_and_audit_work_on_a_server(postgresql_store: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--requests", "25", "--seed", "3", "--db", postgresql_store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["audit"]["verdict"] == "pass"
    assert main(["audit", postgresql_store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "pass"


@pytest.mark.parametrize(
    ("known", "said", "missing"),
    [
        (8, "nothing is missing up to seq 8", None),
        (5, "nothing is missing up to seq 5", None),
        (11, "not on disk: events 9 to 11, 3 that were accepted", [9, 11]),
    ],
)
def test_current_says_how_much_of_the_tail_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], known: int, said: str, missing: list[int] | None
) -> None:
    path = str(tmp_path / "run.db")
    with Journal.open(path) as journal, journal.record(name="rank0") as recorder:
        for transaction in short_story():
            recorder.append(transaction)
    assert main(["db", "current", path, "--last-seq", str(known)]) == 0
    assert said in capsys.readouterr().out
    assert main(["db", "current", path, "--last-seq", str(known), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["missing"] == missing


def test_a_run_with_a_key_it_cannot_use_makes_no_database(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    path = tmp_path / "run.db"
    arguments = ["run", "--requests", "2", "--db", str(path), "--token-key-file", str(key)]
    assert main([*arguments, "--tokens", "none"]) == 2
    assert capsys.readouterr().err
    assert not path.exists()
