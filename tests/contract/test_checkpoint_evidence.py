"""On every kind of store: a state that was removed, replaced, moved or added is found, its hash or not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from kvledger.core.errors import NotExported
from kvledger.core.events import Origin
from kvledger.core.ids import RequestId, TxnId
from kvledger.journal import ChainBreak, Journal
from kvledger.journal.chain import Anchor, CheckpointName
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.export import ExportedJournal, Pruned, export_journal, prune_rows, verify_exported
from kvledger.journal.info import JournalInfo
from kvledger.journal.models import CheckpointRow
from kvledger.journal.records import StoredCheckpoint, checkpoint_cells
from kvledger.journal.restore import decode_state
from kvledger.journal.rows import Submission
from kvledger.journal.snapshot import encode_state
from kvledger.journal.verify import ChainTally
from tests.support.recorded_run import small_run
from tests.support.tampering import tamper

EVERY_EVENTS = 120


class Recorded:
    """A journal of some checkpoints, the newest of them at its end, where no transaction names it yet."""

    def __init__(self, store: str) -> None:
        self.store = store
        records = small_run(24)
        with Journal.open(store) as journal:
            with journal.record(checkpoint_every=EVERY_EVENTS) as recorder:
                writer, keeper = recorder._writer, recorder.keeper
                assert keeper is not None
                for place, one in enumerate(records, start=1):
                    if place == len(records):
                        keeper._every = 1
                    writer.store([Submission(one, 0)])
                    while keeper.has_work:
                        keeper.work()
            reader = journal.reader()
            self.info: JournalInfo = reader.info
            self.anchor: Anchor = reader.anchor()
            found = [reader.checkpoint_before(seq) for seq in reader.checkpoint_seqs()]
            self.ends = {int(one.number): (one.last_seq, one.hash) for one in reader.transactions()}
        self.checkpoints = [one for one in found if one is not None]
        assert len(self.checkpoints) >= 4
        assert self.anchor.checkpoint == name_of(self.checkpoints[-1])

    def breaks(self, anchor: Anchor | None = None, tally: ChainTally | None = None) -> list[ChainBreak]:
        with Journal.open(self.store) as journal:
            return list(journal.verify(anchor=anchor, tally=tally))

    def sealed(self, checkpoint: StoredCheckpoint) -> StoredCheckpoint:
        """With the hash that fits it."""
        return replace(checkpoint, hash=self.info.hash_of(checkpoint) or b"")

    def lie(self, checkpoint: StoredCheckpoint) -> StoredCheckpoint:
        """Another state of the same digest, at the same place, with a hash that fits."""
        state = decode_state(checkpoint.state)
        for node in state.nodes.values():
            node.full_origin = Origin(RequestId("somebody else"), 1)
        made = encode_state(state)
        assert made != checkpoint.state
        return self.sealed(replace(checkpoint, state=made))

    def put(self, *checkpoints: StoredCheckpoint) -> None:
        """Store these rows in place of those at their seqs."""
        engine = writing_engine(store_url(self.store))
        with engine.begin() as connection:
            for one in checkpoints:
                connection.execute(sa.delete(CheckpointRow).where(CheckpointRow.seq == one.seq))
                connection.execute(sa.insert(CheckpointRow).values(journal_id=1, **checkpoint_cells(one)))
        engine.dispose()

    def remove(self, checkpoint: StoredCheckpoint) -> None:
        tamper(self.store, f"DELETE FROM checkpoints WHERE seq = {checkpoint.seq}")

    def prune(self, checkpoint: StoredCheckpoint) -> None:
        """Remove what lies before a checkpoint, as pruning does, or somebody by hand."""
        tamper(
            self.store,
            f"DELETE FROM checkpoints WHERE seq < {checkpoint.seq}",
            f"DELETE FROM events WHERE seq <= {checkpoint.seq}",
            f"DELETE FROM transactions WHERE number <= {checkpoint.number}",
        )


def name_of(checkpoint: StoredCheckpoint) -> CheckpointName:
    return CheckpointName(checkpoint.seq, checkpoint.hash)


@pytest.fixture
def recorded(store: str) -> Recorded:
    return Recorded(store)


def only(breaks: list[ChainBreak]) -> ChainBreak:
    """The one row that all of them are about."""
    assert {(one.table, one.invariant) for one in breaks} == {("checkpoints", "chain")}
    (seq,) = {one.seq for one in breaks}
    assert seq is not None
    return breaks[0]


def test_nothing_is_wrong_with_what_was_recorded(recorded: Recorded) -> None:
    tally = ChainTally()
    assert recorded.breaks(recorded.anchor, tally) == []
    assert (tally.anchored, tally.proved, tally.checkpoints) == (True, True, len(recorded.checkpoints))


def test_a_removed_checkpoint_is_missed_by_the_transaction_that_names_it(recorded: Recorded) -> None:
    for gone in recorded.checkpoints[:-1]:
        recorded.remove(gone)
        found = only(recorded.breaks())
        number = gone.number + 1
        assert found.seq == gone.seq
        assert found.sentence == (
            f"the checkpoint at seq {gone.seq}, which transaction {number} names, is not there"
        )
        recorded.put(gone)
    assert recorded.breaks() == []


def test_a_checkpoint_replaced_with_its_own_hash_is_another_one_than_a_transaction_names(
    recorded: Recorded,
) -> None:
    for true in recorded.checkpoints[:-1]:
        recorded.put(recorded.lie(true))
        found = only(recorded.breaks())
        assert (found.seq, found.number) == (true.seq, true.number)
        assert f"is another one than transaction {true.number + 1} names" in found.sentence
        recorded.put(true)
    assert recorded.breaks() == []


def test_a_checkpoint_moved_to_another_transaction_is_missed_where_it_was(recorded: Recorded) -> None:
    moved = recorded.checkpoints[1]
    number = int(moved.number) - 3
    seq, link = recorded.ends[number]
    recorded.remove(moved)
    recorded.put(recorded.sealed(replace(moved, seq=seq, number=TxnId(number), chain_hash=link)))
    assert {(one.table, one.seq) for one in recorded.breaks()} >= {("checkpoints", int(moved.seq))}


@pytest.mark.parametrize("before", [0, 1], ids=["before the first", "between two"])
def test_an_added_checkpoint_is_not_one_of_those_that_follow_one_another(
    recorded: Recorded, before: int
) -> None:
    following = recorded.checkpoints[before]
    number = int(following.number) - 3
    seq, link = recorded.ends[number]
    added = replace(following, seq=seq, number=TxnId(number), chain_hash=link)
    recorded.put(recorded.sealed(added))
    found = only(recorded.breaks())
    assert (found.seq, found.number) == (seq, number)
    assert "was inserted" in found.sentence


def test_checkpoints_replaced_from_one_on_contradict_the_transactions(recorded: Recorded) -> None:
    first, *later = recorded.checkpoints[1:]
    forged = [recorded.lie(first)]
    for one in later:
        forged.append(recorded.sealed(replace(one, previous=name_of(forged[-1]))))
    recorded.put(*forged)
    breaks = recorded.breaks()
    assert [one.seq for one in breaks] == [one.seq for one in recorded.checkpoints[1:-1]]
    assert "is another one than transaction" in breaks[0].sentence


def test_of_two_stored_in_one_go_the_first_is_missed_by_the_second(recorded: Recorded) -> None:
    first, second = recorded.checkpoints[1:3]
    # As if both had been stored before the transaction that names only the second: its name is not looked at.
    number = first.number + 1
    tamper(
        recorded.store,
        f"UPDATE transactions SET checkpoint_seq = NULL, checkpoint_hash = NULL WHERE number = {number}",
    )
    recorded.remove(first)
    about = [one for one in recorded.breaks() if one.table == "checkpoints"]
    assert [one.sentence for one in about] == [
        f"the checkpoint at seq {first.seq}, which the checkpoint at seq {second.seq} names, is not there"
    ]
    recorded.put(recorded.lie(first))
    about = [one for one in recorded.breaks() if one.table == "checkpoints"]
    assert [one.seq for one in about] == [first.seq]


def replaced(recorded: Recorded) -> None:
    recorded.put(recorded.lie(recorded.checkpoints[-1]))


def removed(recorded: Recorded) -> None:
    recorded.remove(recorded.checkpoints[-1])


@pytest.mark.parametrize("done", [replaced, removed])
def test_the_newest_checkpoint_is_known_by_the_anchor_alone(
    recorded: Recorded, done: Callable[[Recorded], None]
) -> None:
    done(recorded)
    assert recorded.breaks() == []
    # What an anchor of version 1 says is true all the same, and it says nothing of checkpoints.
    old = replace(recorded.anchor, checkpoint=None, version=1)
    tally = ChainTally()
    assert recorded.breaks(old, tally) == []
    assert tally.anchored
    found = only(recorded.breaks(recorded.anchor))
    assert found.seq == recorded.checkpoints[-1].seq
    assert "the anchor names" in found.sentence


def test_an_anchor_names_a_checkpoint_from_before_it(recorded: Recorded) -> None:
    forged = replace(recorded.anchor, checkpoint=CheckpointName(recorded.checkpoints[0].seq, bytes(32)))
    found = only(recorded.breaks(forged))
    assert (found.seq, "another one than" in found.sentence) == (recorded.checkpoints[0].seq, True)


def at(recorded: Recorded, number: int, *, checkpoint: CheckpointName | None = None) -> Anchor:
    """The anchor that was taken after transaction `number`, of version 1 where it names no checkpoint."""
    seq, link = recorded.ends[number]
    version = 1 if checkpoint is None else 2
    return Anchor(recorded.info.epoch, number, seq, link, checkpoint, version)


def test_a_pruned_journal_is_proved_by_an_anchor_from_its_first_name_of_the_beginning_on(
    recorded: Recorded,
) -> None:
    start = recorded.checkpoints[1]
    recorded.prune(start)
    for anchor, proved in (
        (None, False),
        (at(recorded, int(start.number)), False),
        (at(recorded, int(start.number), checkpoint=name_of(start)), True),
        (at(recorded, int(start.number) + 1), True),
        (at(recorded, int(start.number) + 9), True),
        (recorded.anchor, True),
    ):
        tally = ChainTally()
        assert recorded.breaks(anchor, tally) == []
        assert (tally.proved, tally.start_seq, tally.anchored) == (proved, start.seq, anchor is not None)


def test_an_anchor_from_before_the_pruning_is_no_break_and_proves_nothing(recorded: Recorded) -> None:
    recorded.prune(recorded.checkpoints[1])
    for number, checkpoint in ((3, None), (int(recorded.checkpoints[0].number) + 1, recorded.checkpoints[0])):
        named = None if checkpoint is None else name_of(checkpoint)
        tally = ChainTally()
        assert recorded.breaks(at(recorded, number, checkpoint=named), tally) == []
        assert (tally.proved, tally.anchored) == (False, False)


def test_the_checkpoint_that_a_pruned_journal_begins_at_cannot_be_replaced(recorded: Recorded) -> None:
    start = recorded.checkpoints[1]
    recorded.prune(start)
    recorded.put(recorded.lie(start))
    assert only(recorded.breaks()).seq == start.seq


def test_a_checkpoint_left_before_the_beginning_of_a_pruned_journal_is_found(recorded: Recorded) -> None:
    early, start = recorded.checkpoints[:2]
    recorded.prune(start)
    recorded.put(early)
    found = only(recorded.breaks())
    assert (found.seq, "stands before the one" in found.sentence) == (early.seq, True)


def test_a_journal_of_which_only_the_state_is_left_is_proved_by_an_anchor_that_names_it(
    recorded: Recorded,
) -> None:
    recorded.prune(recorded.checkpoints[-1])
    for anchor, proved in ((recorded.anchor, True), (None, False)):
        tally = ChainTally()
        assert recorded.breaks(anchor, tally) == []
        assert (tally.transactions, tally.checkpoints, tally.proved) == (0, 1, proved)
    recorded.put(recorded.lie(recorded.checkpoints[-1]))
    assert only(recorded.breaks(recorded.anchor)).seq == recorded.checkpoints[-1].seq


@pytest.mark.parametrize("exported_before", [True, False], ids=["known to the files", "known to rows alone"])
def test_a_journal_is_not_pruned_at_a_checkpoint_that_was_replaced(
    recorded: Recorded, tmp_path: Path, exported_before: bool
) -> None:
    cut = recorded.checkpoints[1]
    folder = tmp_path / "out"

    def pruned() -> Pruned:
        with Journal.open(recorded.store) as journal:
            engine = writing_engine(journal.url)
            try:
                return prune_rows(engine, journal.reader(), before_seq=cut.seq + 1, exported=folder)
            finally:
                engine.dispose()

    if not exported_before:
        recorded.remove(cut)
    with Journal.open(recorded.store) as journal:
        # A file need not hold a state that was stored after it was written.
        export_journal(journal.reader(), folder, form="jsonl", upto_seq=cut.seq)
    recorded.put(recorded.lie(cut))
    with pytest.raises(NotExported, match=f"the checkpoint at seq {cut.seq} is another one than"):
        pruned()
    with Journal.open(recorded.store) as journal:
        assert next(journal.reader().transactions()).number == 1
    recorded.put(cut)
    assert pruned().checkpoint_seq == cut.seq
    assert recorded.breaks() == []
    with Journal.open(recorded.store) as journal:
        both, tally = ExportedJournal.open(folder, rest=journal.reader()), ChainTally()
        assert list(verify_exported(both, anchor=recorded.anchor, tally=tally)) == []
    assert (tally.anchored, tally.proved) == (True, True)


def test_a_checkpoint_that_differs_between_files_and_database_is_found(
    recorded: Recorded, tmp_path: Path
) -> None:
    newest = recorded.checkpoints[-1]
    with Journal.open(recorded.store) as journal:
        export_journal(journal.reader(), tmp_path, form="jsonl")
    recorded.put(recorded.lie(newest))
    assert recorded.breaks() == []
    with Journal.open(recorded.store) as journal:
        both = ExportedJournal.open(tmp_path, rest=journal.reader())
        (found,) = verify_exported(both)
    assert (found.table, found.seq) == ("checkpoints", newest.seq)
    assert "another one in the database than in the files" in found.sentence


def test_a_checkpoint_that_only_the_files_still_hold_is_missed_in_the_database(
    recorded: Recorded, tmp_path: Path
) -> None:
    gone = recorded.checkpoints[1]
    with Journal.open(recorded.store) as journal:
        export_journal(journal.reader(), tmp_path, form="jsonl")
    recorded.remove(gone)
    with Journal.open(recorded.store) as journal:
        (found,) = verify_exported(ExportedJournal.open(tmp_path, rest=journal.reader()))
    assert (found.table, found.seq) == ("checkpoints", gone.seq)
    assert "is not there" in found.sentence
