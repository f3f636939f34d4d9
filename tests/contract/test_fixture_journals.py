"""Journals of every released format are read, replayed and verified as on the day they were made."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import Journal
from kvledger.journal.anchor import read_anchor
from kvledger.journal.audit import audit
from kvledger.journal.export import ExportedJournal
from kvledger.journal.replay import replay

FIXTURES = Path(__file__).parent.parent / "fixtures"
JOURNALS = json.loads((FIXTURES / "format-1.json").read_text())


def judged(verdict: Any, expected: dict[str, Any]) -> None:
    assert verdict.verdict == expected["verdict"] == "pass"
    counts = verdict.counts.model_dump()
    assert {name: counts[name] for name in expected["counts"]} == expected["counts"]
    assert counts["recoveries_under_lock"] > 0
    assert counts["checkpoints_reproduced"] > 0
    assert counts["full_states_reproduced"] > 0


@pytest.mark.parametrize("expected", JOURNALS, ids=[one["token_policy"] for one in JOURNALS])
def test_a_database_of_format_1_replays(tmp_path: Path, expected: dict[str, Any]) -> None:
    # Opening may bring the tables up to date: the fixture itself stays as it is.
    path = shutil.copy(FIXTURES / "format-1.sqlite", tmp_path / "run.db")
    anchor, _ = read_anchor(json.dumps(expected["anchor"]))
    with Journal.open(path, create=False) as store:
        reader = store.reader(expected["journal"])
        assert reader.info.token_policy == expected["token_policy"]
        assert replay(reader.transactions()).state.digest() == expected["digest"]
        # Given the reader itself, replay begins at the last full state that is stored.
        from_checkpoint = replay(reader)
        assert from_checkpoint.checkpoint_seq in reader.checkpoint_seqs()
        assert from_checkpoint.state.digest() == expected["digest"]
        assert len(reader.checkpoint_seqs()) == expected["checkpoints_stored"] > 0
        chain = store.verify(expected["journal"], anchor=anchor)
        judged(audit(reader, chain=chain), expected)


def test_json_lines_of_format_1_replay() -> None:
    expected = JOURNALS[0]
    exported = ExportedJournal.open(FIXTURES / "format-1")
    assert replay(exported.transactions()).state.digest() == expected["digest"]
    judged(audit(exported, chain=exported.verify()), expected)


def test_the_same_workload_counts_the_same_under_every_policy() -> None:
    assert [one["counts"] for one in JOURNALS] == [JOURNALS[0]["counts"]] * 3
