"""Full states stand beside the events, and replay from any of them is replay from the beginning."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from kvledger.core.errors import InvalidArgument, JournalError, JournalFormatError
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal, number_transactions
from kvledger.journal.audit import audit
from kvledger.journal.keeper import Keeper
from kvledger.journal.lookups.tenures import page_history
from kvledger.journal.replay import ReplayError, replay
from kvledger.journal.rows import Submission
from kvledger.journal.snapshot import encode_state
from tests.support.recorded_run import record_run, small_run
from tests.support.stored_events import short_story
from tests.support.stores import change


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


def test_replay_from_the_nearest_checkpoint_is_replay_from_the_start_at_every_boundary(
    journal: Journal,
) -> None:
    reader = record_run(journal, small_run(), checkpoint_every=150)
    checkpoints = reader.checkpoint_seqs()
    assert len(checkpoints) >= 5
    stored = list(reader.transactions())
    resumed = 0
    for boundary in range(1, len(stored) + 1, 19):
        seq = stored[boundary - 1].last_seq
        whole, near = replay(stored[:boundary], upto=seq), replay(reader, upto=seq)
        assert (near.seq, near.state.digest()) == (whole.seq, whole.state.digest())
        assert encode_state(near.state) == encode_state(whole.state)
        before = [at for at in checkpoints if at <= seq]
        assert near.checkpoint_seq == (before[-1] if before else None)
        resumed += near.checkpoint_seq is not None
    assert resumed > 10


@pytest.mark.parametrize("how", [{"tokens": "hash", "key": b"k" * 32}, {"tokens": "none"}])
def test_states_keep_what_the_token_policy_keeps_and_no_more(journal: Journal, how: dict[str, Any]) -> None:
    reader = record_run(journal, small_run(), checkpoint_every=150, **how)
    near, whole = replay(reader), replay(reader.transactions())
    assert near.checkpoint_seq is not None
    assert encode_state(near.state) == encode_state(whole.state)
    assert near.state.token_policy == how["tokens"]
    assert audit(reader, chain=journal.verify()).verdict == "pass"


def test_a_state_is_stored_about_every_so_many_events_and_the_audit_reproduces_each(journal: Journal) -> None:
    reader = record_run(journal, small_run(), checkpoint_every=150)
    places = (0, *reader.checkpoint_seqs())
    assert all(150 <= then - before < 150 + 120 for before, then in pairwise(places))
    verdict = audit(reader, chain=journal.verify())
    assert (verdict.verdict, verdict.checkpoint_seq, verdict.gaps) == ("pass", None, ())
    assert verdict.counts.full_states_reproduced == verdict.counts.full_states == len(places) - 1


def test_no_state_is_stored_where_none_was_asked_for(journal: Journal) -> None:
    assert record_run(journal, small_run(), checkpoint_every=0).checkpoint_seqs() == ()
    with pytest.raises(InvalidArgument, match="checkpoint_every"):
        journal.record(checkpoint_every=-1)


def test_a_journal_that_does_not_fold_is_recorded_all_the_same(journal: Journal) -> None:
    with journal.record(checkpoint_every=1) as recorder:
        for transaction in short_story():
            recorder.append(transaction)
            recorder.flush()
    assert recorder.durable_seq == 8
    assert recorder.keeper is not None
    assert isinstance(recorder.keeper.problem, ReplayError)


def test_a_state_that_was_changed_is_not_replayed_from(store: str, journal: Journal) -> None:
    reader = record_run(journal, small_run(), checkpoint_every=500)
    newest = reader.checkpoint_seqs()[-1]
    change(store, f"UPDATE checkpoints SET number = number + 1 WHERE seq = {newest}")
    with pytest.raises(JournalFormatError, match="was changed"):
        replay(reader)
    found, *_ = journal.verify()
    assert found.table == "checkpoints"


def test_a_state_that_is_not_what_the_events_amount_to_is_a_finding(journal: Journal) -> None:
    reader = record_run(journal, small_run(), checkpoint_every=500)
    places = {number: "0" * 64 for number, _ in reader.checkpoint_places()}

    class Lying:
        transactions = staticmethod(reader.transactions)
        checkpoint_before = staticmethod(reader.checkpoint_before)
        checkpoint_after = staticmethod(reader.checkpoint_after)
        checkpoint_places = staticmethod(lambda: iter(places.items()))
        recorded_config = staticmethod(reader.recorded_config)

    verdict = audit(Lying())
    assert (verdict.verdict, len(places)) == ("fail", verdict.counts.full_states)
    assert {finding.invariant for finding in verdict.findings} == {"checkpoint"}


def records_and_gap() -> tuple[list[TransactionRecord], slice]:
    records = list(small_run())
    return records, slice(200, 230)


def with_a_gap(journal: Journal) -> Keeper:
    """A recorder's writer that gives thirty transactions up, by hand and in one thread."""
    records, lost = records_and_gap()
    with journal.record(checkpoint_every=0, on_failure="degrade") as recorder:
        recorder.append(records[0])
        recorder.flush()
        writer, keeper = recorder._writer, recorder.keeper
        assert keeper is not None
        while keeper.has_work:
            keeper.work()
        for place, one in enumerate(records[1:], start=1):
            if lost.start <= place < lost.stop:
                writer.give_up([Submission(one, 0)])
            else:
                if place == lost.stop:
                    writer.store_gap(0)
                writer.store([Submission(one, 0)])
        keeper.finish()
    return keeper


def test_after_a_gap_replay_and_audit_go_on_from_the_state_behind_it_and_do_not_pass(
    journal: Journal,
) -> None:
    keeper = with_a_gap(journal)
    assert (keeper.problem, keeper.counters.checkpoints) == (None, 1)
    reader = journal.reader()
    (resumed,) = reader.checkpoint_seqs()
    records, lost = records_and_gap()
    before = sum(len(one.events) for one in records[: lost.start])
    dropped = sum(len(one.events) for one in records[lost])
    assert resumed == before + dropped + 1

    everything = replay(number_transactions(small_run()))
    assert replay(reader).state.digest() == everything.state.digest()
    assert replay(reader, upto=before).seq == before
    with pytest.raises(ReplayError):
        replay(list(reader.transactions()))

    for inside in (before + 1, before + dropped):
        with pytest.raises(ReplayError, match="were not stored"):
            replay(reader, upto=inside)
    for one in page_history(reader, "full", 1, last_seq=before + 1):
        assert one.until is not None
    whole = [one for one in page_history(reader, "full", 1) if one.ended == "events_dropped"]
    assert all(one.until == before + 1 for one in whole)

    verdict = audit(reader, chain=journal.verify())
    assert (verdict.verdict, verdict.findings) == ("unverified", ())
    (gap,) = verdict.gaps
    assert (gap.first_seq, gap.last_seq) == (before + 1, resumed)
    assert (gap.dropped, gap.resumed_seq) == (dropped, resumed)
    assert f"resumed at checkpoint {resumed}" in verdict.render()
    assert verdict.counts.transactions == len(records) - 30 + 1


def test_a_gap_without_a_state_behind_it_ends_what_is_known(store: str, journal: Journal) -> None:
    with_a_gap(journal)
    change(store, "DELETE FROM checkpoints")
    verdict = audit(journal.reader())
    assert (verdict.verdict, verdict.gaps[0].resumed_seq) == ("unverified", None)
    with pytest.raises(JournalError, match="were not stored"):
        replay(journal.reader())
