"""A look-up costs what it finds: each statement uses an index, and a page of a long journal is no dearer than
one of a short journal.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.core.sinks import EventSink
from kvledger.journal import EventFilter, FoundEvent, Journal, JournalReader, TransactionFilter
from kvledger.journal.codec import decode
from kvledger.journal.database import reading_engine, store_url
from kvledger.journal.lookups.births import birth
from kvledger.journal.lookups.history import anomalies, node_history, request_history
from kvledger.journal.lookups.holders import holders
from kvledger.journal.lookups.marks import marks
from kvledger.journal.lookups.provenance import Provenance, provenance

SHORT, LONG = 40, 400
"""Rounds of the two journals: one is ten times as long as the other."""

STEPS_APART = 10
"""Instructions of SQLite's machine between two counts."""

ALLOWED_GROWTH = 1.8
"""How much more a look-up may cost in the long journal: a deeper tree and a few more steps of a bisection,
but not ten times as much."""

Ask = Callable[[JournalReader], Any]


def live(sink: EventSink, rounds: int) -> None:
    """As many rounds of the same: a request, evictions, a failure, now and then a reset that cuts a lock."""
    cache = HybridCache(
        CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=160), sink=sink
    )
    for number in range(rounds):
        tokens = [number // 4 % 3] * 20 + [number] * 13
        request = cache.open_request(f"r{number}", tokens)
        request.extend(len(tokens) - request.prefix_len)
        request.computed()
        request.commit()
        if number % 8 == 7:
            cache.reset()
            request.abort()
        else:
            request.finish()
        with suppress(ZeroDivisionError), cache.transaction("broken"):
            cache.free(cache.alloc(8))
            raise ZeroDivisionError
        if number % 4 == 3:
            cache.evict(full_tokens=60, swa_tokens=80)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("costs")
    for rounds in (SHORT, LONG):
        with Journal.open(path / f"{rounds}.db") as journal, journal.record(durability="background") as sink:
            live(sink, rounds)
    return path


def found_last(reader: JournalReader, kind: str) -> FoundEvent:
    return next(reader.find(EventFilter(kinds=(kind,), undone=False), newest_first=True, limit=1))


def last(reader: JournalReader, kind: str) -> Any:
    return found_last(reader, kind).event


def origin(reader: JournalReader) -> Provenance:
    """That of the head that was cut off last, when it was."""
    return provenance(reader, last(reader, "node_split").head, upto_seq=found_last(reader, "node_split").seq)


def end(reader: JournalReader) -> int:
    return int(reader.head().seq)


PAGES: dict[str, Ask] = {
    "newest": lambda r: list(r.find(limit=20, newest_first=True)),
    "after a cursor": lambda r: list(r.find(limit=20, after_seq=end(r) - 60)),
    "before a cursor": lambda r: list(r.find(limit=20, before_seq=end(r) - 60, newest_first=True)),
    "one kind": lambda r: list(r.find(EventFilter(("evicted",)), limit=10, newest_first=True)),
    "three kinds": lambda r: list(
        r.find(EventFilter(("evicted", "node_split", "rolled_back")), limit=10, after_seq=end(r) - 200)
    ),
    "a node": lambda r: list(r.find(EventFilter(nodes=(last(r, "node_created").node,)), limit=5)),
    "several nodes of a kind": lambda r: list(
        r.find(
            EventFilter(
                ("node_deleted", "swa_tombstoned"),
                nodes=[NodeId(last(r, "node_created").node - i) for i in range(6)],
            )
        )
    ),
    "a request": lambda r: list(r.find(EventFilter(request_id=last(r, "request_opened").request_id))),
    "a request's last": lambda r: list(
        request_history(r, last(r, "request_opened").request_id, limit=3, newest_first=True)
    ),
    "a request's kind": lambda r: list(
        r.find(EventFilter(("lock_acquired",), request_id=last(r, "request_opened").request_id))
    ),
    "a transaction": lambda r: list(r.find(EventFilter(transaction=TxnId(r.head().number - 2)))),
    "a transaction's kind": lambda r: list(
        r.find(EventFilter(("evicted",), transaction=TxnId(r.head().number)))
    ),
    "undone": lambda r: list(r.find(EventFilter(undone=True), limit=6, newest_first=True)),
    "undone after a cursor": lambda r: list(r.find(EventFilter(undone=True), after_seq=end(r) - 150)),
    "kept": lambda r: list(r.find(EventFilter(undone=False), limit=20, newest_first=True)),
    "kept of a kind": lambda r: list(
        r.find(EventFilter(("pages_freed",), undone=False), limit=10, newest_first=True)
    ),
    "a count": lambda r: [r.count(upto=50), r.count(EventFilter(("evicted",)), upto=30)],
    "transactions": lambda r: list(r.find_transactions(limit=10, newest_first=True)),
    "transactions after a cursor": lambda r: list(r.find_transactions(after=r.head().number - 12)),
    "transactions of an operation": lambda r: list(
        r.find_transactions(TransactionFilter(ops=("commit",)), limit=3, newest_first=True)
    ),
    "transactions of a request": lambda r: list(
        r.find_transactions(TransactionFilter(request_id=last(r, "request_opened").request_id))
    ),
    "rolled back transactions": lambda r: list(
        r.find_transactions(TransactionFilter(rolled_back=True), limit=5, newest_first=True)
    ),
    "transactions around a seq": lambda r: list(
        r.find_transactions(TransactionFilter(first_seq=Seq(end(r) - 30), last_seq=Seq(end(r) - 10)))
    ),
    "anomalies": lambda r: list(anomalies(r, limit=6, newest_first=True)),
    "anomalies after a cursor": lambda r: list(anomalies(r, after_seq=end(r) - 300)),
    "marks": lambda r: marks(r, first_seq=end(r) - 400, last_seq=end(r), buckets=20).counts,
    "a holder": lambda r: holders(r, [last(r, "lock_acquired").lease - 3]),
    "a birth": lambda r: [birth(r, last(r, "node_split").head)],
    "a node's history": lambda r: list(node_history(r, last(r, "node_split").head)),
    "a provenance": lambda r: origin(r).steps,
    "the beginning": lambda r: [r.beginning()],
}


@contextmanager
def counted(path: Path) -> Iterator[tuple[JournalReader, list[int]]]:
    """A reader of the journal in `path`, and how far SQLite's machine has come, in counts."""
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    def watch(connection: sqlite3.Connection, _record: Any) -> None:
        connection.set_progress_handler(step, STEPS_APART)

    with Journal.open(path) as journal:
        reader = journal.reader()
        sa.event.listen(reader.engine, "connect", watch)
        reader.engine.dispose()
        yield reader, steps


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_a_long_journal_costs_what_one_of_a_short_journal_costs(folder: Path, name: str) -> None:
    costs = []
    for rounds in (SHORT, LONG):
        with counted(folder / f"{rounds}.db") as (reader, steps):
            PAGES[name](reader)  # whatever a connection does once
            steps[0] = 0
            assert PAGES[name](reader)
            costs.append(steps[0])
    assert costs[0] > 0
    assert costs[1] < ALLOWED_GROWTH * costs[0] + 20, costs


def test_the_count_of_steps_tells_a_walk_from_a_look_up(folder: Path) -> None:
    costs = []
    for rounds in (SHORT, LONG):
        with counted(folder / f"{rounds}.db") as (reader, steps):
            list(reader.find(EventFilter(undone=False)))
            costs.append(steps[0])
    assert costs[1] > 5 * costs[0]


INDEXES: list[tuple[str, Ask, str]] = [
    ("everything", lambda r: list(r.find(limit=5)), "events USING PRIMARY KEY"),
    ("seqs", lambda r: list(r.find(EventFilter(first_seq=Seq(20)))), "PRIMARY KEY (journal_id=? AND seq>?)"),
    ("kind", lambda r: list(r.find(EventFilter(("evicted",)))), "ix_events_journal_id_kind_seq"),
    (
        "kept of a kind",
        lambda r: list(r.find(EventFilter(("evicted",), undone=False, last_seq=Seq(300)))),
        "COVERING INDEX ix_events_journal_id_kind_seq",
    ),
    (
        "kinds of a time",
        lambda r: list(r.find(EventFilter(("evicted", "node_split"), since_us=5, until_us=2**60))),
        "COVERING INDEX ix_events_journal_id_kind_seq",
    ),
    ("node", lambda r: list(r.find(EventFilter(nodes=(NodeId(3),)))), "ix_events_journal_id_node_seq"),
    (
        "node and kind",
        lambda r: list(r.find(EventFilter(("node_created", "node_deleted"), nodes=(NodeId(3), NodeId(4))))),
        "COVERING INDEX ix_events_journal_id_node_seq",
    ),
    (
        "request",
        lambda r: list(r.find(EventFilter(request_id=RequestId("r3")), after_seq=20, before_seq=2_000)),
        "COVERING INDEX ix_events_journal_id_request_id_seq",
    ),
    (
        "request's transactions",
        lambda r: list(r.find(EventFilter(request_id=RequestId("r3")), after_seq=20, before_seq=2_000)),
        "COVERING INDEX ix_transactions_journal_id_request_id_number",
    ),
    (
        "transaction",
        lambda r: list(r.find(EventFilter(transaction=TxnId(9)))),
        "PRIMARY KEY (journal_id=? AND seq>? AND seq<?)",
    ),
    (
        "time",
        lambda r: list(r.find(EventFilter(since_us=5), limit=5)),
        "COVERING INDEX ix_transactions_journal_id_time_us",
    ),
    (
        "undone",
        lambda r: list(r.find(EventFilter(undone=True))),
        "COVERING INDEX ix_events_journal_id_kind_seq",
    ),
    (
        "transactions of a request",
        lambda r: list(
            r.find_transactions(TransactionFilter(request_id=RequestId("r3")), after=2, before=900)
        ),
        "COVERING INDEX ix_transactions_journal_id_request_id_number",
    ),
    (
        "transactions of a time",
        lambda r: list(r.find_transactions(TransactionFilter(since_us=5, until_us=2**60), limit=5)),
        "COVERING INDEX ix_transactions_journal_id_time_us",
    ),
    (
        "rolled back",
        lambda r: list(r.find_transactions(TransactionFilter(rolled_back=True), before=900)),
        "COVERING INDEX ix_events_journal_id_kind_seq",
    ),
    ("anomalies", lambda r: list(anomalies(r, first_seq=10)), "COVERING INDEX ix_events_journal_id_kind_seq"),
    ("holders", lambda r: holders(r, [5]), "COVERING INDEX ix_events_journal_id_kind_seq"),
]


@pytest.mark.parametrize(("ask", "index"), [case[1:] for case in INDEXES], ids=[case[0] for case in INDEXES])
def test_every_look_up_is_answered_by_an_index(folder: Path, ask: Ask, index: str) -> None:
    path = folder / f"{SHORT}.db"
    asked: list[Any] = []

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    with Journal.open(path) as journal:
        reader = journal.reader()
        sa.event.listen(reader.engine, "before_cursor_execute", note)
        assert ask(reader)
    assert asked
    engine = reading_engine(store_url(path))
    used: list[str] = []
    with engine.connect() as connection:
        for statement, parameters in asked:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            steps = [str(row[-1]) for row in plan]
            used += [step for step in steps if step.startswith(("SCAN", "SEARCH"))]
            assert not [step for step in steps if step.startswith("SCAN")], (statement, steps)
            assert not [step for step in steps if "TEMP B-TREE FOR ORDER BY" in step], (statement, steps)
            # Times only bound the numbers: rows at hand are not looked for among all transactions of a time.
            by_time = [step for step in steps if "time_us" in step]
            assert not by_time or statement.startswith("SELECT min("), (statement, steps)
    engine.dispose()
    assert any(index in step for step in used), used


def test_anomalies_read_no_release_but_those_of_resets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noting(kind: str, *cells: Any) -> Any:
        read.append(kind)
        return decode(kind, *cells)

    with Journal.open(folder / f"{LONG}.db") as journal:
        reader = journal.reader()
        resets = {one.transaction for one in reader.find(EventFilter(("cache_reset",)))}
        released = [one.transaction for one in reader.find(EventFilter(("lock_released",)))]
        monkeypatch.setattr("kvledger.journal.lookups.events.decode", noting)
        found = [one.event.kind for one, _ in anomalies(reader)]
    caused = sum(transaction in resets for transaction in released)
    assert read.count("lock_released") == caused == found.count("lock_released")
    assert 0 < caused < len(released) / 4
