"""A journal in files is the journal: it verifies, replays and audits as the database it came from does."""

import dataclasses
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.errors import (
    InvalidArgument,
    JournalError,
    JournalFormatError,
    NotExported,
    UnknownJournal,
)
from kvledger.journal import Journal, JournalReader, StoredTransaction
from kvledger.journal.audit import audit
from kvledger.journal.audit.verdict import NOT_HERE
from kvledger.journal.chain import CheckpointName, transaction_hash
from kvledger.journal.database import writing_engine
from kvledger.journal.export import ExportedJournal, Pruned, export_journal, prune_rows
from kvledger.journal.export.check import _hashed as hashed_event
from kvledger.journal.export.check import _hashed_head as hashed_head
from kvledger.journal.export.hold import LOCK_NAME, FolderBusy, folder_held
from kvledger.journal.export.jsonl import JsonLinesReader, JsonLinesWriter
from kvledger.journal.export.piece import Piece
from kvledger.journal.export.prune import _remove_before
from kvledger.journal.export.sums import kept_sum, sum_of, sum_path, write_sum
from kvledger.journal.export.write import ExportFormat, _publish
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


def forge(path: Path) -> None:
    """Change a cell of the first transaction in a file of JSON lines, and recompute all that follows."""
    piece = Piece(path, JsonLinesReader())
    forged, link, later = [], piece.facts.previous_hash, 1
    names: dict[int | None, bytes] = {}
    for cells in piece.cells():
        changed = cells._replace(
            time_us=cells.time_us + later,
            previous_hash=link,
            checkpoint_hash=names.get(cells.checkpoint_seq, cells.checkpoint_hash),
        )
        head: Any = hashed_head(changed)[:-2]
        link, later = transaction_hash(link, head, map(hashed_event, cells.events), format_version=2), 0
        kept = changed.checkpoint
        if kept is not None:
            before = kept.previous and CheckpointName(kept.previous.seq, names[kept.previous.seq])
            kept = dataclasses.replace(kept, chain_hash=link, previous=before)
            kept = dataclasses.replace(kept, hash=piece.facts.journal.info().hash_of(kept) or b"")
            names[kept.seq] = kept.hash
        forged.append(changed._replace(hash=link, checkpoint=kept))
    writer = JsonLinesWriter(path, piece.facts)
    writer.write(forged)
    writer.close(piece.end.model_copy(update={"hash": link}))
    write_sum(path, path)


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
    assert {path.suffix for path in folder.iterdir()} == {".jsonl", ".parquet", ".sha256"}
    assert len(list(folder.iterdir())) == 4  # each with its sum beside it
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
    assert (alone.verdict, alone.checkpoint_seq) == ("unverified", pruned.checkpoint_seq)
    assert [(gap.first_seq, gap.last_seq, gap.reason) for gap in alone.gaps] == [
        (1, pruned.checkpoint_seq, "not here")
    ]
    assert NOT_HERE in alone.render()
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
    alone = audit(reader, chain=journal.verify())
    assert (alone.verdict, alone.counts.events) == ("unverified", 0)
    assert audit(ExportedJournal.open(tmp_path, rest=reader)).verdict == "pass"


def test_what_no_file_holds_is_not_pruned(journal: Journal, reader: JournalReader, tmp_path: Path) -> None:
    before = [comparable(one) for one in reader.transactions()]
    with pytest.raises(UnknownJournal):
        prune(journal, reader, 801, tmp_path / "nowhere")
    export_journal(reader, tmp_path, upto_seq=300)
    with pytest.raises(NotExported, match="would go"):
        prune(journal, reader, 801, tmp_path)
    with pytest.raises(InvalidArgument, match="no full state"):
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
    assert (verdict.verdict, verdict.checkpoint_seq) == ("unverified", pruned.checkpoint_seq)
    assert replay(files).state.digest() == replay(reader).state.digest()


