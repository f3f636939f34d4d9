"""What is asked of a journal, and what one is started with: the answer that a plain look gives, or a refusal.

A small recorded run is held as lists, over which every question is answered by looking at all of it. Numbers
that are no numbers, and names that are none, are InvalidArgument, and never what a database says of them.
Some five seconds.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.core.errors import InvalidArgument, JournalError, UnknownJournal
from kvledger.core.events import EVENTS
from kvledger.journal import EventFilter, Journal, JournalReader, StoredTransaction, TransactionFilter
from kvledger.journal.export import ExportedJournal, export_journal
from tests.property.outside_values import (
    NO_NUMBERS,
    NOTHING,
    Given,
    bounded,
    integers_given,
    number_spelled,
    numbers_given,
    texts_given,
)
from tests.support.recorded_run import record_run, small_run

PLACES = st.integers(-2, 90)
TIMES = st.sampled_from([0, 1, 2**62])


class Recorded:
    """The run, in a database and in a file, and as plain lists."""

    def __init__(self, folder: Path) -> None:
        self.store = Journal.open(folder / "run.db")
        self.reader = record_run(self.store, small_run()[:20], name="run", flush_every=3, checkpoint_every=25)
        export_journal(self.reader, folder / "out", form="jsonl")
        self.exported = ExportedJournal.open(folder / "out")
        self.transactions = list(self.reader.transactions())
        self.events = [(one, at) for one in self.transactions for at in one.events]
        self.checkpoints = [int(seq) for seq in self.reader.checkpoint_seqs()]
        assert len(self.checkpoints) > 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    made = Recorded(tmp_path_factory.mktemp("recorded"))
    yield made
    made.store.close()


@pytest.fixture(scope="module", params=["database", "files"])
def source(recorded: Recorded, request: pytest.FixtureRequest) -> Any:
    return recorded.reader if request.param == "database" else recorded.exported


def means(arguments: dict[str, Given]) -> dict[str, Any] | None:
    """What arguments mean; None where one means nothing."""
    told = {name: one.means for name, one in arguments.items()}
    return None if any(value is NOTHING for value in told.values()) else told


def asked(question: Callable[[], Any]) -> Any:
    """The answer, or NOTHING where the question was refused."""
    try:
        return question()
    except InvalidArgument:
        return NOTHING


def seqs_of(answer: Any) -> Any:
    return NOTHING if answer is NOTHING else [int(found.seq) for found in answer]


def plain_or_refused(answer: Any, expected: Any, arguments: dict[str, Given]) -> None:
    """The answer is the expected one; a spelling that is no number of Python's own may be refused."""
    if answer is NOTHING and expected is not NOTHING:
        assert any("int" in one.name and one.name != "int" for one in arguments.values()), arguments
        return
    assert answer == expected


@bounded
@given(first=numbers_given(PLACES, optional=True), upto=numbers_given(PLACES, optional=True))
def test_transactions_are_those_from_a_number_up_to_a_seq(
    source: Any, recorded: Recorded, first: Given, upto: Given
) -> None:
    answer = asked(lambda: [int(t.number) for t in source.transactions(first.make(), upto_seq=upto.make())])
    told = means({"first": first, "upto": upto})
    if told is None or (told["first"] is not None and told["first"] < 1) or (told["upto"] or 0) < 0:
        assert answer is NOTHING
        return
    begin, last = told["first"] or 1, math.inf if told["upto"] is None else told["upto"]
    within = [t for t in recorded.transactions if t.number >= begin and t.last_seq <= last]
    assert answer == [int(t.number) for t in within]


@bounded
@given(seq=numbers_given(PLACES))
def test_the_checkpoints_around_a_seq_are_the_nearest_ones(
    source: Any, recorded: Recorded, seq: Given
) -> None:
    before = asked(lambda: source.checkpoint_before(seq.make()))
    after = asked(lambda: source.checkpoint_after(seq.make()))
    if seq.means is NOTHING:
        assert after is NOTHING
        assert before is NOTHING or seq.make() is None
        return
    at_most = [place for place in recorded.checkpoints if place <= seq.means]
    at_least = [place for place in recorded.checkpoints if place >= seq.means]
    assert (before and before.seq) == (max(at_most) if at_most else None)
    assert (after and after.seq) == (min(at_least) if at_least else None)


