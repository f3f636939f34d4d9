"""A journal in files is the journal: it verifies, replays and audits as the database it came from does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvledger.core.errors import InvalidArgument, JournalError, NotExported, UnknownJournal
from kvledger.journal import Journal, JournalReader, StoredTransaction
from kvledger.journal.audit import audit
from kvledger.journal.database import writing_engine
from kvledger.journal.export import ExportedJournal, Pruned, export_journal, prune_rows
from kvledger.journal.export.write import ExportFormat
from kvledger.journal.replay import ReplayError, replay
from tests.support.recorded_run import record_run, small_run
from tests.support.stored_events import facts, short_story
from tests.support.stores import change, rows

FORMATS: tuple[ExportFormat, ...] = ("parquet", "jsonl")


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


@pytest.fixture
def reader(journal: Journal) -> JournalReader:
    return record_run(journal, small_run(), checkpoint_every=200, name="exported")


def comparable(one: StoredTransaction) -> tuple[object, ...]:
    head = (one.number, one.op, one.request_id, one.rolled_back, one.reason, one.time_us, one.first_seq)
    return (*head, one.previous_hash, one.hash, [(e.seq, e.undone, facts(e.event)) for e in one.events])


def prune(journal: Journal, reader: JournalReader, before: int, exported: Path) -> Pruned:
    engine = writing_engine(journal.url)
    try:
        return prune_rows(engine, reader, before_seq=before, exported=exported)
    finally:
        engine.dispose()


@pytest.mark.parametrize("form", FORMATS)
def test_every_cell_and_every_state_comes_back_from_a_file(
    reader: JournalReader, tmp_path: Path, form: ExportFormat
) -> None:
    exported = export_journal(reader, tmp_path / "out", form=form)
    files = ExportedJournal.open(tmp_path / "out")
    assert (exported.path is not None, exported.transactions) == (True, len(small_run()))
    assert [comparable(one) for one in files.transactions()] == [
        comparable(one) for one in reader.transactions()
    ]
    assert (files.info, files.head()) == (reader.info, reader.head())
    assert list(files.verify()) == []
    for seq in (None, 1, 250, 401, 10**9):
        assert files.checkpoint_before(seq) == reader.checkpoint_before(seq)
        assert files.checkpoint_after(seq or 0) == reader.checkpoint_after(seq or 0)
    assert list(files.checkpoint_places()) == list(reader.checkpoint_places())
    assert [one.number for one in files.transactions(7, upto_seq=300)] == [
        one.number for one in reader.transactions(7, upto_seq=300)
    ]
    mine, theirs = audit(files, chain=files.verify()), audit(reader, chain=iter(()))
    assert mine == theirs
    assert replay(files, upto=777).state.digest() == replay(reader, upto=777).state.digest()


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_transaction_and_one_without_events_at_all_are_exported_too(
    journal: Journal, tmp_path: Path, form: ExportFormat
) -> None:
    with journal.record() as recorder:
        for one in short_story():
            recorder.append(one)
    export_journal(journal.reader(), tmp_path, form=form)
    files = ExportedJournal.open(tmp_path)
    assert [comparable(one) for one in files.transactions()] == [
        comparable(one) for one in journal.reader().transactions()
    ]
    assert list(files.verify()) == []


def test_an_export_goes_on_where_the_folder_ends(reader: JournalReader, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    first = export_journal(reader, folder, upto_seq=500, form="jsonl")
    assert first.head.seq <= 500
    second = export_journal(reader, folder)
    third = export_journal(reader, folder)
    assert (second.transactions + first.transactions, third.path) == (len(small_run()), None)
    assert len(list(folder.iterdir())) == 2
    files = ExportedJournal.open(folder)
    assert list(files.verify()) == []
    assert audit(files).verdict == "pass"


def test_pruned_events_are_read_from_the_files_and_the_rest_from_the_database(
    store: str, journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    whole = audit(reader, chain=journal.verify())
    last = reader.head()
    export_journal(reader, tmp_path, upto_seq=900)
    pruned = prune(journal, reader, 801, tmp_path)
    assert pruned.checkpoint_seq == max(seq for seq in reader.checkpoint_seqs() if seq <= 800)
    assert pruned.events == pruned.checkpoint_seq
    assert rows(store, "SELECT min(seq) FROM events") == [(pruned.checkpoint_seq + 1,)]
    assert (list(journal.verify()), reader.head()) == ([], last)

    alone = audit(reader, chain=journal.verify())
    assert (alone.verdict, alone.checkpoint_seq) == ("pass", pruned.checkpoint_seq)
    assert "begins: at the checkpoint" in alone.render()
    assert replay(reader, upto=pruned.checkpoint_seq + 50).checkpoint_seq == pruned.checkpoint_seq
    with pytest.raises(ReplayError, match="no checkpoint stands"):
        replay(reader, upto=pruned.checkpoint_seq - 1)

    both = ExportedJournal.open(tmp_path, rest=reader)
    assert audit(both, chain=[*both.verify(), *journal.verify()]) == whole
    assert [one.number for one in both.transactions()] == list(range(1, last.number + 1))
    assert replay(both, upto=100).seq <= 100


def test_all_may_go_and_the_journal_still_says_where_it_stands(
    journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    seq = reader.checkpoint_seqs()[-1]
    change(str(journal.url.render_as_string(hide_password=False)), f"DELETE FROM events WHERE seq > {seq}")
    number = next(n for n, _ in reversed(list(reader.checkpoint_places())))
    change(
        str(journal.url.render_as_string(hide_password=False)),
        f"DELETE FROM transactions WHERE number > {number}",
    )
    export_journal(reader, tmp_path)
    prune(journal, reader, seq + 1, tmp_path)
    assert list(reader.transactions()) == []
    assert (reader.head().seq, reader.head().number) == (seq, number)
    assert replay(reader).seq == seq
    assert audit(reader, chain=journal.verify()).verdict == "pass"
    assert audit(ExportedJournal.open(tmp_path, rest=reader)).verdict == "pass"


def test_what_no_file_holds_is_not_pruned(journal: Journal, reader: JournalReader, tmp_path: Path) -> None:
    before = [comparable(one) for one in reader.transactions()]
    with pytest.raises(UnknownJournal):
        prune(journal, reader, 801, tmp_path / "nowhere")
    export_journal(reader, tmp_path, upto_seq=300)
    with pytest.raises(NotExported, match="would go"):
        prune(journal, reader, 801, tmp_path)
    with pytest.raises(InvalidArgument, match="no checkpoint"):
        prune(journal, reader, 100, tmp_path)
    assert [comparable(one) for one in reader.transactions()] == before


def test_what_is_exported_in_a_file_that_was_changed_is_not_pruned(
    journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    path = export_journal(reader, tmp_path, form="jsonl").path
    assert path is not None
    text = path.read_text()
    path.write_text(text.replace('"op":"slide"', '"op":"shade"', 1))
    with pytest.raises(NotExported, match="do not verify: transaction"):
        prune(journal, reader, 801, tmp_path)
    assert next(reader.transactions()).number == 1


def test_a_damaged_journal_is_not_exported(store: str, reader: JournalReader, tmp_path: Path) -> None:
    change(store, "UPDATE events SET undone = 1 - undone WHERE seq = 40")
    with pytest.raises(JournalError, match="damaged and is not exported"):
        export_journal(reader, tmp_path / "out")
    assert list((tmp_path / "out").glob("*")) == []


def test_a_piece_from_the_middle_can_be_read_alone(
    journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    export_journal(reader, tmp_path / "first", upto_seq=700)
    pruned = prune(journal, reader, 601, tmp_path / "first")
    export_journal(reader, tmp_path / "then")
    files = ExportedJournal.open(tmp_path / "then")
    verdict = audit(files, chain=files.verify())
    assert (verdict.verdict, verdict.checkpoint_seq) == ("pass", pruned.checkpoint_seq)
    assert replay(files).state.digest() == replay(reader).state.digest()


@pytest.mark.parametrize("bad", [{"form": "csv"}, {"upto_seq": 0}])
def test_an_export_that_cannot_be_is_refused(reader: JournalReader, tmp_path: Path, bad: object) -> None:
    with pytest.raises(InvalidArgument):
        export_journal(reader, tmp_path, **bad)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="no folder"):
        export_journal(reader, tmp_path / "file")
