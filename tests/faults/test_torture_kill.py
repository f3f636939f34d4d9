"""A recorder that is killed loses nothing that was durable: the bounded form of `kvledger torture kill`."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.journal import ChainHead, Journal, JournalReader
from kvledger.tools.cli import main
from kvledger.tools.torture.kill import KillSetup, kill_repeatedly
from tests.support.stored_events import allocated, opened, record

RUNS = 2


@pytest.mark.parametrize("durability", ["step", "commit", "background"])
def test_a_killed_recorder_loses_no_durable_event_and_leaves_a_journal_that_passes(
    store: str, durability: Any
) -> None:
    Journal.open(store).close()
    engine: Any = "sqlite" if store.startswith("sqlite") else "postgresql"
    summary = kill_repeatedly(KillSetup(RUNS, engine, durability, seed=3, url=store))
    assert summary.faults == []
    assert (summary.killed, summary.missing_durable) == (RUNS, 0)
    assert summary.audits_passed + summary.empty_journals == RUNS
    assert summary.events_audited == summary.events_stored
    assert summary.events_accepted > 0
    if durability == "commit":
        assert (summary.events_lost, summary.empty_journals) == (0, 0)


def test_what_was_handed_to_a_process_that_stores_is_stored_after_a_kill(store: str) -> None:
    Journal.open(store).close()
    engine: Any = "sqlite" if store.startswith("sqlite") else "postgresql"
    summary = kill_repeatedly(KillSetup(RUNS, engine, "step", seed=3, url=store, apart=True))
    assert summary.faults == []
    assert (summary.killed, summary.missing_durable, summary.audits_passed) == (RUNS, 0, RUNS)
    assert summary.events_stored >= summary.events_durable > 0


def test_a_process_that_stores_is_handed_steps_only() -> None:
    with pytest.raises(InvalidArgument, match="each step"):
        kill_repeatedly(KillSetup(1, "sqlite", "commit", seed=3, apart=True))


def test_a_store_that_keeps_less_than_was_durable_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = JournalReader.head

    def shorter(reader: JournalReader) -> ChainHead:
        return dataclasses.replace(real(reader), seq=1)

    monkeypatch.setattr(JournalReader, "head", shorter)
    url = f"sqlite:///{tmp_path / 'run.db'}"
    Journal.open(url).close()
    summary = kill_repeatedly(KillSetup(1, "sqlite", "commit", seed=3, url=url))
    assert not summary.passed
    assert summary.missing_durable > 0
    assert "the journal ends with 1" in summary.faults[0]


def test_the_command_prints_its_summary_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["torture", "kill", "--runs", "1", "--seed", "5", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["killed"], summary["durability"], summary["faults"]) == (1, "step", [])


def test_the_next_start_says_how_much_of_the_tail_is_missing(store: str) -> None:
    with Journal.open(store) as journal:
        with journal.record(name="rank0") as recorder:
            recorder.append(record(opened()))
            recorder.append(record(allocated("r1", 1), allocated("r1", 2)))
        with journal.record(name="rank1"):
            pass
    with Journal.open(store, create=False) as again:
        assert [(info.name, head.seq) for info, head in again.heads()] == [("rank0", 3), ("rank1", 0)]
        tail = again.reader("rank0").tail(last_seq=7)
        assert (tail.durable_seq, tail.missing_events, tail.missing) == (3, 4, (4, 7))
        whole = again.reader("rank0").tail(last_seq=3)
        assert (whole.missing_events, whole.missing) == (0, None)
