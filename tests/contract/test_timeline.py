"""A timeline gives at every seq what a replay to it gives, whatever becomes of the journal meanwhile."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.api.projection import LiveBus, Timeline
from kvledger.core.errors import StoreUnavailable
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal, JournalReader
from kvledger.journal.database import writing_engine
from kvledger.journal.export import export_journal, prune_rows
from kvledger.journal.records import StoredTransaction, number_transactions
from kvledger.journal.replay import Fold, replay
from tests.support.recorded_run import record_run, small_run
from tests.support.stored_events import short_story
from tests.support.stores import change
from tests.support.timelines import (
    DEADLINE_SECONDS,
    follow_to,
    followed,
    record_with_gap,
    refusal_at,
    wait_until_loaded,
)

RECORDS = small_run(40)
SEED = 20_240_611


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


@pytest.fixture(scope="module")
def digests() -> dict[int, tuple[int, int, str]]:
    """By seq of the small run: where the last boundary is, its transaction, and the digest there."""
    known = {}
    fold, place = Fold(), (0, 0, "")
    for transaction in number_transactions(RECORDS):
        for seq in range(transaction.first_seq, transaction.last_seq):
            known[seq] = place
        fold.apply(transaction)
        place = (fold.seq, fold.transaction, fold.state.digest())
        known[int(fold.seq)] = place
    return known


def check(timeline: Timeline, digests: dict[int, tuple[int, int, str]], seqs: list[int]) -> None:
    for seq in seqs:
        with timeline.state_at(seq) as standing:
            at = standing.at
            assert (at.asked, at.seq, at.transaction) == (seq, *digests[seq][:2])
            assert standing.state.digest() == digests[seq][2], f"another state at seq {seq}"


def shuffled(digests: dict[int, tuple[int, int, str]], *, last: int | None = None) -> list[int]:
    """The seqs at which something is known, in an order that the seed names."""
    seqs = [seq for seq, place in digests.items() if place[0] and (last is None or seq <= last)]
    random.Random(SEED).shuffle(seqs)
    return seqs


@pytest.mark.parametrize(("checkpoint_every", "snapshot_events"), [(0, 50), (200, 10_000)])
def test_the_state_at_every_seq_in_any_order_is_that_of_a_replay(
    journal: Journal,
    digests: dict[int, tuple[int, int, str]],
    checkpoint_every: int,
    snapshot_events: int,
) -> None:
    reader = record_run(journal, RECORDS[: len(RECORDS) // 2], checkpoint_every=checkpoint_every)
    last = int(reader.head().seq)
    with followed(reader, snapshot_events=snapshot_events) as timeline:
        assert (timeline.following.snapshots > 5) == (snapshot_events == 50)
        seqs = shuffled(digests, last=last)
        check(timeline, digests, seqs if snapshot_events == 50 else seqs[:150])
        with timeline.state_at(None) as standing:
            assert standing.state.digest() == replay(reader).state.digest()
            assert (standing.at.asked, standing.at.seq) == (None, last)


def test_stepping_forwards_and_back_gives_the_states_of_a_replay(
    journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=0)
    seqs = sorted(shuffled(digests))
    with followed(reader, snapshot_events=200) as timeline:
        check(timeline, digests, seqs[::13])
        check(timeline, digests, seqs[::-29])


def test_thinned_snapshots_answer_every_seq(
    journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=0)
    with followed(reader, snapshot_events=50, snapshot_bytes=8_000) as timeline:
        assert 1 < timeline.following.snapshots < len(digests) // 100
        check(timeline, digests, shuffled(digests)[:100])


def test_two_states_stand_still_side_by_side(
    journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=300)
    dice = random.Random(SEED)
    seqs = shuffled(digests)
    with followed(reader, snapshot_events=100) as timeline:
        for _ in range(20):
            first, second = dice.choice(seqs), dice.choice(seqs)
            with timeline.states_at(first, second) as (one, other):
                assert one.state.digest() == digests[first][2]
                assert other.state.digest() == digests[second][2]


def test_a_state_is_answered_before_the_journal_was_followed_at_all(
    journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=300)
    timeline = Timeline(reader)
    assert timeline.following.state == "loading"
    check(timeline, digests, shuffled(digests)[:40])
    with timeline.state_at(None) as standing:
        assert standing.state.digest() == replay(reader).state.digest()


def test_the_newest_state_is_what_the_store_holds_while_the_follower_has_not_heard_of_it(
    journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    with journal.record(checkpoint_every=0) as recorder:
        timeline = Timeline(journal.reader(recorder.journal_id), poll_seconds=DEADLINE_SECONDS)
        timeline.start()
        try:
            wait_until_loaded(timeline)
            for record in RECORDS[:20]:
                recorder.append(record)
            recorder.flush()
            last = int(recorder.durable_seq)
            assert timeline.place(None).seq == last
            with timeline.state_at(None) as standing:
                assert (standing.at.asked, standing.at.seq) == (None, last)
                assert standing.state.digest() == digests[last][2]
            # That somebody asked woke the follower, which would have slept on.
            follow_to(timeline, last)
        finally:
            timeline.stop()


class Hearing:
    """Counts what a listener is told."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.seqs: list[int] = []

    def transaction(self, stored: StoredTransaction) -> None:
        self.numbers.append(stored.number)
        self.seqs += [event.seq for event in stored.events]


