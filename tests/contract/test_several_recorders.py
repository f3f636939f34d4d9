"""Several recorders write into one store at once, and each journal is as if it were alone."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from kvledger.core.errors import JournalError
from kvledger.core.events import Evicted
from kvledger.journal import Journal, JournalReader
from kvledger.journal.database import store_url, writing_engine
from kvledger.journal.rows import RowWriter, Submission
from tests.support.stored_events import record

RECORDERS = 4
TRANSACTIONS = 120


@pytest.fixture
def journal(store: str) -> Iterator[Journal]:
    with Journal.open(store) as opened_journal:
        yield opened_journal


def check_whole(journal: Journal, names: set[str], *, transactions: int) -> None:
    assert {info.name for info in journal.list()} == names
    for info in journal.list():
        stored = list(journal.reader(info.id).transactions())
        assert [int(one.number) for one in stored] == list(range(1, transactions + 1))
        assert [int(event.seq) for one in stored for event in one.events] == list(range(1, transactions + 1))
        assert {one.op for one in stored} == {info.name}
        assert list(journal.verify(info.id)) == []


def watch(reader: JournalReader, stop: threading.Event, faults: list[str]) -> None:
    """Read again and again, by fresh read transactions; what is there must be a beginning without holes."""
    longest = 0
    while not stop.is_set():
        seqs = [int(event.seq) for event in reader.events()]
        if seqs != list(range(1, len(seqs) + 1)):
            faults.append(f"a reader saw {seqs[:3]}... {len(seqs)} events with a hole")
        if len(seqs) < longest:
            faults.append(f"a reader saw {longest} events and then {len(seqs)}")
        longest = len(seqs)


def test_recorders_on_threads_keep_dense_journals_and_readers_never_see_a_hole(journal: Journal) -> None:
    recorders = [journal.record(name=f"rank{number}", durability="commit") for number in range(RECORDERS)]
    stop, faults = threading.Event(), list[str]()
    readers = [
        threading.Thread(target=watch, args=(journal.reader(made.journal_id), stop, faults))
        for made in recorders[:2]
    ]

    def fill(number: int) -> None:
        for _ in range(TRANSACTIONS):
            recorders[number].append(record(Evicted(0, 0, 0, 0), op=f"rank{number}"))
        recorders[number].close()

    writers = [threading.Thread(target=fill, args=(number,)) for number in range(RECORDERS)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert faults == []
    check_whole(journal, {f"rank{number}" for number in range(RECORDERS)}, transactions=TRANSACTIONS)


SCRIPT = """
import sys
from kvledger.core.events import Evicted
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
name = sys.argv[2]
with Journal.open(sys.argv[1]) as journal, journal.record(name=name) as recorder:
    for number in range(int(sys.argv[3])):
        recorder.append(TransactionRecord(name, None, [Evicted(0, 0, 0, 0)], bytearray(1)))
        if number % 5 == 0:
            recorder.flush()
"""


def test_recorders_in_processes_of_their_own_keep_dense_journals(store: str) -> None:
    names = ["a", "b", "c"]
    # Each opens the store for itself: a file that is not there yet is made by the one that comes first.
    running = [
        subprocess.Popen([sys.executable, "-c", SCRIPT, store, name, str(TRANSACTIONS)]) for name in names
    ]
    assert [process.wait() for process in running] == [0, 0, 0]
    with Journal.open(store, create=False) as journal:
        check_whole(journal, set(names), transactions=TRANSACTIONS)


def test_two_writers_cannot_fork_the_chain_of_one_journal(journal: Journal, store: str) -> None:
    with journal.record(name="first") as made:
        info = journal.reader(made.journal_id).info
    engines = [writing_engine(store_url(store)) for _ in range(2)]
    first, second = (RowWriter(engine, journal_id=info.id, genesis=info.genesis) for engine in engines)
    first.store([Submission(record(op="mine"), 1)])
    with pytest.raises(JournalError, match=r"UNIQUE|unique"):
        second.store([Submission(record(op="theirs"), 2)])
    with pytest.raises(JournalError, match="another program"):
        second.resync()
    first.store([Submission(record(op="mine too"), 3)])
    for writer in (first, second):
        writer.close()
    for engine in engines:
        engine.dispose()
    assert [one.op for one in journal.reader().transactions()] == ["mine", "mine too"]
    assert list(journal.verify()) == []
