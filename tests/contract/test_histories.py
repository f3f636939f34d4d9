"""Histories told from events alone say what a replay to each moment finds there."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import InvalidArgument
from kvledger.core.ids import NodeId
from kvledger.journal import Journal, JournalReader
from kvledger.journal.difference import difference
from kvledger.journal.lookups.history import anomalies, node_history, request_history
from kvledger.journal.lookups.tenures import Side, Tenure, page_history
from kvledger.journal.places import CALLER
from kvledger.journal.replay import Fold, replay
from kvledger.journal.state import State
from kvledger.tools.reading.follow import follow
from tests.support.private_tokens import PAGE, live_privately

Holding = tuple[str, Any, int | None] | None


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A life without checkpoints, and the same with one every 50 events."""
    path = tmp_path_factory.mktemp("histories") / "run.db"
    with Journal.open(path) as journal:
        for every in (0, 50):
            with journal.record(name=str(every), durability="background", checkpoint_every=every) as recorder:
                live_privately(recorder)
    return path


@pytest.fixture
def reader(recorded: Path) -> Iterator[JournalReader]:
    with Journal.open(recorded) as journal:
        yield journal.reader("0")


def holding(state: State, side: Side, page: int) -> Holding:
    """Who holds a page in a replayed state, and at which token position."""
    full = page if side == "full" else int(state.swa_at[page])
    code = int(state.full_at[full]) if full > 0 else 0
    if code > 0:
        node = state.nodes[NodeId(code - 1)]
        return "node", node.id, node.start + node.full.tolist().index(full) * PAGE
    if code == CALLER:
        return "caller", None, None
    for request in state.requests.values():
        if request.code == code:
            row = request.row.tolist()
            return "request", request.id, row.index(full) * PAGE if full in row else None
    return None


def told(tenure: Tenure) -> Holding:
    who = tenure.node if tenure.holder == "node" else tenure.request
    return tenure.holder, who, tenure.position


def at(tenures: list[Tenure], seq: int) -> Holding:
    found = [one for one in tenures if one.since <= seq and (one.until is None or one.until > seq)]
    assert len(found) <= 1
    return told(found[0]) if found else None


@pytest.mark.parametrize("name", ["0", "50"])
@pytest.mark.parametrize("side", ["full", "swa"])
def test_every_page_is_where_a_replay_to_each_boundary_finds_it(
    recorded: Path, name: str, side: Literal["full", "swa"]
) -> None:
    with Journal.open(recorded) as journal:
        reader = journal.reader(name)
        pages = range(1, (100 if side == "full" else 50) + 1, 3)
        first = 1 if name == "0" else 120
        histories = {page: list(page_history(reader, side, page, first_seq=first)) for page in pages}
        fold = Fold()
        compared = 0
        for transaction in reader.transactions():
            fold.apply(transaction)
            if fold.seq < first:
                continue
            for page in pages:
                found, expected = at(histories[page], fold.seq), holding(fold.state, side, page)
                assert found == expected, (page, fold.seq)
                compared += expected is not None
    assert compared > 500


def test_a_tenure_says_why_it_ended(reader: JournalReader) -> None:
    ends = {(one.ended, one.cause) for page in range(1, 100, 3) for one in page_history(reader, "full", page)}
    assert {("node_created", None), ("node_deleted", "capacity"), (None, None)} <= ends
    swa_ends = {one.cause for page in range(1, 50, 3) for one in page_history(reader, "swa", page)}
    assert {"capacity", "retract", "reset", None} <= swa_ends


@pytest.mark.parametrize("page", [0, 101, -1])
def test_a_page_outside_its_pool_has_no_history(reader: JournalReader, page: int) -> None:
    with pytest.raises(InvalidArgument, match="not in the full pool"):
        list(page_history(reader, "full", page))


def test_the_history_of_a_node_begins_with_what_made_it(reader: JournalReader) -> None:
    created = set()
    for node in [*sorted(replay(reader.transactions()).state.nodes)[:5], 1, 2, 3, 4, 5, 6]:
        found = list(node_history(reader, node, through_splits=False))
        event: Any = found[0].event
        created.add(event.kind)
        assert node in (getattr(event, "head", None), event.node)
        assert [one.seq for one in found] == sorted({one.seq for one in found})
    assert created == {"node_created", "node_split"}
    assert list(node_history(reader, 10**6)) == []


def test_the_history_of_a_request_is_all_of_its_transactions(reader: JournalReader) -> None:
    found = list(request_history(reader, "r3"))
    assert {one.op for one in found} >= {"open_request", "extend", "commit", "retract", "finish"}
    assert found[-1].event.kind == "request_closed"


def test_anomalies_are_refusals_errors_and_what_a_reset_cut(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        with journal.record() as recorder:
            cache = HybridCache(
                CacheConfig(page_size=1, sliding_window=2, full_tokens=32, swa_tokens=32), sink=recorder
            )
            lease = cache.acquire([1, 2, 3])
            request = cache.open_request("r1", [1, 2, 3])
            with suppress(ZeroDivisionError), cache.transaction("broken"):
                cache.alloc(2)
                raise ZeroDivisionError("no")
            with cache.transaction("changed its mind") as transaction:
                cache.alloc(1)
                transaction.rollback(reason="as planned")
            cache.reset()
            cache.release(lease)
            request.abort()
        found = list(anomalies(journal.reader()))
    assert [(one.event.kind, one.op) for one, _ in found] == [
        ("rolled_back", "broken"),
        ("lock_released", "reset"),
        ("lock_released", "reset"),
        ("call_ignored", "release"),
        ("call_ignored", "abort"),
    ]
    assert found[0][1] == f"event {found[0][0].seq - 1} was undone, cause error: ZeroDivisionError: no"


def test_a_difference_is_what_the_events_between_did(reader: JournalReader) -> None:
    ends = [t.last_seq for t in reader.transactions() if t.op == "open_request"]
    before = replay(reader.transactions(), upto=ends[2] - 1).state
    after = replay(reader.transactions(), upto=ends[2]).state
    found = difference(before, after)
    assert found.requests.added == ("r2",)
    assert len(found.leases.added) == 1
    removed = (*found.leases.removed, *found.nodes.removed, *found.requests.removed)
    assert not removed
    changed = {change.field for changes in found.nodes.changed.values() for change in changes}
    assert changed == {"start", "parent", "full_pages", "swa_pages"}
    assert difference(after, after).is_empty


def test_following_a_journal_gives_every_event_once(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as journal, journal.record(durability="commit") as recorder:
        cache = HybridCache(
            CacheConfig(page_size=1, sliding_window=2, full_tokens=32, swa_tokens=32), sink=recorder
        )
        cache.free(cache.alloc(3))
        following = follow(journal.reader(), 2, pause=lambda: cache.free(cache.alloc(2)))
        assert [int(found.seq) for found in islice(following, 8)] == [2, 3, 4, 5, 6, 7, 8, 9]
        assert [int(found.seq) for found in follow(journal.reader(), 3)] == [7, 8, 9]
