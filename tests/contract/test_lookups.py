"""Events are found by what they are about, by an index, in order of seq, and page by page."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.journal import EventFilter, FoundEvent, Journal, JournalReader
from tests.support.private_tokens import live_privately


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lookups") / "run.db"
    with Journal.open(path) as journal, journal.record(durability="background") as recorder:
        live_privately(recorder)
    return path


@pytest.fixture
def reader(recorded: Path) -> Iterator[JournalReader]:
    with Journal.open(recorded) as journal:
        yield journal.reader()


def everything(reader: JournalReader) -> list[tuple[FoundEvent, Any]]:
    """Every event with its transaction, found without any look-up."""
    return [
        (FoundEvent(e.seq, e.undone, e.event, t.number, t.op, t.time_us), t)
        for t in reader.transactions()
        for e in t.events
    ]


def seqs(found: Any) -> list[int]:
    return [int(one.seq) for one in found]


def test_without_a_condition_every_event_is_found(reader: JournalReader) -> None:
    found = list(reader.find())
    assert [(one.seq, one.transaction, one.op, one.time_us, one.undone) for one in found] == [
        (one.seq, one.transaction, one.op, one.time_us, one.undone) for one, _ in everything(reader)
    ]


def test_each_condition_finds_what_a_walk_over_everything_finds(reader: JournalReader) -> None:
    events = everything(reader)
    middle = events[len(events) // 2][0]
    named = Counter(getattr(e.event, "node", None) for e, _ in events)
    node: Any = max(named, key=lambda node: 0 if node is None else named[node])

    def of_request(name: str) -> list[int]:
        return [
            int(e.seq)
            for e, t in events
            if t.request_id == name
            or name in (getattr(e.event, "request_id", 0), getattr(e.event, "owner", 0))
        ]

    cases: list[tuple[EventFilter, list[int]]] = [
        (EventFilter(kinds=("evicted",)), [int(e.seq) for e, _ in events if e.event.kind == "evicted"]),
        (
            EventFilter(kinds=("evicted", "node_split", "rolled_back", "evicted")),
            [int(e.seq) for e, _ in events if e.event.kind in ("evicted", "node_split", "rolled_back")],
        ),
        (
            EventFilter(nodes=(NodeId(node),)),
            [int(e.seq) for e, _ in events if getattr(e.event, "node", 0) == node],
        ),
        (EventFilter(request_id=RequestId("r3")), of_request("r3")),
        (EventFilter(transaction=TxnId(9)), [int(e.seq) for e, _ in events if e.transaction == 9]),
        (
            EventFilter(since_us=middle.time_us),
            [int(e.seq) for e, _ in events if e.time_us >= middle.time_us],
        ),
        (
            EventFilter(until_us=middle.time_us, kinds=("lock_acquired", "lock_released")),
            [
                int(e.seq)
                for e, _ in events
                if e.time_us < middle.time_us and e.event.kind in ("lock_acquired", "lock_released")
            ],
        ),
        (
            EventFilter(first_seq=Seq(10), last_seq=Seq(40), request_id=RequestId("r1")),
            [seq for seq in of_request("r1") if 10 <= seq <= 40],
        ),
        (EventFilter(since_us=2**60), []),
        (EventFilter(transaction=TxnId(10**6)), []),
        (EventFilter(request_id=RequestId("nobody")), []),
    ]
    for wanted, expected in cases:
        assert seqs(reader.find(wanted)) == expected, wanted
        assert expected or wanted.since_us == 2**60 or wanted.transaction or wanted.request_id == "nobody"


def test_pages_follow_one_another_by_the_last_seq_seen(reader: JournalReader) -> None:
    wanted = ("lock_acquired", "lock_released", "node_touched")
    whole = seqs(reader.find(EventFilter(kinds=wanted)))
    pages: list[int] = []
    while True:
        after = Seq(pages[-1] + 1) if pages else None
        page = seqs(reader.find(EventFilter(kinds=wanted, first_seq=after), limit=7))
        if not page:
            break
        pages += page
    assert pages == whole
    assert len(whole) > 21


def test_an_unknown_kind_and_a_limit_of_none_are_refused(reader: JournalReader) -> None:
    with pytest.raises(InvalidArgument, match="no event kind 'evict'"):
        list(reader.find(EventFilter(kinds=("evict",))))
    with pytest.raises(InvalidArgument, match="limit"):
        list(reader.find(limit=0))
