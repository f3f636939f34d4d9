"""A recorded journal stays below its limit by itself, and nothing of it is lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.core.ids import Seq, TxnId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal, number_transactions
from kvledger.journal.audit import audit
from kvledger.journal.chain import CheckpointName
from kvledger.journal.export import ExportedJournal
from kvledger.journal.growth import (
    DISK_BEYOND_BYTES,
    EVENT_BYTES,
    MIN_MAX_BYTES,
    STEP_PARTS,
    TRANSACTION_BYTES,
    Growth,
)
from kvledger.journal.keeper import Keeper
from kvledger.journal.records import StoredCheckpoint
from kvledger.journal.replay import ReplayError, replay
from kvledger.journal.rows import Submission, WriterCounters
from kvledger.journal.sqlite import PAGE_BYTES, WAL_PAGES
from tests.support.recorded_run import record_run, small_run
from tests.support.stored_events import short_story


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


@pytest.fixture(scope="module")
def long_run() -> tuple[TransactionRecord, ...]:
    return small_run(600, 11)


def test_what_leaves_the_store_stands_in_files_and_both_are_the_whole_journal(
    journal: Journal, long_run: tuple[TransactionRecord, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    reader = record_run(
        journal, long_run, flush_every=100, max_bytes=MIN_MAX_BYTES, export_to=folder, checkpoint_every=0
    )
    assert len(list(folder.iterdir())) >= 3
    first = next(reader.transactions())
    assert first.number > len(long_run) // 2
    both = ExportedJournal.open(folder, rest=reader)
    assert [one.number for one in both.transactions()] == list(range(1, len(long_run) + 1))
    verdict = audit(both, chain=[*both.verify(), *journal.verify()])
    assert (verdict.verdict, verdict.counts.transactions) == ("pass", len(long_run))
    assert replay(reader).state.digest() == replay(number_transactions(long_run)).state.digest()


def test_the_file_reuses_the_room(long_run: tuple[TransactionRecord, ...], tmp_path: Path) -> None:
    sizes = []
    for name, how in (("free", {}), ("kept", {"max_bytes": MIN_MAX_BYTES, "export_to": tmp_path / "out"})):
        with Journal.open(tmp_path / f"{name}.db") as journal:
            record_run(journal, long_run, flush_every=100, checkpoint_every=0, **how)
        sizes.append((tmp_path / f"{name}.db").stat().st_size)
    free, kept = sizes
    assert free > 3 * MIN_MAX_BYTES
    assert kept < 2 * MIN_MAX_BYTES


def test_what_lies_on_the_disk_stays_below_the_limit_and_a_constant_log_included(
    long_run: tuple[TransactionRecord, ...], tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    most = 0
    with (
        Journal.open(path) as journal,
        journal.record(max_bytes=MIN_MAX_BYTES, export_to=tmp_path / "out", checkpoint_every=0) as recorder,
    ):
        for count, record in enumerate(long_run, start=1):
            recorder.append(record)
            if count % 20 == 0:
                recorder.flush()
                log = path.with_name("run.db-wal").stat().st_size
                most = max(most, path.stat().st_size + log)
    step = MIN_MAX_BYTES // STEP_PARTS
    assert most < MIN_MAX_BYTES + 2 * step + WAL_PAGES * PAGE_BYTES + 2**20
    assert most < MIN_MAX_BYTES + DISK_BEYOND_BYTES
    assert len(list((tmp_path / "out").glob("*.parquet"))) >= 3


def test_a_relative_folder_is_the_same_one_after_a_change_of_folder(
    long_run: tuple[TransactionRecord, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with (
        Journal.open("run.db") as journal,
        journal.record(max_bytes=MIN_MAX_BYTES, export_to="out", checkpoint_every=0) as recorder,
    ):
        monkeypatch.chdir(tmp_path / "elsewhere")
        for count, record in enumerate(long_run, start=1):
            recorder.append(record)
            if count % 100 == 0:
                recorder.flush()
    assert len(list((tmp_path / "out").glob("*.parquet"))) >= 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "how",
    [
        {"max_bytes": MIN_MAX_BYTES},
        {"export_to": "somewhere"},
        {"max_bytes": MIN_MAX_BYTES - 1, "export_to": "somewhere"},
        {"max_bytes": MIN_MAX_BYTES, "export_to": __file__},
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_before_anything_is_stored(
    journal: Journal, how: dict[str, object]
) -> None:
    with pytest.raises(InvalidArgument):
        journal.record(**how)  # type: ignore[arg-type]
    assert journal.list() == ()


@pytest.mark.parametrize("on_failure", ["halt", "degrade"])
def test_a_folder_that_cannot_be_written_is_told_and_stops_no_recording(
    journal: Journal, long_run: tuple[TransactionRecord, ...], tmp_path: Path, on_failure: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    how = {"max_bytes": MIN_MAX_BYTES, "export_to": tmp_path / "file" / "out", "on_failure": on_failure}
    recorder = journal.record(**how)  # type: ignore[arg-type]
    past_the_limit = long_run[: len(long_run) // 2]
    for count, record in enumerate(past_the_limit, start=1):
        recorder.append(record)
        if count % 100 == 0:
            recorder.flush()
    recorder.close()
    reader = journal.reader()
    assert [one.number for one in reader.transactions()] == list(range(1, len(past_the_limit) + 1))
    assert audit(reader, chain=journal.verify()).verdict == "pass"
    assert recorder.keeper is not None
    assert "cannot be written" in str(recorder.keeper.growth_problem)


def test_room_is_made_when_the_folder_can_be_written_again(
    journal: Journal, long_run: tuple[TransactionRecord, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    recorder = journal.record(max_bytes=MIN_MAX_BYTES, export_to=folder)
    folder.write_text("no folder")
    middle = len(long_run) // 2
    for count, record in enumerate(long_run, start=1):
        recorder.append(record)
        if count % 100 == 0:
            recorder.flush()
        if count == middle:
            folder.unlink()
    recorder.close()
    assert recorder.keeper is not None
    assert recorder.keeper.growth_problem is None
    assert next(journal.reader().transactions()).number > 1
    both = ExportedJournal.open(folder, rest=journal.reader())
    assert [one.number for one in both.transactions()] == list(range(1, len(long_run) + 1))


def growth(cut: Callable[[Seq], None]) -> tuple[Growth, WriterCounters]:
    counters = WriterCounters()
    return Growth(counters, max_bytes=MIN_MAX_BYTES, export_and_prune=cut), counters


def state_at(seq: int) -> StoredCheckpoint:
    return StoredCheckpoint(Seq(seq), TxnId(seq), b"", "", b"", b"")


def test_every_step_a_state_is_asked_for_once_and_at_the_limit_what_lies_before_the_oldest_goes() -> None:
    cuts: list[int] = []
    room, counters = growth(lambda seq: cuts.append(seq))
    assert not room.wants_checkpoint(1)
    for part, seq in enumerate((10, 20, 30), start=1):
        counters.bytes = part * MIN_MAX_BYTES // 4
        asked = (room.wants_checkpoint(seq), room.wants_checkpoint(seq + 1), room.crowded())
        assert asked == (True, False, False)
        room.checkpoint_written(state_at(seq))
    counters.bytes = MIN_MAX_BYTES
    assert room.crowded()
    room.make_room()
    assert (cuts, room.crowded(), room.stored_bytes) == ([10], False, 3 * MIN_MAX_BYTES // 4)
    counters.bytes += MIN_MAX_BYTES // 4
    room.make_room()
    assert cuts == [10, 20]


def test_only_a_state_that_was_asked_for_is_a_place_to_cut_at() -> None:
    room, counters = growth(lambda seq: None)
    counters.bytes = MIN_MAX_BYTES
    assert room.wants_checkpoint(40)
    room.checkpoint_written(state_at(39))
    assert not room.crowded()
    room.checkpoint_given_up(40)
    room.checkpoint_written(state_at(40))
    assert not room.crowded()


def test_rows_count_with_what_they_take_beside_their_bytes() -> None:
    room, counters = growth(lambda seq: None)
    counters.events, counters.transactions = 10, 3
    assert room.stored_bytes == 10 * EVENT_BYTES + 3 * TRANSACTION_BYTES


@pytest.mark.parametrize("error", [JournalError("away"), RuntimeError("away")])
def test_an_export_that_fails_is_told_and_tried_again_a_little_later(error: Exception) -> None:
    failing = [error, error]

    def fail(seq: Seq) -> None:
        if failing:
            raise failing.pop()

    room, counters = growth(fail)
    counters.bytes = MIN_MAX_BYTES // 4
    assert room.wants_checkpoint(40)
    room.checkpoint_written(state_at(40))
    counters.bytes = MIN_MAX_BYTES
    for failures in (1, 2):
        assert not room.make_room()
        assert (room.crowded(), room.failures) == (False, failures)
        assert "away" in str(room.problem)
        counters.bytes += MIN_MAX_BYTES // 32
        assert room.crowded()
    assert room.make_room()
    assert (room.problem, room.cuts) == (None, 1)


def keeper_of_nothing(*, every: int, growth: Growth | None = None) -> Keeper:
    """A keeper whose store has no tables."""
    engine, named = sa.create_engine("sqlite://"), list[CheckpointName]()
    return Keeper(engine, journal_id=1, epoch="e", genesis=b"", every=every, name=named.append, growth=growth)


def test_a_journal_that_does_not_fold_cannot_make_room_and_says_so_once() -> None:
    room, _ = growth(lambda seq: None)
    keeper = keeper_of_nothing(every=0, growth=room)
    keeper.stored([Submission(one, 0) for one in short_story()], number=6, seq=8, link=b"")
    assert keeper.work()
    assert isinstance(keeper.problem, ReplayError)
    assert "no room can be made" in str(keeper.growth_problem)
    assert not keeper.has_work
    assert not keeper.work()


def test_while_the_store_is_away_the_fold_goes_on_and_a_state_that_was_due_is_given_up() -> None:
    keeper = keeper_of_nothing(every=1)
    for number, one in enumerate(small_run(5), start=1):
        keeper.stored([Submission(one, 0)], number=number, seq=number, link=b"")
        keeper.dropped([])
    assert keeper.work()  # folds up to the first state that is due
    assert not keeper.work()  # no such table: it stays due
    assert (keeper.counters.refused, keeper.has_work) == (1, True)
    while keeper.work(store_is_there=False):
        pass
    assert (keeper.problem, keeper.counters.checkpoints, keeper.has_work) == (None, 0, False)
    assert keeper.counters.events == sum(len(one.events) for one in small_run(5))


def test_the_keeper_begins_by_itself_with_many_events_or_large_ones_or_a_state_that_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = list(small_run(5))
    events = sum(len(one.events) for one in records)

    def given(*, every: int = 0) -> Keeper:
        keeper = keeper_of_nothing(every=every)
        for number, one in enumerate(records, start=1):
            keeper.stored([Submission(one, 0)], number=number, seq=number, link=b"")
        assert keeper.has_work
        return keeper

    assert not given().worth_working
    assert given(every=1).worth_working
    for name, enough in (("WORTH_EVENTS", events), ("WORTH_PAGES", 1)):
        monkeypatch.setattr(f"kvledger.journal.keeper.{name}", enough)
        keeper = given()
        assert keeper.worth_working
        while keeper.work():
            pass
        assert not keeper.worth_working
        monkeypatch.undo()