def test_two_exports_into_one_folder_take_turns(reader: JournalReader, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    both = threading.Barrier(4)
    failed: list[BaseException] = []

    def export(upto: int | None) -> None:
        both.wait()
        try:
            export_journal(reader, folder, upto_seq=upto)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=export, args=(upto,)) for upto in (None, 300, 600, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    files = ExportedJournal.open(folder)
    assert list(files.verify()) == []
    assert files.head() == reader.head()
    assert {path.suffix for path in folder.iterdir()} == {".parquet", ".sha256"}


def test_a_folder_where_another_is_at_work_is_left_alone(
    journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    export_journal(reader, tmp_path)
    before = sorted(tmp_path.iterdir())
    engine = writing_engine(journal.url)
    with folder_held(tmp_path):
        with pytest.raises(FolderBusy, match="is at work in"):
            export_journal(reader, tmp_path, wait_s=0)
        with pytest.raises(FolderBusy, match="is at work in"):
            prune_rows(engine, reader, before_seq=801, exported=tmp_path, wait_s=0)
    assert sorted(tmp_path.iterdir()) == before
    assert prune_rows(engine, reader, before_seq=801, exported=tmp_path, wait_s=0).events > 0
    engine.dispose()


def test_what_a_killed_export_left_behind_neither_stays_nor_stops_the_next(
    reader: JournalReader, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / f"{reader.info.epoch[:12]}-000000000001.1-0000.part").write_text("cut")
    (folder / LOCK_NAME).write_text("")
    kept = folder / "other-000000000001.1-0000.part"
    kept.write_text("of another journal")
    path = export_journal(reader, folder).path
    assert path is not None
    assert sorted(folder.iterdir()) == sorted([path, sum_path(path), kept])


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_stands_under_the_name_of_a_piece_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_links(*paths: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    part, path = tmp_path / "new.part", tmp_path / "piece.parquet"
    part.write_text("mine")
    _publish(part, path)
    assert sorted(tmp_path.iterdir()) == [path, sum_path(path)]
    part.write_text("another")
    with pytest.raises(JournalError, match="is not replaced"):
        _publish(part, path)
    assert (path.read_text(), kept_sum(path)) == ("mine", sum_of(path))


def test_of_two_pieces_that_overlap_the_one_that_may_go_is_named(
    reader: JournalReader, tmp_path: Path
) -> None:
    less = export_journal(reader, tmp_path / "less", upto_seq=300, form="jsonl").path
    more = export_journal(reader, tmp_path / "more").path
    assert less is not None
    assert more is not None
    shutil.copy(less, more.parent)
    with pytest.raises(JournalFormatError, match=f"overlap.*: remove {less.name}$"):
        ExportedJournal.open(more.parent)
    (more.parent / less.name).unlink()
    assert list(ExportedJournal.open(more.parent).verify()) == []


def test_a_prune_that_another_has_overtaken_removes_nothing_more(
    journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    export_journal(reader, tmp_path)
    first = reader.checkpoint_seqs()[0]
    prune(journal, reader, 801, tmp_path)
    engine = writing_engine(journal.url)
    with engine.begin() as connection:
        assert _remove_before(connection, reader.info.id, first, last=801) == (0, 0)
    engine.dispose()
    assert list(journal.verify()) == []


def test_an_exported_piece_that_was_recomputed_as_a_whole_does_not_join_the_rows_that_remain(
    journal: Journal, reader: JournalReader, tmp_path: Path
) -> None:
    path = export_journal(reader, tmp_path, upto_seq=900, form="jsonl").path
    assert path is not None
    prune(journal, reader, 801, tmp_path)
    forge(path)
    assert list(ExportedJournal.open(tmp_path).verify()) == []  # by itself nothing can tell
    with pytest.raises(JournalFormatError, match="another hash"):
        ExportedJournal.open(tmp_path, rest=reader)


def test_files_that_go_further_than_the_database_must_agree_with_it_where_it_ends(
    store: str, reader: JournalReader, tmp_path: Path
) -> None:
    path = export_journal(reader, tmp_path, form="jsonl").path
    assert path is not None
    change(store, "DELETE FROM events WHERE seq > 700")
    change(store, "DELETE FROM checkpoints WHERE seq > 700")
    change(store, "DELETE FROM transactions WHERE first_seq + event_count - 1 > 700")
    assert ExportedJournal.open(tmp_path, rest=reader).head().seq > 700
    forge(path)
    with pytest.raises(JournalFormatError, match="another hash"):
        ExportedJournal.open(tmp_path, rest=reader)


@pytest.mark.parametrize("bad", [{"form": "csv"}, {"upto_seq": 0}])
def test_an_export_that_cannot_be_is_refused(reader: JournalReader, tmp_path: Path, bad: object) -> None:
    with pytest.raises(InvalidArgument):
        export_journal(reader, tmp_path, **bad)  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="no folder"):
        export_journal(reader, tmp_path / "file")
