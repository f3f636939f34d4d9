"""Journals of every released format are read, replayed and verified as on the day they were made."""

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import Journal
from kvledger.journal.anchor import read_anchor
from kvledger.journal.audit import audit
from kvledger.journal.export import ExportedJournal, export_journal, verify_exported
from kvledger.journal.replay import replay
from kvledger.journal.verify import ChainTally

FIXTURES = Path(__file__).parent.parent / "fixtures"
FORMATS = (1, 2)
JOURNALS: dict[int, list[dict[str, Any]]] = {
    version: json.loads((FIXTURES / f"format-{version}.json").read_text()) for version in FORMATS
}
EVERY = [
    pytest.param(version, one, id=f"{version}-{one['token_policy']}")
    for version in FORMATS
    for one in JOURNALS[version]
]
FORMAT_1 = "9de2050782bf6b53d42d4acc7513ff4d416960bfb812dfbcc953ba67f1011018"
"""SHA-256 of the database of format 1, as it was first written."""


def judged(verdict: Any, expected: dict[str, Any]) -> None:
    assert verdict.verdict == expected["verdict"] == "pass"
    counts = verdict.counts.model_dump()
    assert {name: counts[name] for name in expected["counts"]} == expected["counts"]
    assert counts["recoveries_under_lock"] > 0
    assert counts["checkpoints_reproduced"] > 0
    assert counts["full_states_reproduced"] > 0


def test_the_fixture_of_format_1_is_the_one_that_was_released() -> None:
    assert hashlib.sha256((FIXTURES / "format-1.sqlite").read_bytes()).hexdigest() == FORMAT_1


@pytest.mark.parametrize(("version", "expected"), EVERY)
def test_a_database_of_every_format_replays(tmp_path: Path, version: int, expected: dict[str, Any]) -> None:
    # Opening may bring the tables up to date: the fixture itself stays as it is.
    path = shutil.copy(FIXTURES / f"format-{version}.sqlite", tmp_path / "run.db")
    anchor, _ = read_anchor(json.dumps(expected["anchor"]))
    assert anchor.version == version
    with Journal.open(path, create=False) as store:
        reader = store.reader(expected["journal"])
        assert (reader.info.token_policy, reader.info.format_version) == (expected["token_policy"], version)
        assert replay(reader.transactions()).state.digest() == expected["digest"]
        # Given the reader itself, replay begins at the last full state that is stored.
        from_checkpoint = replay(reader)
        assert from_checkpoint.checkpoint_seq in reader.checkpoint_seqs()
        assert from_checkpoint.state.digest() == expected["digest"]
        assert len(reader.checkpoint_seqs()) == expected["checkpoints_stored"] > 0
        tally = ChainTally()
        judged(audit(reader, chain=store.verify(expected["journal"], anchor=anchor, tally=tally)), expected)
        assert (tally.anchored, tally.proved) == (True, True)


@pytest.mark.parametrize("expected", JOURNALS[2], ids=[one["token_policy"] for one in JOURNALS[2]])
def test_durations_and_named_checkpoints_of_format_2_are_read(
    tmp_path: Path, expected: dict[str, Any]
) -> None:
    path = shutil.copy(FIXTURES / "format-2.sqlite", tmp_path / "run.db")
    with Journal.open(path, create=False) as store:
        reader = store.reader(expected["journal"])
        durations = [one.duration_us for one in reader.transactions()]
    assert None not in durations
    assert sum(one or 0 for one in durations) == expected["durations_us"] > 0
    query = "SELECT number, checkpoint_seq FROM transactions WHERE journal_id = ? AND checkpoint_seq NOT NULL"
    with closing(sqlite3.connect(path)) as file:
        named = file.execute(query + " ORDER BY number", (expected["journal"],)).fetchall()
    assert [list(one) for one in named] == expected["named"] != []


@pytest.mark.parametrize("version", FORMATS)
@pytest.mark.parametrize("folder", ["format-{}", "format-{}-parquet"])
def test_exported_files_of_every_format_replay(version: int, folder: str) -> None:
    expected = JOURNALS[version][0]
    exported = ExportedJournal.open(FIXTURES / folder.format(version))
    assert exported.facts.kvledger_export == exported.info.format_version == version
    assert replay(exported.transactions()).state.digest() == expected["digest"]
    anchor, _ = read_anchor(json.dumps(expected["anchor"]))
    tally = ChainTally()
    judged(audit(exported, chain=verify_exported(exported, anchor=anchor, tally=tally)), expected)
    assert (tally.anchored, tally.proved) == (True, True)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_journal_of_format_1_is_exported_today_as_it_was_then(tmp_path: Path, form: Any) -> None:
    path = shutil.copy(FIXTURES / "format-1.sqlite", tmp_path / "run.db")
    with Journal.open(path, create=False) as store:
        made = export_journal(store.reader(1), tmp_path / "out", form=form).path
    assert made is not None
    then = next((FIXTURES / ("format-1" if form == "jsonl" else "format-1-parquet")).glob(f"*.{form}"))
    if form == "jsonl":
        assert made.read_bytes() == then.read_bytes()
    now, old = ExportedJournal.open(made), ExportedJournal.open(then)
    assert [*now.pieces[0].cells()] == [*old.pieces[0].cells()]
    assert (now.facts, now.pieces[0].end) == (old.facts, old.pieces[0].end)


def test_the_same_workload_counts_the_same_under_every_policy_and_format() -> None:
    counts = [
        {name: count for name, count in one["counts"].items() if "full_states" not in name}
        for version in FORMATS
        for one in JOURNALS[version]
    ]
    assert counts == [counts[0]] * 6