@pytest.mark.parametrize("bus_events", [None, 40, 100_000], ids=["polled", "overflowing", "live"])
def test_while_the_journal_grows_every_state_is_right_and_listeners_hear_each_transaction_once(
    journal: Journal, digests: dict[int, tuple[int, int, str]], bus_events: int | None
) -> None:
    hearing = Hearing()
    dice = random.Random(SEED)
    bus = None if bus_events is None else LiveBus(limit=bus_events)
    with journal.record(checkpoint_every=250) as recorder:
        recorder.append(RECORDS[0])
        recorder.flush()
        if bus is not None:
            recorder.subscribe(bus)
        reader = journal.reader(recorder.journal_id)
        with followed(reader, listeners=[hearing], bus=bus, snapshot_events=150) as timeline:
            for count, record in enumerate(RECORDS[1:], start=2):
                recorder.append(record)
                if count % 40:
                    continue
                recorder.flush()
                last = int(recorder.durable_seq)
                known = [seq for seq in digests if seq <= last and digests[seq][0]]
                check(timeline, digests, [*dice.sample(known, 4), last])
                timeline.look()
                follow_to(timeline, last)
                with timeline.state_at(None) as standing:
                    assert standing.state.digest() == digests[last][2]
            recorder.flush()
            follow_to(timeline, int(recorder.durable_seq))
            with timeline.state_at(None) as standing:
                assert standing.state.digest() == digests[max(digests)][2]
    assert hearing.numbers == list(range(1, len(RECORDS) + 1))
    assert hearing.seqs == list(range(1, max(digests) + 1))


class FailingListener:
    """A listener with a fault."""

    def __init__(self) -> None:
        self.heard = 0

    def transaction(self, stored: StoredTransaction) -> None:
        self.heard += 1
        raise ZeroDivisionError


def test_a_listener_that_fails_is_left_out_and_the_others_go_on(journal: Journal) -> None:
    failing, hearing = FailingListener(), Hearing()
    reader = record_run(journal, RECORDS)
    with followed(reader, listeners=[failing, hearing]) as timeline:
        assert timeline.following.state == "following"
        with timeline.state_at(None) as standing:
            assert standing.state.digest() == replay(reader).state.digest()
    assert failing.heard == 1
    assert hearing.numbers == list(range(1, len(RECORDS) + 1))


class Flickering(JournalReader):
    """A reader whose store can be taken away."""

    away = False

    def transactions(self, *given: Any, **how: Any) -> Iterator[StoredTransaction]:
        if self.away:
            raise StoreUnavailable("the store is away")
        yield from super().transactions(*given, **how)