@bounded
@given(number=numbers_given(PLACES), last_seq=numbers_given(PLACES), request=texts_given("r1", "r2"))
def test_single_transactions_tails_and_requests_are_found_or_refused(
    recorded: Recorded, number: Given, last_seq: Given, request: Given
) -> None:
    reader = recorded.reader
    one = asked(lambda: reader.transaction(number.make()).number)
    there = number.means is not NOTHING and 1 <= number.means <= len(recorded.transactions)
    assert one == (number.means if there else NOTHING)
    missing = asked(lambda: reader.tail(last_seq=last_seq.make()).missing_events)
    if last_seq.means is NOTHING or last_seq.means < 0:
        assert missing is NOTHING
    else:
        assert missing == max(0, min(last_seq.means, 2**63 - 1) - len(recorded.events))
    own = asked(lambda: [t.number for t in reader.transactions_of(request.make())])
    if request.means is NOTHING or "\0" in request.means or "\ud800" <= request.means[-1:] <= "\udfff":
        assert own is NOTHING
    elif own is not NOTHING:
        assert own == [t.number for t in recorded.transactions if t.request_id == request.means]


EVENT_CONDITIONS: dict[str, st.SearchStrategy[Given]] = {
    "request_id": texts_given("r1", "r2", optional=True),
    "transaction": numbers_given(PLACES, optional=True),
    "undone": st.sampled_from([None, True, False]).map(lambda flag: Given(lambda: flag, flag, "flag")),
    "since_us": numbers_given(TIMES, optional=True),
    "until_us": numbers_given(TIMES, optional=True),
    "first_seq": numbers_given(PLACES, optional=True),
    "last_seq": numbers_given(PLACES, optional=True),
}
CURSORS: dict[str, st.SearchStrategy[Given]] = {
    "limit": numbers_given(st.integers(1, 30), optional=True),
    "after_seq": numbers_given(PLACES, optional=True),
    "before_seq": numbers_given(PLACES, optional=True),
    "newest_first": st.booleans().map(lambda flag: Given(lambda: flag, flag, "flag")),
}


def some_of(conditions: dict[str, st.SearchStrategy[Given]]) -> st.SearchStrategy[dict[str, Given]]:
    """A few of these conditions."""
    names = st.lists(st.sampled_from(sorted(conditions)), max_size=2, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: conditions[name] for name in chosen}))


def can_be_asked(told: dict[str, Any]) -> bool:
    """Whether numbers that go to a database fit one, a limit is one, and a name can be stored."""
    fits = all(abs(told.get(name) or 0) < 2**63 for name in ("transaction", "since_us", "until_us"))
    limit, name = told.get("limit"), told.get("request_id")
    try:
        named = name is None or "\0" not in name.encode().decode()
    except UnicodeEncodeError:
        named = False
    return fits and named and (limit is None or 1 <= limit < 2**63)


def matches(told: dict[str, Any], transaction: StoredTransaction, at: Any) -> bool:
    """Whether an event is asked for, by looking at it."""

    def holds(name: str, test: Callable[[Any], bool]) -> bool:
        return told.get(name) is None or test(told[name])

    names = (getattr(at.event, "request_id", None), getattr(at.event, "owner", None), transaction.request_id)
    return (
        holds("request_id", lambda name: name in names)
        and holds("transaction", lambda number: number == transaction.number)
        and holds("undone", lambda undone: undone == at.undone)
        and holds("since_us", lambda time: transaction.time_us >= time)
        and holds("until_us", lambda time: transaction.time_us < time)
        and holds("first_seq", lambda seq: at.seq >= seq)
        and holds("last_seq", lambda seq: at.seq <= seq)
        and holds("after_seq", lambda seq: at.seq > seq)
        and holds("before_seq", lambda seq: at.seq < seq)
    )


@bounded
@given(conditions=some_of(EVENT_CONDITIONS), cursors=some_of(CURSORS))
def test_events_are_found_by_looking_at_all_of_them(
    source: Any, recorded: Recorded, conditions: dict[str, Given], cursors: dict[str, Given]
) -> None:
    wanted = EventFilter(**{name: one.make() for name, one in conditions.items()})
    how = {name: one.make() for name, one in cursors.items()}
    answer = seqs_of(asked(lambda: list(source.find(wanted, **how))))
    told = means(conditions | cursors)
    if told is None or not can_be_asked(told):
        assert answer is NOTHING
        return
    expected = [int(at.seq) for transaction, at in recorded.events if matches(told, transaction, at)]
    expected = expected[::-1] if told.get("newest_first") else expected
    plain_or_refused(answer, expected[: told.get("limit")], conditions | cursors)


