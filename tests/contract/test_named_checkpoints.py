"""On every kind of store: how long transactions took is stored, and no checkpoint goes unnamed for long."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import StoreUnavailable
from kvledger.journal import Journal, JournalReader
from kvledger.journal.chain import CheckpointName
from kvledger.journal.keeper import Keeper
from kvledger.journal.recorder import Recorder
from kvledger.journal.records import StoredCheckpoint
from kvledger.journal.rows import Submission
from tests.support.recorded_run import record_run, small_run
from tests.support.stored_events import short_story
from tests.support.stores import rows

NEVER = 10**9
"""Events between checkpoints: a keeper is there, and none falls due before a test sets another number."""


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


def named_in(store: str) -> list[tuple[int, int, bytes]]:
    """Number of each transaction that names a checkpoint, with the checkpoint's seq and hash."""
    return [
        (number, seq, bytes(stored))
        for number, seq, stored in rows(
            store,
            "SELECT number, checkpoint_seq, checkpoint_hash FROM transactions "
            "WHERE checkpoint_seq IS NOT NULL ORDER BY number",
        )
    ]


def checkpoints_of(reader: JournalReader) -> list[StoredCheckpoint]:
    found = [reader.checkpoint_before(seq) for seq in reader.checkpoint_seqs()]
    return [one for one in found if one is not None]


def work_off(keeper: Keeper | None) -> None:
    while keeper is not None and keeper.has_work:
        keeper.work()


def by_hand(recorder: Recorder) -> tuple[Any, Keeper]:
    """The parts of a recorder whose writer sleeps, to be moved step by step in this thread."""
    assert recorder.keeper is not None
    return recorder._writer, recorder.keeper


def test_a_transaction_that_was_heard_to_begin_is_stored_with_its_duration(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1_000_000, 1_345_999, 9_000_000, 9_000_999])
    with journal.record() as recorder:
        first, second, third, *_ = short_story()
        recorder.append(first)
        monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
        recorder.begin_transaction()
        recorder.append(second)
        recorder.begin_transaction()
        recorder.append(third)
        monkeypatch.undo()
    durations = [one.duration_us for one in journal.reader().transactions()]
    assert durations == [None, 345, 0]
    assert list(journal.verify()) == []


