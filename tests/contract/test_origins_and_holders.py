"""Origins, holders, marks and stories through splits say what a replay and a walk over everything say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import EventsDropped, LockAcquired, NodeCreated, NodeSplit, RollbackCause
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import EventFilter, Journal, JournalReader, StoredTransaction, number_transactions
from kvledger.journal.lookups.beginning import unseen
from kvledger.journal.lookups.births import birth
from kvledger.journal.lookups.history import anomalies, node_history, node_unseen
from kvledger.journal.lookups.holders import MAX_LEASES, holders
from kvledger.journal.lookups.marks import MAX_BUCKETS, Mark, marks
from kvledger.journal.lookups.provenance import provenance
from kvledger.journal.lookups.tenures import page_history
from kvledger.journal.replay import Fold, replay
from tests.support.hand_written import edited
from tests.support.places import keep_everywhere
from tests.support.stories import HEALTHY, refused_commit


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("origins")
    keep_everywhere(path)
    return path


@pytest.fixture
def reader(folder: Path) -> Iterator[JournalReader]:
    with Journal.open(folder / "run.db") as journal:
        yield journal.reader()


@pytest.fixture
def pruned(folder: Path) -> Iterator[JournalReader]:
    with Journal.open(folder / "pruned.db") as journal:
        yield journal.reader()


def given(transactions: list[StoredTransaction]) -> list[tuple[str, int]]:
    """Each id of a node or a lease in the order in which events give them."""
    events: list[Any] = [one.event for transaction in transactions for one in transaction.events]
    nodes = [
        ("node", int(event.head if isinstance(event, NodeSplit) else event.node))
        for event in events
        if isinstance(event, NodeSplit | NodeCreated)
    ]
    return nodes + [("lease", int(event.lease)) for event in events if event.kind == "lock_acquired"]


def test_ids_rise_with_the_seq_of_the_event_that_gives_them(reader: JournalReader) -> None:
    ids = given(list(reader.transactions()))
    assert ids == sorted(ids, key=lambda one: (one[0] == "lease", one[1]))
    assert len(set(ids)) == len(ids) > 60


def test_an_origin_is_what_the_replayed_node_names_and_brought_the_pages_it_has(
    reader: JournalReader,
) -> None:
    fold = Fold()
    compared = split = recovered = 0
    for transaction in reader.transactions():
        fold.apply(transaction)
        if fold.transaction % 7:
            continue
        for node in fold.state.nodes.values():
            found = provenance(reader, node.id, upto_seq=fold.seq)
            assert found.complete
            assert found.full is not None
            full: Any = found.full.event
            origin = full.full_origin
            assert (origin.request_id, origin.epoch) == (
                node.full_origin.request_id,
                node.full_origin.epoch,
            )
            pages = full.incoming_full if full.kind == "swa_recovered" else full.full_pages
            assert set(node.full.tolist()) <= set(pages.tolist())
            assert (found.swa is None) == (node.swa is None)
            if found.swa is not None and node.swa is not None:
                brought: Any = found.swa.event
                assert brought.swa_origin.epoch == node.swa_origin.epoch  # type: ignore[union-attr]
                assert set(node.swa.tolist()) <= set(brought.swa_pages.tolist())
            assert [step.seq for step in found.steps] == sorted({step.seq for step in found.steps})
            compared += 1
            split += any(step.event.kind == "node_split" for step in found.steps)
            recovered += any(step.event.kind == "swa_recovered" for step in found.steps)
    assert compared > 100
    assert split
    assert recovered


@pytest.mark.parametrize("node", [10**6, 2**40])
def test_a_node_that_never_was_has_no_origin_and_no_history(reader: JournalReader, node: int) -> None:
    with pytest.raises(InvalidArgument, match="there is no node"):
        provenance(reader, node)
    assert list(node_history(reader, node)) == []


def test_a_node_that_is_gone_or_not_yet_there_has_no_origin(reader: JournalReader) -> None:
    deleted = next(reader.find(EventFilter(kinds=("node_deleted",), undone=False)))
    event: Any = deleted.event
    made = birth(reader, event.node)
    assert made is not None
    assert provenance(reader, event.node, upto_seq=deleted.seq - 1).full is not None
    for seq in (deleted.seq, made.seq - 1):
        with pytest.raises(InvalidArgument, match=f"no node {event.node} at seq {seq}"):
            provenance(reader, event.node, upto_seq=seq)
    undone = next(reader.find(EventFilter(kinds=("node_created",), undone=True)))
    gone: Any = undone.event
    with pytest.raises(InvalidArgument, match="there is no node"):
        provenance(reader, gone.node, upto_seq=undone.seq)


def test_the_story_through_splits_is_that_of_the_nodes_it_was_cut_from(reader: JournalReader) -> None:
    transactions = list(reader.transactions())
    events: list[Any] = [one for transaction in transactions for one in transaction.events]
    made = {
        int(one.event.head if isinstance(one.event, NodeSplit) else one.event.node): one
        for one in events
        if isinstance(one.event, NodeSplit | NodeCreated)
    }
    longest = 0
    for node in made:
        expected: list[int] = []
        part, until = node, 2**62
        while True:
            own = [int(one.seq) for one in events if getattr(one.event, "node", 0) == part]
            expected = [seq for seq in own if seq <= until] + expected
            origin = made[part]
            if not isinstance(origin.event, NodeSplit):
                break
            part, until = int(origin.event.node), int(origin.seq)
            longest = max(longest, len(expected))
        told = [int(one.seq) for one in node_history(reader, node)]
        assert told == expected, node
        for cut in (0, len(told) // 2, len(told) - 1):
            rest = node_history(reader, node, after_seq=told[cut], limit=3)
            assert [int(one.seq) for one in rest] == told[cut + 1 : cut + 4]
        alone = [int(one.seq) for one in node_history(reader, node, through_splits=False)]
        assert alone == [seq for seq in told if seq >= made[node].seq]
        rest = node_history(reader, node, through_splits=False, after_seq=alone[0], limit=2)
        assert [int(one.seq) for one in rest] == alone[1:3]
        assert node_unseen(reader, node) is None
    assert longest > 4


def test_a_holder_is_told_by_the_event_that_gave_the_lease(reader: JournalReader) -> None:
    transactions = list(reader.transactions())
    expected: dict[int, tuple[Any, ...]] = {}
    for transaction in transactions:
        for stored in transaction.events:
            if isinstance(stored.event, LockAcquired) and not stored.undone:
                cells = (stored.seq, transaction.number, transaction.time_us, stored.event.request_id)
                expected[stored.event.lease] = cells
    fold = Fold()
    most = 0
    for transaction in transactions:
        fold.apply(transaction)
        leases = sorted(fold.state.leases, reverse=True)
        found = holders(reader, leases, upto_seq=fold.seq)
        assert [one.lease for one in found] == leases
        for one in found:
            node = fold.state.leases[one.lease].node
            assert (one.seq, one.transaction, one.time_us, one.request_id) == expected[one.lease]
            assert one.node == (None if node is None else node.id)
        most = max(most, len(leases))
    assert most > 1
    every = holders(reader, list(expected))
    assert [one.seq for one in every] == [told[0] for told in expected.values()]
    (late,) = holders(reader, [max(expected)], upto_seq=3)
    assert (late.seq, late.transaction, late.time_us) == (None, None, None)
    with pytest.raises(InvalidArgument, match="at most"):
        holders(reader, range(MAX_LEASES + 1))


@pytest.mark.parametrize("buckets", [1, 3, 64, MAX_BUCKETS])
def test_marks_count_what_stands_in_their_bucket(reader: JournalReader, buckets: int) -> None:
    transactions = list(reader.transactions())
    end = int(transactions[-1].last_seq)
    whole = {int(one.seq) for one, _ in anomalies(reader)}
    for first, last in ((1, end), (end // 3, end // 2), (17, 17), (end, end + 50)):
        found = marks(reader, first_seq=first, last_seq=last, buckets=buckets)
        assert (found.edges[0], found.edges[-1]) == (first, last + 1)
        assert len(found.counts) == len(found.edges) - 1 == min(buckets, last + 1 - first)
        widths = {b - a for a, b in zip(found.edges, found.edges[1:], strict=False)}
        assert max(widths) - min(widths) <= 1
        for i, mark in enumerate(found.counts):
            inside = range(found.edges[i], found.edges[i + 1])
            events: list[Any] = [one for t in transactions for one in t.events if one.seq in inside]
            live = [one.event for one in events if not one.undone]
            assert mark == Mark(
                rollbacks=sum(one.event.kind == "rolled_back" for one in events),
                anomalies=sum(one.seq in whole for one in events),
                recoveries_locked=sum(
                    event.kind == "swa_recovered" and event.mode == "keep_locked_full" for event in live
                ),
                resets=sum(event.kind == "cache_reset" for event in live),
                gaps=sum(event.kind == "events_dropped" for event in live),
            )
            if buckets == MAX_BUCKETS and i > 300:
                break
    if buckets == 1:
        (all_of_it,) = marks(reader, first_seq=1, last_seq=end, buckets=1).counts
        assert all_of_it.rollbacks > 4
        assert all_of_it.resets == 3
        assert all_of_it.anomalies > 6


def store(path: Path, transactions: list[StoredTransaction]) -> None:
    """Record transactions that were told by hand."""
    with Journal.open(path) as journal, journal.record() as recorder:
        for one in transactions:
            undone = bytearray(event.undone for event in one.events)
            events = [event.event for event in one.events]
            recorder.append(
                TransactionRecord(one.op, one.request_id, events, undone, one.rolled_back, one.reason)
            )


def test_recoveries_under_a_lock_and_gaps_are_marked_and_others_not(tmp_path: Path) -> None:
    locked, free = HEALTHY["recovery_under_lock"](), HEALTHY["recovery_without_lock"]()
    gap = number_transactions([TransactionRecord("gap", None, [EventsDropped(17, 40)], bytearray(1))])
    store(tmp_path / "locked.db", locked + gap)
    store(tmp_path / "free.db", free)
    with Journal.open(tmp_path / "locked.db") as journal:
        found = marks(journal.reader(), first_seq=1, last_seq=20, buckets=20).counts
    assert [i + 1 for i, mark in enumerate(found) if mark.recoveries_locked] == [13]
    assert [i + 1 for i, mark in enumerate(found) if mark.gaps] == [17]
    assert found[16] == Mark(gaps=1, anomalies=1)
    with Journal.open(tmp_path / "free.db") as journal:
        assert marks(journal.reader(), first_seq=1, last_seq=20, buckets=1).counts == (Mark(),)


@pytest.mark.parametrize(
    ("policy", "cause", "expected"),
    [
        ("remap", RollbackCause.REFUSED, Mark(rollbacks=1, anomalies=1)),
        ("skip", RollbackCause.SKIPPED, Mark(rollbacks=1)),
    ],
)
def test_a_part_that_is_refused_is_an_anomaly_unless_the_policy_skips_it(
    tmp_path: Path, policy: str, cause: RollbackCause, expected: Mark
) -> None:
    store(tmp_path / "run.db", edited(edited(refused_commit(), 1, locked_recovery=policy), 8, cause=cause))
    with Journal.open(tmp_path / "run.db") as journal:
        reader = journal.reader()
        assert marks(reader, first_seq=1, last_seq=14, buckets=1).counts == (expected,)
        told = [(one.seq, sentence) for one, sentence in anomalies(reader)]
    assert [seq for seq, _ in told] == [8] * expected.anomalies
    assert all(sentence.startswith("event 7 was undone, cause refused") for _, sentence in told)


@pytest.mark.parametrize(("first", "last", "buckets"), [(0, 5, 1), (6, 5, 1), (1, 2**70, 1), (1, 5, 0)])
def test_marks_of_no_range_are_refused(reader: JournalReader, first: int, last: int, buckets: int) -> None:
    with pytest.raises(InvalidArgument):
        marks(reader, first_seq=first, last_seq=last, buckets=buckets)


def test_anomalies_are_all_there_however_they_are_cut(reader: JournalReader) -> None:
    whole = [int(one.seq) for one, _ in anomalies(reader)]
    cut = [int(one.seq) for one, why in anomalies(reader) if "cut by a reset" in why]
    assert len(cut) >= 4
    assert [int(one.seq) for one, _ in anomalies(reader, newest_first=True)] == whole[::-1]
    for first in (*cut, cut[0] + 1, 1):
        for last in (*cut, cut[-1] + 1, int(reader.head().seq)):
            expected = [seq for seq in whole if first <= seq <= last]
            for newest_first in (False, True):
                found = anomalies(reader, first_seq=first, last_seq=last, newest_first=newest_first)
                assert [int(one.seq) for one, _ in found] == (expected[::-1] if newest_first else expected)
            found = anomalies(reader, after_seq=first - 1, before_seq=last + 1, limit=2)
            assert [int(one.seq) for one, _ in found] == expected[:2]


@pytest.mark.parametrize("side", ["full", "swa"])
def test_the_tenures_of_a_page_go_on_after_the_last_one_seen(reader: JournalReader, side: Any) -> None:
    most = 0
    for page in (1, 7, 20):
        whole = list(page_history(reader, side, page))
        pages: list[Any] = []
        after = None
        while page_of := list(page_history(reader, side, page, limit=2, after_seq=after)):
            pages += page_of
            after = page_of[-1].since
        assert pages == whole
        most = max(most, len(whole))
    assert most > 4


def test_what_was_pruned_is_not_known_and_the_rest_is(reader: JournalReader, pruned: JournalReader) -> None:
    begins = pruned.beginning()
    end = int(pruned.head().seq)
    assert reader.beginning().seq == 1
    assert 1 < begins.seq < end
    sentence = f"events before seq {begins.seq} were pruned; look in the exported files (--exported DIR)"
    missing = unseen(pruned)
    assert missing is not None
    assert (missing.first_seq, missing.last_seq, missing.sentence) == (1, begins.seq - 1, sentence)
    within = unseen(pruned, first_seq=begins.seq - 5)
    assert within is not None
    assert within.first_seq == begins.seq - 5
    assert unseen(pruned, first_seq=begins.seq) is None
    assert unseen(pruned, transaction=begins.transaction) is None
    assert unseen(pruned, transaction=begins.transaction - 1) is not None
    (oldest,) = pruned.find_transactions(limit=1)
    assert unseen(pruned, since_us=oldest.time_us + 1) is None
    assert unseen(pruned, since_us=oldest.time_us) is not None
    assert unseen(reader) is None

    held = replay(reader, upto=begins.seq - 1).state
    leases = sorted(held.leases)
    assert [one.seq for one in holders(pruned, leases)] == [None] * len(leases)
    later = [one for one in holders(reader, range(1, 40)) if one.seq is not None and one.seq >= begins.seq]
    assert list(holders(pruned, [one.lease for one in later])) == later
    assert later

    node = min(held.nodes)
    assert provenance(reader, node, upto_seq=begins.seq).complete
    assert not provenance(pruned, node, upto_seq=begins.seq).complete
    assert node_unseen(pruned, node) is not None
    assert node_unseen(pruned, node, after_seq=begins.seq - 1) is None
    created = next(pruned.find(EventFilter(kinds=("node_created",), undone=False)))
    event: Any = created.event
    assert node_unseen(pruned, event.node) is None

    assert list(page_history(pruned, "full", 1, last_seq=begins.seq - 2)) == []
    assert [one for one in page_history(pruned, "full", 1) if one.began != "checkpoint"] == [
        one for one in page_history(reader, "full", 1) if one.since >= begins.seq
    ]


def test_a_journal_without_any_event_begins_at_seq_1(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        journal.record().close()
        reader = journal.reader()
        assert (reader.beginning().seq, reader.beginning().transaction) == (1, 1)
        assert unseen(reader) is None
        assert (list(reader.find()), reader.count().count, holders(reader, [])) == ([], 0, ())
        assert birth(reader, 1) is None
        assert marks(reader, first_seq=1, last_seq=9, buckets=3).counts == (Mark(), Mark(), Mark())