@bounded
@given(
    conditions=some_of(EVENT_CONDITIONS),
    upto=number_spelled(st.integers(-1, 200)) | st.sampled_from(NO_NUMBERS),
)
def test_events_are_counted_by_looking_at_all_of_them(
    source: Any, recorded: Recorded, conditions: dict[str, Given], upto: Given
) -> None:
    wanted = EventFilter(**{name: one.make() for name, one in conditions.items()})
    answer = asked(lambda: source.count(wanted, upto=upto.make()))
    told = means({**conditions, "upto": upto})
    if told is None or told["upto"] < 1 or not can_be_asked(told):
        assert answer is NOTHING
        return
    count = sum(matches(told, transaction, at) for transaction, at in recorded.events)
    got = NOTHING if answer is NOTHING else (answer.count, answer.exact)
    plain_or_refused(got, (min(count, told["upto"]), count <= told["upto"]), {**conditions, "upto": upto})


MANY = st.sampled_from(
    [None, 4, "evicted", b"evicted", {}, {"evicted": 1}, iter(()), object(), [None], [b"x"], [["x"]]]
)


@bounded
@given(kinds=st.lists(st.sampled_from([*EVENTS, "", "no kind", "\ud800"]), max_size=3) | MANY)
def test_kinds_are_those_that_there_are_or_refused(source: Any, recorded: Recorded, kinds: Any) -> None:
    answer = seqs_of(asked(lambda: list(source.find(EventFilter(kinds=kinds)))))
    if not isinstance(kinds, list) or not all(isinstance(kind, str) and kind in EVENTS for kind in kinds):
        assert answer is NOTHING
        return
    assert answer == [int(at.seq) for _, at in recorded.events if not kinds or at.event.kind in kinds]


@bounded
@given(
    nodes=integers_given(st.lists(st.integers(-1, 9), max_size=3))
    | MANY.map(lambda value: Given(lambda: value, NOTHING, "odd"))
)
def test_nodes_are_whole_numbers_or_refused(source: Any, recorded: Recorded, nodes: Given) -> None:
    answer = seqs_of(asked(lambda: list(source.find(EventFilter(nodes=nodes.make())))))
    if answer is NOTHING:
        assert nodes.means is NOTHING or nodes.name not in ("list", "tuple")
        return
    wanted = nodes.make()
    expected = [
        int(at.seq) for _, at in recorded.events if not wanted or getattr(at.event, "node", None) in wanted
    ]
    assert answer == expected


TRANSACTION_CONDITIONS: dict[str, st.SearchStrategy[Given]] = {
    **{
        name: EVENT_CONDITIONS[name]
        for name in ("request_id", "since_us", "until_us", "first_seq", "last_seq")
    },
    "rolled_back": EVENT_CONDITIONS["undone"],
}


@bounded
@given(
    conditions=some_of(TRANSACTION_CONDITIONS),
    ops=st.sampled_from([(), ("commit",), ["commit", "extend"], "commit", None, 4, [4], ["\ud800"], [b"x"]]),
    limit=CURSORS["limit"],
)
def test_transactions_are_found_by_looking_at_all_of_them(
    source: Any, recorded: Recorded, conditions: dict[str, Given], ops: Any, limit: Given
) -> None:
    wanted = TransactionFilter(ops=ops, **{name: one.make() for name, one in conditions.items()})
    answer = asked(lambda: [t.number for t in source.find_transactions(wanted, limit=limit.make())])
    told = means({**conditions, "limit": limit})
    odd = not isinstance(ops, list | tuple) or any(op not in ("commit", "extend") for op in ops)
    if told is None or odd or not can_be_asked(told):
        assert answer is NOTHING
        return
    tests: dict[str, Callable[[StoredTransaction, Any], bool]] = {
        "request_id": lambda t, name: t.request_id == name,
        "since_us": lambda t, time: t.time_us >= time,
        "until_us": lambda t, time: t.time_us < time,
        "first_seq": lambda t, seq: max(t.last_seq, t.first_seq) >= seq,
        "last_seq": lambda t, seq: t.first_seq <= seq,
        "rolled_back": lambda t, flag: t.rolled_back == flag,
    }
    expected = [
        t.number
        for t in recorded.transactions
        if (not ops or t.op in ops)
        and all(told[name] is None or test(t, told[name]) for name, test in tests.items() if name in told)
    ]
    plain_or_refused(answer, expected[: told["limit"]], {**conditions, "limit": limit})


SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "name": texts_given("rank0", "run"),
    "durability": texts_given("step", "commit", "background"),
    "tokens": texts_given("full", "none", "hash"),
    "key": st.sampled_from(
        [None, b"", b"k" * 15, b"k" * 16, b"k" * 65, "k" * 16, 16, bytearray(16), [1] * 16]
    ).map(lambda key: Given(lambda: key, key, "key")),
    "queue_limit": numbers_given(st.integers(1, 9)),
    "on_failure": texts_given("halt", "degrade"),
    "checkpoint_every": numbers_given(st.integers(0, 9)),
    "max_bytes": numbers_given(st.integers(2**20 - 1, 2**21), optional=True),
    "export_to": st.sampled_from([None, "out", "a\0b", "r" * 300, "run.db", 4, b"out", ["out"]]).map(
        lambda path: Given(lambda: path, path, "path")
    ),
}


@bounded
@given(chosen=some_of(SETTINGS))
def test_a_journal_is_started_as_asked_or_not_at_all(recorded: Recorded, chosen: dict[str, Given]) -> None:
    store = recorded.store
    settings = {name: one.make() for name, one in chosen.items()}
    path = settings.get("export_to")
    if isinstance(path, str) and len(path) < 40 and "\0" not in path:
        settings["export_to"] = str(Path(store.url.database or "").parent / path)
    before = len(store.list())
    try:
        recorder = store.record(**settings)
    except InvalidArgument:
        assert len(store.list()) == before
        return
    recorder.close()
    assert all(one.means is not NOTHING for one in chosen.values())
    started = store.list()[-1]
    assert len(store.list()) == before + 1
    assert started.name == settings.get("name", "")
    assert started.token_policy == settings.get("tokens", "full")
    assert (started.token_policy == "hash") == (settings.get("key") is not None)


@bounded
@given(name=texts_given("run", "nobody") | numbers_given(st.integers(0, 2)))
def test_a_journal_is_read_by_the_id_or_name_that_it_has(recorded: Recorded, name: Given) -> None:
    store, wanted = recorded.store, name.make()
    infos = store.list()
    there = {None, *[info.id for info in infos], *[info.name for info in infos]}
    expected = wanted in there if isinstance(wanted, int | str | None) and wanted is not True else False
    for read in (store.reader, lambda journal: list(store.verify(journal))):
        try:
            answer = read(wanted)
        except (InvalidArgument, UnknownJournal):
            assert not expected
        else:
            assert expected or name.means in there
            assert isinstance(answer, JournalReader) or answer == []


@bounded
@given(
    path=st.text(max_size=12)
    | st.sampled_from(
        [
            "sqlite://",
            "mysql://x",
            "sqlite:///:memory:",
            "://",
            "a\0b",
            "\ud800",
            "r" * 300,
            "sqlite:///%",
            "postgresql://[",
            4,
            None,
            b"x",
            ".",
        ]
    )
)
def test_a_store_that_is_none_is_refused_and_nothing_is_made(empty_folder: Path, path: Any) -> None:
    with pytest.raises((InvalidArgument, JournalError)):
        Journal.open(path, create=False)
    assert list(empty_folder.iterdir()) == []


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty folder to stand in."""
    folder = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@bounded
@given(seconds=st.floats() | st.integers() | st.sampled_from(NO_NUMBERS).map(lambda one: one.make()))
def test_a_wait_for_a_lock_is_some_seconds_or_refused(recorded: Recorded, seconds: Any) -> None:
    try:
        store = Journal.open(recorded.store.url.database or "", create=False, lock_timeout_s=seconds)
    except InvalidArgument:
        assert type(seconds) not in (int, float) or not 0 <= seconds <= 86_400
        return
    with store:
        assert 0 <= seconds <= 86_400
        assert store.list()