def test_a_store_that_goes_away_is_told_and_followed_again_when_it_is_back(
    journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    with journal.record(checkpoint_every=0) as recorder:
        for record in RECORDS[:60]:
            recorder.append(record)
        recorder.flush()
        plain = journal.reader(recorder.journal_id)
        reader = Flickering(plain.engine, plain.info)
        hearing = Hearing()
        with followed(reader, listeners=[hearing]) as timeline:
            last = int(recorder.durable_seq)
            told = threading.Event()
            reader.away = True
            end = timeline.subscribe(lambda seq: told.set() if timeline.following.problem else None)
            assert told.wait(DEADLINE_SECONDS), "nothing was told of the store"
            end()
            with timeline.state_at(None) as standing:
                assert standing.state.digest() == digests[last][2]
            for record in RECORDS[60:]:
                recorder.append(record)
            recorder.flush()
            reader.away = False
            follow_to(timeline, int(recorder.durable_seq))
            with timeline.state_at(None) as standing:
                assert standing.state.digest() == digests[max(digests)][2]
    assert hearing.numbers == list(range(1, len(RECORDS) + 1))


def test_subscribers_hear_of_growth_until_they_end_it(journal: Journal) -> None:
    heard: list[int] = []
    with journal.record() as recorder:
        recorder.append(RECORDS[0])
        recorder.flush()
        with followed(journal.reader(recorder.journal_id)) as timeline:
            end = timeline.subscribe(heard.append)
            recorder.append(RECORDS[1])
            recorder.flush()
            follow_to(timeline, int(recorder.durable_seq))
            timeline.stop()
            assert heard[-1] == recorder.durable_seq
            end()


def test_before_behind_and_inside_a_gap(journal: Journal, digests: dict[int, tuple[int, int, str]]) -> None:
    first, last = record_with_gap(journal, RECORDS, lost=slice(120, 140))
    reader = journal.reader()
    hearing = Hearing()
    with followed(reader, snapshot_events=100, listeners=[hearing]) as timeline:
        before = [seq for seq in shuffled(digests) if seq < first]
        check(timeline, digests, before[:40])
        assert {refusal_at(timeline, seq) for seq in range(first, last + 1)} == {409}
        seqs = [event.seq for transaction in reader.transactions() for event in transaction.events]
        for seq in random.Random(SEED).sample([seq for seq in seqs if seq > last], 30):
            with timeline.state_at(seq) as standing:
                known = replay(reader, seq)
                assert standing.state.digest() == known.state.digest()
                assert (standing.at.seq, standing.at.transaction) == (known.seq, known.transaction)
        with timeline.state_at(None) as standing:
            assert standing.state.digest() == replay(reader).state.digest()
        check(timeline, digests, before[40:50])
    assert hearing.seqs == seqs
    assert hearing.numbers == list(range(1, len(hearing.numbers) + 1))


def test_behind_a_gap_without_a_state_nothing_is_known(
    store: str, journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    first, last = record_with_gap(journal, RECORDS, lost=slice(120, 140))
    change(store, "UPDATE transactions SET checkpoint_seq = NULL, checkpoint_hash = NULL")
    change(store, "DELETE FROM checkpoints")
    with followed(journal.reader(), snapshot_events=100) as timeline:
        assert refusal_at(timeline, None) == 409
        assert {refusal_at(timeline, seq) for seq in (first, last, last + 1, last + 50)} == {409}
        check(timeline, digests, [first - 1])


def prune(journal: Journal, reader: JournalReader, folder: Path, *, before: int) -> int:
    """Export all and prune what lies before a checkpoint before `before`; its seq."""
    export_journal(reader, folder)
    engine = writing_engine(journal.url)
    try:
        return prune_rows(engine, reader, before_seq=before, exported=folder).checkpoint_seq
    finally:
        engine.dispose()


def test_what_was_pruned_is_refused_and_the_rest_answered(
    journal: Journal, digests: dict[int, tuple[int, int, str]], tmp_path: Path
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=150)
    cut = prune(journal, reader, tmp_path, before=450)
    with followed(reader, snapshot_events=100) as timeline:
        assert {refusal_at(timeline, seq) for seq in range(1, cut)} == {410}
        check(timeline, digests, [seq for seq in shuffled(digests) if seq >= cut][:80])
        with timeline.state_at(None) as standing:
            assert standing.state.digest() == digests[max(digests)][2]


def test_pruning_under_its_feet_ends_what_is_answered_there(
    journal: Journal, digests: dict[int, tuple[int, int, str]], tmp_path: Path
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=150)
    with followed(reader, snapshot_events=100) as timeline:
        check(timeline, digests, [100, 200, 420])
        cut = prune(journal, reader, tmp_path, before=450)
        assert {refusal_at(timeline, seq) for seq in (1, 100, 200, cut - 1)} == {410}
        check(timeline, digests, [seq for seq in shuffled(digests) if seq >= cut][:100])
        with timeline.state_at(None) as standing:
            assert standing.state.digest() == digests[max(digests)][2]


def test_what_was_pruned_before_it_was_read_is_not_missed(journal: Journal, tmp_path: Path) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=150)
    timeline = Timeline(reader, snapshot_events=100)
    # The follower has heard of the beginning when what follows goes.
    first = next(reader.transactions())
    timeline._follower._take([first])
    prune(journal, reader, tmp_path, before=450)
    timeline.start()
    follow_to(timeline, int(reader.head().seq))
    with timeline.state_at(None) as standing:
        assert standing.state.digest() == replay(reader).state.digest()
    timeline.stop()


def test_a_journal_of_which_all_was_pruned_has_the_state_it_ended_in(
    store: str, journal: Journal, digests: dict[int, tuple[int, int, str]]
) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=150)
    checkpoint = reader.checkpoint_before()
    assert checkpoint is not None
    change(store, "DELETE FROM events")
    change(store, "DELETE FROM transactions")
    change(store, f"DELETE FROM checkpoints WHERE seq < {checkpoint.seq}")
    timeline = Timeline(reader, poll_seconds=0.01)
    timeline.start()
    wait_until_loaded(timeline)
    with timeline.state_at(None) as standing:
        assert standing.state.digest() == checkpoint.digest
    check(timeline, digests, [int(checkpoint.seq)])
    assert refusal_at(timeline, int(checkpoint.seq) - 1) == 410
    timeline.stop()


