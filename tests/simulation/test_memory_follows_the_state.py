"""However long a journal is, replay, audit and export need the memory of its live state and of one batch."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from kvledger.journal import Journal, JournalReader
from kvledger.journal.audit import audit
from kvledger.journal.export import ExportedJournal, export_journal
from kvledger.journal.export import cells as export_cells
from kvledger.journal.export import parquet as export_parquet
from kvledger.journal.replay import replay
from tests.support.recorded_run import record_run, small_run

SHORT, LONG = 100, 400
"""Requests: four times the journal over a live state of the same size."""

ROOM = 1.35
"""What the longer journal may need more: ids and numbers grow, and so do findings' counters."""


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> list[JournalReader]:
    journal = Journal.open(tmp_path_factory.mktemp("memory") / "run.db")
    return [record_run(journal, small_run(n, 5), flush_every=200, checkpoint_every=0) for n in (SHORT, LONG)]


def peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def within_a_batch(readers: list[JournalReader], work: Callable[[JournalReader], object]) -> None:
    work(readers[0])  # what is imported and cached once is not counted
    short, long = (peak_bytes(lambda reader=reader: work(reader)) for reader in readers)  # type: ignore[misc]
    assert readers[1].head().seq > 3.5 * readers[0].head().seq
    assert long < ROOM * short, f"{short} bytes for the short journal, {long} for the long one"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches far below the short journal, or the batch would be all that is measured."""
    monkeypatch.setattr("kvledger.journal.batches.BATCH_EVENTS", 512)
    monkeypatch.setattr("kvledger.journal.batches.BATCH_TRANSACTIONS", 256)
    monkeypatch.setattr(export_cells, "BATCH_EVENTS", 512)
    monkeypatch.setattr(export_cells, "BATCH_TRANSACTIONS", 256)
    monkeypatch.setattr(export_parquet, "READ_TRANSACTIONS", 64)


def test_replay_with_audit_is_bounded_by_the_live_state(readers: list[JournalReader]) -> None:
    within_a_batch(readers, audit)


def test_replay_is_bounded_by_the_live_state(readers: list[JournalReader]) -> None:
    within_a_batch(readers, replay)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_an_export_and_reading_it_back_are_bounded_by_a_batch(
    readers: list[JournalReader], tmp_path: Path, form: str
) -> None:
    def out_and_back(reader: JournalReader) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        export_journal(reader, folder, form=form)  # type: ignore[arg-type]
        assert list(ExportedJournal.open(folder).verify()) == []

    within_a_batch(readers, out_and_back)
