"""What is recorded in a store can be read back: all of it, in order, by anyone, while it is being written."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.core.errors import InvalidArgument, JournalError, JournalFormatError, UnknownJournal
from kvledger.core.events import Evicted, NodeSplit
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import (
    EventFilter,
    Journal,
    JournalReader,
    StoredTransaction,
    batches,
    number_transactions,
)
from kvledger.journal.stored_tokens import StoredTokens
from tests.support.stored_events import allocated, facts, opened, record, seeded, short_story, transactions
from tests.support.stores import change, rows

DURABILITIES = ("commit", "step", "background")


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


def written(journal: Journal, story: list[TransactionRecord], **how: Any) -> JournalReader:
    with journal.record(**how) as recorder:
        for transaction in story:
            recorder.append(transaction)
    return journal.reader(recorder.journal_id)


def comparable(stored: StoredTransaction) -> tuple[Any, ...]:
    return (
        stored.number,
        stored.op,
        stored.request_id,
        stored.rolled_back,
        stored.reason,
        stored.first_seq,
        [(event.seq, event.undone, facts(event.event)) for event in stored.events],
    )


@pytest.mark.parametrize("durability", DURABILITIES)
def test_transactions_come_back_as_they_were_recorded(journal: Journal, durability: str) -> None:
    @settings(seeded, max_examples=15)
    @given(story=st.lists(transactions(), max_size=5))
    def check(story: list[TransactionRecord]) -> None:
        read = written(journal, story, durability=durability)
        kept = [StoredTokens().stored(transaction) for transaction in story]
        assert [comparable(one) for one in read.transactions()] == [
            comparable(one) for one in number_transactions(kept)
        ]
        assert list(journal.verify(read.info.id)) == []

    check()


def test_seqs_and_numbers_are_dense_from_1_in_every_journal_of_a_store(journal: Journal) -> None:
    for _ in range(2):
        stored = list(written(journal, short_story()).transactions())
        assert [one.number for one in stored] == [1, 2, 3, 4, 5, 6]
        assert [event.seq for one in stored for event in one.events] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert [(one.first_seq, one.last_seq) for one in stored][2] == (4, 3)


def test_each_transaction_links_to_the_one_before_and_the_first_to_the_journal(journal: Journal) -> None:
    read = written(journal, short_story())
    links = [read.info.genesis, *[one.hash for one in read.transactions()]]
    assert [one.previous_hash for one in read.transactions()] == links[:-1]
    assert len(set(links)) == 7
    assert (read.head().number, read.head().seq, read.head().hash) == (6, 8, links[-1])


def test_the_head_of_an_empty_journal_is_its_genesis(journal: Journal) -> None:
    read = written(journal, [])
    assert (read.head().number, read.head().seq, read.head().hash) == (0, 0, read.info.genesis)
    assert list(read.transactions()) == []


def test_the_config_is_that_of_the_first_cache_opened(journal: Journal) -> None:
    assert written(journal, [record(op="early")]).info.config is None
    story = [record(), record(opened(device="cpu")), record(opened(device="other"))]
    assert written(journal, story).info.config == {"page_size": 1, "device": "cpu"}


def test_a_reader_takes_the_newest_journal_or_one_by_id_or_the_newest_of_a_name(journal: Journal) -> None:
    first, second, third = (written(journal, [], name=name).info for name in ("a", "b", "a"))
    assert [info.name for info in journal.list()] == ["a", "b", "a"]
    assert journal.reader().info == third
    assert journal.reader(first.id).info == first
    assert journal.reader("a").info == third
    assert journal.reader("b").info == second
    assert len({info.epoch for info in journal.list()}) == 3


@pytest.mark.parametrize("wanted", [None, 7, "no such name"])
def test_a_journal_that_is_not_there_is_unknown(journal: Journal, wanted: Any) -> None:
    with pytest.raises(UnknownJournal):
        journal.reader(wanted)


@pytest.mark.parametrize(
    ("upto_seq", "numbers"),
    [
        (0, []),
        (1, [1]),
        (2, [1]),
        (3, [1, 2, 3]),
        (5, [1, 2, 3, 4]),
        (6, [1, 2, 3, 4]),
        (99, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_reading_up_to_a_seq_ends_at_the_last_boundary_at_or_before_it(
    journal: Journal, upto_seq: int, numbers: list[int]
) -> None:
    read = written(journal, short_story())
    assert [one.number for one in read.transactions(upto_seq=Seq(upto_seq))] == numbers


def test_reading_can_start_at_any_transaction(journal: Journal) -> None:
    read = written(journal, short_story())
    assert [one.number for one in read.transactions(first=TxnId(5))] == [5, 6]
    assert list(read.transactions(first=7)) == []
    assert read.transaction(4).reason == "refused"
    for wrong in (0, -1):
        with pytest.raises(InvalidArgument):
            next(read.transactions(first=wrong))
    with pytest.raises(InvalidArgument):
        read.transaction(7)


@pytest.mark.parametrize(("batch_transactions", "batch_events"), [(1, 1), (2, 3), (512, 1), (3, 8192)])
def test_batches_of_any_size_read_the_same(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, batch_transactions: int, batch_events: int
) -> None:
    read = written(journal, short_story())
    whole = [comparable(one) for one in read.transactions()]
    events = [event.seq for event in read.events()]
    monkeypatch.setattr(batches, "BATCH_TRANSACTIONS", batch_transactions)
    monkeypatch.setattr(batches, "BATCH_EVENTS", batch_events)
    assert [comparable(one) for one in read.transactions()] == whole
    assert [event.seq for event in read.events()] == events


def test_a_second_connection_reads_whole_transactions_while_the_first_still_writes(
    journal: Journal, store: str
) -> None:
    with journal.record() as recorder:
        for count, transaction in enumerate(short_story(), start=1):
            recorder.append(transaction)
            recorder.flush()
            assert rows(store, "SELECT max(number), count(*) FROM transactions") == [(count, count)]
            assert rows(store, "SELECT count(*) FROM events") == [(recorder.durable_seq,)]
            assert [one.number for one in journal.reader().transactions()] == list(range(1, count + 1))


def test_an_open_reader_sees_what_is_stored_after_it_began(journal: Journal) -> None:
    with journal.record() as recorder:
        recorder.append(short_story()[0])
        recorder.flush()
        reading = journal.reader().transactions()
        assert next(reading).number == 1
        recorder.append(record(op="later"))
        recorder.flush()
        assert next(reading).op == "later"


STORY = [
    record(allocated("r1", 1), op="a", request_id="r1"),
    record(NodeSplit(NodeId(5), NodeId(6), 1, b""), op="b", request_id="r1"),
    record(allocated("r1", 2), Evicted(0, 0, 0, 0), op="c"),
    record(allocated("r2", 3), op="d", request_id="r2"),
]


@pytest.mark.parametrize(
    ("wanted", "seqs"),
    [
        (EventFilter(), [1, 2, 3, 4, 5]),
        (EventFilter(kinds=("evicted",)), [4]),
        (EventFilter(kinds=("evicted", "node_split")), [2, 4]),
        (EventFilter(nodes=(NodeId(5),)), [2]),
        (EventFilter(request_id=RequestId("r1")), [1, 2, 3]),
        (EventFilter(request_id=RequestId("r2")), [5]),
        (EventFilter(request_id=RequestId("r1"), kinds=("pages_allocated",)), [1, 3]),
        (EventFilter(transaction=TxnId(3)), [3, 4]),
        (EventFilter(transaction=TxnId(9)), []),
        (EventFilter(first_seq=Seq(2), last_seq=Seq(4)), [2, 3, 4]),
    ],
)
def test_events_are_found_by_what_they_are_about(
    journal: Journal, wanted: EventFilter, seqs: list[int]
) -> None:
    assert [event.seq for event in written(journal, STORY).events(wanted)] == seqs


def test_a_kind_that_no_event_has_is_refused(journal: Journal) -> None:
    with pytest.raises(InvalidArgument, match="no_such_kind"):
        list(written(journal, STORY).events(EventFilter(kinds=("no_such_kind",))))


def test_transactions_are_found_by_their_request(journal: Journal) -> None:
    assert [one.op for one in written(journal, STORY).transactions_of("r1")] == ["a", "b"]


def test_events_are_found_by_the_time_of_their_transaction(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The journal's own row takes the first tick.
    clock = iter(range(0, 9_000_000, 1_000_000))
    monkeypatch.setattr("time.time_ns", lambda: next(clock))
    read = written(journal, STORY)
    assert [one.time_us for one in read.transactions()] == [1000, 2000, 3000, 4000]
    assert [event.seq for event in read.events(EventFilter(since_us=2000, until_us=4000))] == [2, 3, 4]


@pytest.mark.parametrize("form", ["path", "text", "url"])
def test_a_store_is_named_by_a_path_or_a_url(tmp_path: Path, form: str) -> None:
    path = tmp_path / "run.db"
    names: dict[str, Any] = {"path": path, "text": str(path), "url": f"sqlite:///{path}"}
    with Journal.open(names[form]) as journal:
        written(journal, short_story())
    with Journal.open(path, create=False) as again:
        assert len(again.list()) == 1


def test_a_missing_file_is_unknown_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(UnknownJournal, match="no database"):
        Journal.open(tmp_path / "run.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_journals_is_unknown_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(UnknownJournal, match="without journals"):
        Journal.open(path, create=False)
    assert path.read_bytes() == before


@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be taken for one " * 100)
    before = path.read_bytes()
    with pytest.raises(JournalError, match="not a database"):
        Journal.open(path, create=create)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InvalidArgument),
        ("sqlite://", InvalidArgument),
        ("sqlite:///:memory:", InvalidArgument),
        ("sqlite:///run.db?mode=memory", InvalidArgument),
        ("://", InvalidArgument),
        ("zero\0.db", InvalidArgument),
        ("half a pair \ud800.db", InvalidArgument),
        ("mysql://host/db", JournalError),
        ("postgresql://host", InvalidArgument),
        ("postgresql+psycopg2://host/db", InvalidArgument),
    ],
)
def test_a_name_of_no_store_is_refused(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Journal.open(name)


def test_a_folder_or_a_file_in_no_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "run.db"):
        with pytest.raises(JournalError):
            Journal.open(path)


@pytest.mark.parametrize("how", [{"durability": "never"}, {"queue_limit": 0}])
def test_a_recording_that_cannot_be_is_refused_before_anything_is_stored(journal: Journal, how: Any) -> None:
    with pytest.raises(InvalidArgument):
        journal.record(**how)
    assert journal.list() == ()


@pytest.mark.parametrize("name", ["\ud800", "a\0", 5, None])
def test_a_name_that_cannot_be_stored_is_refused_before_anything_is(journal: Journal, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        journal.record(name=name)
    assert journal.list() == ()


def test_a_journal_of_another_format_version_is_not_read(journal: Journal, store: str) -> None:
    written(journal, short_story())
    change(store, "UPDATE journals SET format_version = 3")
    with pytest.raises(JournalFormatError, match="format version 3"):
        journal.reader()


def test_a_row_that_cannot_be_decoded_is_named_by_its_seq(journal: Journal, store: str) -> None:
    read = written(journal, short_story())
    change(store, "UPDATE events SET payload = '{}' WHERE seq = 3", "DELETE FROM events WHERE seq = 6")
    with pytest.raises(JournalFormatError, match="seq 3: "):
        list(read.transactions())
    with pytest.raises(JournalFormatError, match="transaction 5 "):
        list(read.transactions(first=5))