def test_seqs_that_nobody_stored_are_refused(journal: Journal) -> None:
    reader = record_run(journal, RECORDS[:50], checkpoint_every=0)
    with followed(reader) as timeline:
        assert refusal_at(timeline, int(reader.head().seq) + 1) == 404
        assert refusal_at(timeline, 2**63 - 1) == 404
        assert refusal_at(timeline, 0) == 404


def test_an_empty_journal_has_no_state_and_gets_one(journal: Journal) -> None:
    with journal.record() as recorder:
        reader = journal.reader(recorder.journal_id)
        timeline = Timeline(reader, poll_seconds=0.01)
        timeline.start()
        wait_until_loaded(timeline)
        assert refusal_at(timeline, None) == 503
        recorder.append(RECORDS[0])
        recorder.flush()
        follow_to(timeline, int(recorder.durable_seq))
        with timeline.state_at(None) as standing:
            assert standing.state.nodes == {}
        timeline.stop()


def test_a_journal_that_does_not_fold_is_shown_up_to_the_fault(journal: Journal) -> None:
    records: list[TransactionRecord] = [*RECORDS[:60], *short_story()[1:], *RECORDS[60:80]]
    reader = record_run(journal, records, checkpoint_every=0)
    good = sum(len(record.events) for record in RECORDS[:60])
    hearing = Hearing()
    with followed(reader, snapshot_events=50, listeners=[hearing]) as timeline:
        following = timeline.following
        assert following.state == "failed"
        assert following.problem
        for seq in (good, good // 2, 30):
            with timeline.state_at(seq) as standing:
                assert standing.state.digest() == replay(reader, seq).state.digest()
        assert refusal_at(timeline, None) == 409
        assert {refusal_at(timeline, seq) for seq in (reader.head().seq, reader.head().seq - 1)} == {409}
    assert hearing.numbers == list(range(1, len(records) + 1))


def test_a_row_that_cannot_be_read_ends_what_is_known(store: str, journal: Journal) -> None:
    reader = record_run(journal, RECORDS, checkpoint_every=0)
    broken = reader.transaction(100)
    change(store, f"UPDATE events SET payload = 'nothing' WHERE seq = {broken.first_seq}")
    timeline = Timeline(reader, snapshot_events=50)
    timeline.start()
    wait_until_loaded(timeline)
    assert (timeline.following.state, timeline.following.seq) == ("failed", broken.first_seq - 1)
    assert refusal_at(timeline, None) == 409
    assert refusal_at(timeline, int(broken.last_seq)) == 409
    with timeline.state_at(int(broken.first_seq) - 1) as standing:
        assert standing.at.transaction == 99
    timeline.stop()
