"""The same question has the same answer wherever the journal is kept, and it is what a plain walk finds."""

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import InvalidArgument
from kvledger.core.events import EVENTS, NodeSplit
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.journal import (
    EventFilter,
    FoundEvent,
    Journal,
    LookUpSource,
    StoredTransaction,
    TransactionFilter,
)
from kvledger.journal.export import ExportedJournal, export_journal
from kvledger.journal.lookups.births import acquisitions, birth
from kvledger.journal.lookups.events import FIRST_BATCH
from kvledger.journal.lookups.history import anomalies, node_history, request_history
from kvledger.journal.lookups.holders import holders
from kvledger.journal.lookups.marks import marks
from kvledger.journal.lookups.provenance import provenance
from kvledger.journal.lookups.tenures import page_history
from kvledger.tools.reading.sources import open_source
from tests.support.places import PLACES, keep_everywhere, opened, suffer
from tests.support.private_tokens import live_privately
from tests.support.stored_events import facts
from tests.support.stores import change

ASKED = 30
"""Questions drawn for each place."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places")
    keep_everywhere(path)
    return path


@pytest.fixture(params=[*PLACES, "postgresql"])
def source(request: pytest.FixtureRequest, folder: Path) -> Iterator[LookUpSource]:
    if request.param != "postgresql":
        with opened(folder, request.param) as found:
            yield found
        return
    with Journal.open(request.getfixturevalue("postgresql_store")) as journal:
        with journal.record(durability="background", checkpoint_every=50) as recorder:
            suffer(live_privately(recorder))
        yield journal.reader()


def walked_events(transactions: list[StoredTransaction], wanted: EventFilter) -> list[int]:
    """The seqs that match, found by looking at everything."""
    return [
        int(one.seq)
        for transaction in transactions
        for one in transaction.events
        if (not wanted.kinds or one.event.kind in wanted.kinds)
        and (not wanted.nodes or getattr(one.event, "node", None) in wanted.nodes)
        and (
            wanted.request_id is None
            or wanted.request_id == transaction.request_id
            or wanted.request_id
            in (getattr(one.event, "request_id", None), getattr(one.event, "owner", None))
        )
        and (wanted.transaction is None or wanted.transaction == transaction.number)
        and (wanted.undone is None or wanted.undone == one.undone)
        and (wanted.since_us is None or transaction.time_us >= wanted.since_us)
        and (wanted.until_us is None or transaction.time_us < wanted.until_us)
        and (wanted.first_seq is None or one.seq >= wanted.first_seq)
        and (wanted.last_seq is None or one.seq <= wanted.last_seq)
    ]


def walked_transactions(transactions: list[StoredTransaction], wanted: TransactionFilter) -> list[int]:
    """The numbers that match, found by looking at everything."""
    return [
        int(one.number)
        for one in transactions
        if (not wanted.ops or one.op in wanted.ops)
        and (wanted.request_id is None or wanted.request_id == one.request_id)
        and (wanted.rolled_back is None or wanted.rolled_back == one.rolled_back)
        and (wanted.since_us is None or one.time_us >= wanted.since_us)
        and (wanted.until_us is None or one.time_us < wanted.until_us)
        and (wanted.first_seq is None or max(one.last_seq, one.first_seq) >= wanted.first_seq)
        and (wanted.last_seq is None or one.first_seq <= wanted.last_seq)
    ]


def questions(transactions: list[StoredTransaction], dice: random.Random) -> Iterator[EventFilter]:
    """Questions that draw each condition or leave it out; some of them have no answer."""
    end = int(transactions[-1].last_seq)
    nodes = sorted({e.event.node for t in transactions for e in t.events if isinstance(e.event, NodeSplit)})
    while True:
        asked = EventFilter()
        chosen = dice.sample(range(7), dice.choice((0, 1, 1, 1, 2, 2, 3)))
        low = dice.randrange(1, end)
        times = sorted(dice.choice(transactions).time_us for _ in range(2))
        drawn: list[dict[str, Any]] = [
            {"kinds": tuple(dice.sample(sorted(EVENTS), dice.choice((1, 2, 5))))},
            {"nodes": tuple(dice.choice(nodes) for _ in range(dice.choice((1, 3))))},
            {"request_id": RequestId(f"r{dice.randrange(13)}")},
            {"transaction": dice.choice(transactions).number},
            {"undone": dice.choice((True, False))},
            {"since_us": times[0], "until_us": dice.choice((None, times[1]))},
            {"first_seq": Seq(low), "last_seq": Seq(low + dice.randrange(end))},
        ]
        for which in chosen:
            asked = replace(asked, **drawn[which])
        yield asked


def test_every_question_for_events_is_answered_as_by_a_walk(source: LookUpSource) -> None:
    transactions = list(source.transactions())
    dice = random.Random(41)
    answered = 0
    for wanted in islice(questions(transactions, dice), ASKED):
        expected = walked_events(transactions, wanted)
        answered += bool(expected)
        assert [one.seq for one in source.find(wanted)] == expected, wanted
        assert [one.seq for one in source.find(wanted, newest_first=True)] == expected[::-1], wanted
        limit = dice.choice((1, 3, 40))
        for newest_first in (False, True):
            pages: list[int] = []
            cursor = None
            for _ in range(6):
                page = list(
                    source.find(
                        wanted,
                        limit=limit,
                        **{"before_seq" if newest_first else "after_seq": cursor},
                        newest_first=newest_first,
                    )
                )
                pages += [one.seq for one in page]
                if len(page) < limit:
                    break
                cursor = page[-1].seq
            assert pages == (expected[::-1] if newest_first else expected)[: 6 * limit], wanted
        for upto in (len(expected) or 1, 7):
            counted = source.count(wanted, upto=upto)
            assert (counted.count, counted.exact) == (min(upto, len(expected)), len(expected) <= upto), wanted
    assert answered > ASKED // 2


def test_every_question_for_transactions_is_answered_as_by_a_walk(source: LookUpSource) -> None:
    transactions = list(source.transactions())
    dice = random.Random(43)
    answered = 0
    for asked in islice(questions(transactions, dice), ASKED):
        wanted = TransactionFilter(
            ops=tuple(dice.sample(sorted({one.op for one in transactions}), 2))
            if dice.random() < 0.4
            else (),
            rolled_back=asked.undone,
            **{
                name: getattr(asked, name)
                for name in ("request_id", "since_us", "until_us", "first_seq", "last_seq")
            },
        )
        expected = walked_transactions(transactions, wanted)
        answered += bool(expected)
        for newest_first in (False, True):
            ordered = expected[::-1] if newest_first else expected
            found = list(source.find_transactions(wanted, newest_first=newest_first))
            assert [one.number for one in found] == ordered, wanted
            pages: list[int] = []
            cursor = None
            for _ in range(6):
                page = list(
                    source.find_transactions(
                        wanted,
                        limit=5,
                        **{"before" if newest_first else "after": cursor},
                        newest_first=newest_first,
                    )
                )
                pages += [one.number for one in page]
                if len(page) < 5:
                    break
                cursor = page[-1].number
            assert pages == ordered[:30], wanted
    assert answered > ASKED // 2
    rows = {one.number: one for one in source.find_transactions()}
    assert len(rows) == len(transactions)
    for one in transactions:
        row = rows[one.number]
        assert (row.op, row.request_id, row.rolled_back, row.reason, row.time_us) == (
            one.op,
            one.request_id,
            one.rolled_back,
            one.reason,
            one.time_us,
        )
        assert (row.first_seq, row.event_count, row.last_seq) == (
            one.first_seq,
            len(one.events),
            one.last_seq,
        )


def told(found: FoundEvent) -> tuple[Any, ...]:
    return (found.seq, found.undone, found.transaction, found.op, found.time_us, facts(found.event))


def everything_about(source: LookUpSource) -> dict[str, Any]:
    """The answers of all that is built upon the look-ups."""
    end = int(source.head().seq)
    made: list[Any] = [one.event for one in source.find(EventFilter(kinds=("node_created", "node_split")))]
    locks: list[Any] = [one.event for one in source.find(EventFilter(kinds=("lock_acquired",)))]
    nodes = [int(event.head if event.kind == "node_split" else event.node) for event in made][::5]
    leases = [int(event.lease) for event in locks][::3]
    origins: list[Any] = []
    for node in nodes:
        for at in (end // 3, end):
            try:
                origin = provenance(source, node, upto_seq=at)
            except InvalidArgument as refused:
                origins.append(str(refused))
                continue
            brought = (origin.full and told(origin.full), origin.swa and told(origin.swa))
            origins.append((brought, [told(step) for step in origin.steps], origin.complete))
    return {
        "nodes": [[told(one) for one in node_history(source, node)] for node in nodes],
        "own": [[told(one) for one in node_history(source, node, through_splits=False)] for node in nodes],
        "request": [told(one) for one in request_history(source, "r5")],
        "anomalies": [(told(one), why) for one, why in anomalies(source)],
        "late anomalies": [told(one) for one, _ in anomalies(source, newest_first=True, limit=5)],
        "marks": [marks(source, first_seq=1, last_seq=end, buckets=n) for n in (1, 7, 100)],
        "holders": holders(source, [*leases, 10**6], upto_seq=end),
        "births": [told(found) for node in nodes if (found := birth(source, node))],
        "unborn": [birth(source, 10**6), acquisitions(source, [10**6])],
        "origins": origins,
        "pages": [list(page_history(source, "full", page)) for page in (1, 20, 50)],
        "swa pages": [list(page_history(source, "swa", page, first_seq=end // 4)) for page in (1, 20)],
    }


@pytest.mark.parametrize("place", PLACES[1:])
def test_histories_marks_holders_and_origins_are_the_same_everywhere(folder: Path, place: str) -> None:
    with opened(folder, PLACES[0]) as database, opened(folder, place) as other:
        expected, found = everything_about(database), everything_about(other)
        assert database.indexed
        assert isinstance(other, ExportedJournal)
        assert other.beginning().seq == 1
    for name, answer in expected.items():
        assert found[name] == answer, name
        assert answer, name


def test_a_question_that_no_journal_can_answer_is_refused_everywhere(source: LookUpSource) -> None:
    refused: list[Any] = [
        EventFilter(kinds=("evict",)),
        EventFilter(nodes=tuple(map(NodeId, range(300)))),
        EventFilter(nodes=(NodeId(2**63),)),
        EventFilter(transaction=TxnId(2**70)),
        EventFilter(since_us=2**64),
        EventFilter(request_id=RequestId("a\0b")),
        EventFilter(request_id=RequestId("\ud800")),
    ]
    for wanted in refused:
        with pytest.raises(InvalidArgument):
            list(source.find(wanted))
        with pytest.raises(InvalidArgument):
            source.count(wanted)
    with pytest.raises(InvalidArgument, match="limit"):
        list(source.find(limit=0))
    with pytest.raises(InvalidArgument, match="limit"):
        list(source.find_transactions(limit=0))
    with pytest.raises(InvalidArgument, match="no name"):
        list(source.find_transactions(TransactionFilter(ops=("\0",))))


def test_seqs_and_numbers_beyond_every_journal_find_nothing(source: LookUpSource) -> None:
    beyond = 2**64
    assert list(source.find(EventFilter(first_seq=Seq(beyond)))) == []
    assert list(source.find(after_seq=beyond)) == []
    assert list(source.find(before_seq=-beyond, newest_first=True)) == []
    assert list(source.find_transactions(after=beyond)) == []
    assert list(source.find_transactions(TransactionFilter(first_seq=Seq(beyond)))) == []
    assert list(source.find_transactions(TransactionFilter(last_seq=Seq(-beyond)))) == []
    assert len(list(source.find(before_seq=beyond, limit=3, newest_first=True))) == 3
    assert len(list(source.find_transactions(before=beyond, limit=3, newest_first=True))) == 3


def test_newest_first_a_file_is_read_in_as_many_turns_as_it_takes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvledger.journal.export.lookup.BATCH_MATCHES", 7)
    for place in PLACES[1:]:
        with opened(folder, place) as source:
            whole = [one.seq for one in source.find()]
            assert [one.seq for one in source.find(newest_first=True)] == whole[::-1]
            numbers = [one.number for one in source.find_transactions()]
            assert [one.number for one in source.find_transactions(newest_first=True)] == numbers[::-1]


def test_what_the_database_still_has_is_not_looked_for_in_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(folder, PLACES[-1]) as source, Journal.open(folder / "pruned.db") as journal:
        begins = journal.reader().beginning()

        def refuse(*_: Any) -> Any:
            raise ZeroDivisionError("a file was read")

        monkeypatch.setattr("kvledger.journal.export.piece.Piece.cells", refuse)
        assert [one.seq for one in source.find(after_seq=begins.seq - 1)] == [
            one.seq for one in journal.reader().find()
        ]
        assert len(list(source.find(limit=5, newest_first=True))) == 5
        assert len(list(source.find_transactions(after=begins.transaction - 1, limit=5))) == 5
        assert source.count(EventFilter(first_seq=begins.seq)).count > 50
        with pytest.raises(ZeroDivisionError):
            list(source.find(limit=1))


def test_files_answer_for_a_database_that_ends_before_them(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "run.db", tmp_path / "older.db")
    with opened(folder, "parquet") as files:
        last = int(files.head().number)
        whole = [one.seq for one in files.find()]
        numbers = [one.number for one in files.find_transactions()]
    change(
        f"sqlite:///{tmp_path / 'older.db'}",
        f"DELETE FROM events WHERE txn > {last - 9}",
        f"DELETE FROM checkpoints WHERE number > {last - 9}",
        f"DELETE FROM transactions WHERE number > {last - 9}",
    )
    with open_source(str(tmp_path / "older.db"), exported=folder / "parquet") as both:
        assert [one.seq for one in both.source.find()] == whole
        assert [one.seq for one in both.source.find(newest_first=True)] == whole[::-1]
        assert [one.number for one in both.source.find_transactions()] == numbers
        assert both.source.count().count == len(whole)


@pytest.mark.parametrize("form", ["database", "files"])
def test_a_transaction_that_rolled_back_many_times_is_found_once(tmp_path: Path, form: str) -> None:
    config = CacheConfig(page_size=1, sliding_window=2, full_tokens=32, swa_tokens=32)
    with Journal.open(tmp_path / "run.db") as journal:
        with journal.record() as recorder:
            cache = HybridCache(config, sink=recorder)
            for _ in range(2):
                with suppress(ZeroDivisionError), cache.transaction("again and again") as transaction:
                    for _ in range(FIRST_BATCH + 8):
                        savepoint = transaction.savepoint()
                        cache.alloc(1)
                        transaction.rollback(to=savepoint)
                    raise ZeroDivisionError
        export_journal(journal.reader(), tmp_path / "files")
        place = tmp_path / "run.db" if form == "database" else tmp_path / "files"
        with open_source(str(place)) as found:
            source = found.source
            transactions = list(source.transactions())
            undone = [one.seq for t in transactions for one in t.events if one.undone]
            assert len(undone) == 2 * 2 * (FIRST_BATCH + 8)
            for newest_first in (False, True):
                order = slice(None, None, -1 if newest_first else 1)
                asked = source.find(EventFilter(undone=True), newest_first=newest_first)
                assert [one.seq for one in asked] == undone[order]
                for limit in (None, 1, 2, 9):
                    rows = source.find_transactions(
                        TransactionFilter(rolled_back=True), limit=limit, newest_first=newest_first
                    )
                    assert [one.number for one in rows] == [2, 3][order][:limit]
            assert source.count(EventFilter(undone=True)).count == len(undone)