def test_what_began_without_an_end_does_not_lend_its_time_to_the_next(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([1_000_000, 5_000_000, 5_007_000])
    with journal.record() as recorder:
        monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
        recorder.begin_transaction()
        recorder.begin_transaction()
        recorder.append(short_story()[0])
        monkeypatch.undo()
        recorder.append(short_story()[1])
    assert [one.duration_us for one in journal.reader().transactions()] == [7, None]


def test_every_transaction_of_a_cache_has_a_duration(journal: Journal) -> None:
    with journal.record() as recorder:
        config = CacheConfig(page_size=4, sliding_window=4, full_tokens=64, swa_tokens=64)
        cache = HybridCache(config, sink=recorder)
        cache.free(cache.alloc(4))
        with cache.transaction("step") as transaction:
            cache.alloc(4)
            transaction.rollback(reason="to show")
    stored = list(journal.reader().transactions())
    assert [one.op for one in stored] == ["open", "alloc", "free", "step"]
    assert all(one.duration_us is not None and one.duration_us >= 0 for one in stored)


@pytest.mark.parametrize("how", [{"tokens": "hash", "key": b"k" * 32}, {"tokens": "none"}])
def test_a_token_policy_leaves_durations_alone(journal: Journal, how: dict[str, Any]) -> None:
    with journal.record(**how) as recorder:
        recorder.begin_transaction()
        recorder.append(short_story()[0])
    assert next(journal.reader().transactions()).duration_us is not None


def test_each_checkpoint_names_the_one_before_and_is_named_by_the_next_transaction(
    store: str, journal: Journal
) -> None:
    records = small_run()
    with journal.record(checkpoint_every=NEVER) as recorder:
        writer, keeper = by_hand(recorder)
        keeper._every = 150
        for one in records:
            writer.store([Submission(one, 0)])
            work_off(keeper)
    reader = journal.reader()
    kept = checkpoints_of(reader)
    assert len(kept) >= 5
    assert [one.previous for one in kept] == [None, *[CheckpointName(one.seq, one.hash) for one in kept[:-1]]]
    assert named_in(store) == [
        (one.number + 1, one.seq, one.hash) for one in kept if one.number < len(records)
    ]
    assert list(journal.verify()) == []


def test_of_checkpoints_stored_in_one_go_the_newest_is_named_and_names_the_others(
    store: str, journal: Journal
) -> None:
    records = small_run()
    with journal.record(checkpoint_every=NEVER) as recorder:
        writer, keeper = by_hand(recorder)
        keeper._every = 150
        for one in records[:-1]:
            writer.store([Submission(one, 0)])
        work_off(keeper)
        writer.store([Submission(records[-1], 0)])
    kept = checkpoints_of(journal.reader())
    assert len(kept) >= 5
    assert named_in(store) == [(len(records), kept[-1].seq, kept[-1].hash)]
    assert [one.previous for one in kept[1:]] == [CheckpointName(one.seq, one.hash) for one in kept[:-1]]
    assert list(journal.verify()) == []


def test_a_batch_that_is_refused_keeps_the_name_for_the_batch_that_is_stored(
    store: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal.record(checkpoint_every=NEVER) as recorder:
        writer, _ = by_hand(recorder)
        writer.store([Submission(one, 0) for one in small_run()[:1]])
        name = CheckpointName(7, bytes(32))
        writer.name_checkpoint(name)
        commit = writer._commit

        def refuse(*rows: Any) -> None:
            raise StoreUnavailable("away")

        monkeypatch.setattr(writer, "_commit", refuse)
        with pytest.raises(StoreUnavailable):
            writer.store([Submission(small_run()[1], 0)])
        monkeypatch.setattr(writer, "_commit", commit)
        assert writer.resync() == 0
        writer.store([Submission(one, 0) for one in small_run()[1:3]])
        writer.store([Submission(small_run()[3], 0)])
    assert named_in(store) == [(2, *name)]


def test_a_batch_that_was_stored_although_its_answer_was_lost_has_named_it(
    store: str, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with journal.record(checkpoint_every=NEVER) as recorder:
        writer, _ = by_hand(recorder)
        writer.store([Submission(one, 0) for one in small_run()[:1]])
        name = CheckpointName(7, bytes(32))
        writer.name_checkpoint(name)
        commit = writer._commit

        def lose(*rows: Any) -> None:
            commit(*rows)
            raise StoreUnavailable("the answer was lost")

        monkeypatch.setattr(writer, "_commit", lose)
        with pytest.raises(StoreUnavailable):
            writer.store([Submission(small_run()[1], 0)])
        monkeypatch.setattr(writer, "_commit", commit)
        assert writer.resync() == 1
        writer.store([Submission(small_run()[2], 0)])
    assert named_in(store) == [(2, *name)]


@pytest.mark.parametrize("again", [True, False], ids=["tried again", "given up"])
def test_a_checkpoint_whose_answer_was_lost_leaves_no_row_that_nothing_names(
    store: str, journal: Journal, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    records = small_run()
    with journal.record(checkpoint_every=NEVER) as recorder:
        writer, keeper = by_hand(recorder)
        keeper._every = 400
        insert = keeper._insert

        def lose(kept: StoredCheckpoint) -> None:
            insert(kept)
            raise StoreUnavailable("the answer was lost")

        lost = 0
        for one in records:
            writer.store([Submission(one, 0)])
            while keeper.has_work:
                if keeper._due is not None and not lost:
                    lost = keeper._due.seq
                    monkeypatch.setattr(keeper, "_insert", lose)
                    assert not keeper.work()
                    monkeypatch.setattr(keeper, "_insert", insert)
                    assert rows(store, "SELECT seq FROM checkpoints") == [(lost,)]
                    assert list(journal.verify()) == []
                    keeper.work(store_is_there=again)
                keeper.work()
    kept = checkpoints_of(journal.reader())
    assert (lost in {one.seq for one in kept}) == again
    assert kept[0].previous is None
    assert len(kept) >= 2
    assert keeper.problem is None
    assert list(journal.verify()) == []


def test_the_first_transaction_after_a_gap_names_the_checkpoint_too(store: str, journal: Journal) -> None:
    with journal.record(checkpoint_every=NEVER) as recorder:
        writer, _ = by_hand(recorder)
        writer.store([Submission(one, 0) for one in small_run()[:1]])
        writer.name_checkpoint(CheckpointName(7, bytes(32)))
        writer.give_up([Submission(small_run()[1], 0)])
        writer.store_gap(5)
    assert named_in(store) == [(2, 7, bytes(32))]


def test_a_recorder_names_its_checkpoints_by_itself(store: str, journal: Journal) -> None:
    reader = record_run(journal, small_run(), checkpoint_every=150)
    kept = {int(one.seq): one for one in checkpoints_of(reader)}
    named = named_in(store)
    assert named
    assert all(kept[seq].hash == stored and kept[seq].number < number for number, seq, stored in named)
    assert sa.inspect(reader.engine).has_table("checkpoints")
    assert list(journal.verify()) == []
