"""Why "lru-2": what it keeps that "lru" lets go, told with numbers, and that a rollback leaves no trace.

Blocks are units of 512 tokens, the grain of the reference history.
"""

from collections.abc import Callable

import numpy as np
import pytest

from kvledger.core import HybridCache
from kvledger.core.events import Event, NodeDeleted, NodeSplit, SwaTombstoned
from kvledger.core.sinks import MemorySink
from tests.reference.retention import learned
from tests.scenario.dsl import Story
from tests.support.witness import Witness, open_cache

UNIT = 512
ORDERS = ("lru", "lru-2")


def row(*blocks: int, tail: int = 0) -> np.ndarray:
    """A prompt of blocks, equal numbers are equal tokens, and one token that nobody shares."""
    return np.append(np.repeat(np.asarray(blocks, dtype=np.int32), UNIT), np.int32(10_000 + tail))


class Served:
    """Prompts served one after the other, each to its end."""

    def __init__(self, eviction: str, *, blocks: int, page: int = UNIT, window: int = UNIT) -> None:
        self.cache, self.sink = open_cache(
            page=page, window=window, full=blocks * UNIT, swa=blocks * UNIT, eviction=eviction
        )
        self.witness = Witness(self.cache, self.sink)

    def serve(self, prompt: np.ndarray) -> int:
        """The blocks that were found."""
        request = self.cache.open_request("r", prompt)
        found = request.prefix_len
        request.extend(len(prompt) - found)
        request.computed()
        request.finish()
        self.witness.look()
        return found // UNIT


def served(eviction: str) -> list[int]:
    """A head of two blocks asked for twice, eight prompts of three that come once, then the head again."""
    story = Served(eviction, blocks=16)
    story.serve(row(1, 2, 100))
    for once in range(3):
        story.serve(row(200 + once, 300 + once, 400 + once))
    story.serve(row(1, 2, 101))
    for once in range(3, 11):
        story.serve(row(200 + once, 300 + once, 400 + once))
    last = story.serve(row(1, 2, 102))
    story.witness.verdict()
    return [last]


def test_a_shared_head_survives_prompts_that_come_once() -> None:
    """Full = SWA = 16 blocks; 24 blocks of prompts that come once go by | 0 blocks of the head, then 2."""
    assert [served(eviction) for eviction in ORDERS] == [[0], [2]]


def test_a_prefix_that_was_evicted_is_known_when_it_comes_back() -> None:
    """The head is driven out whole, comes back once, and then outlives what drove it out before | 0, 0, 2."""
    story = Served("lru-2", blocks=16)
    story.serve(row(1, 2, 100))
    for once in range(6):
        story.serve(row(200 + once, 300 + once, 400 + once))
    assert story.serve(row(1, 2, 101)) == 0
    for once in range(6, 14):
        story.serve(row(200 + once, 300 + once, 400 + once))
    assert story.serve(row(1, 2, 102)) == 2
    story.witness.verdict()


PARTED = "1..20, 900, 901"
"""A row whose last two tokens the next one will not have: a template's end."""
NEXT = "1..20, 21..40, 900, 901"
THIRD = "1..40, 41..60, 900, 901"


@pytest.mark.parametrize(("eviction", "gone", "found"), [("lru", 18, 20), ("lru-2", 32, 40)])
def test_a_window_before_a_likely_parting_is_kept(eviction: str, gone: int, found: int) -> None:
    """W=4; the second row parts 2 before the first's end; EVICT(0,18) | the third finds 20; under lru-2 40,
    although more is gone."""
    s = Story(eviction=eviction)
    s.INS(PARTED)
    s.INS(NEXT)
    assert s.EVICT(0, 18) == (0, gone)
    assert s.MATCH(THIRD) == found


def test_what_lies_before_the_kept_part_of_a_node_is_cut_off_and_goes_alone() -> None:
    """W=4, margin 2, INS(1..40, 900, 901) | of [20, 38) the last 2 stay live: 36, that is 42 - 4 - 2."""
    s = Story(eviction="lru-2")
    s.INS(PARTED)
    s.INS(NEXT)
    s.EVICT(0, 18)
    live = [(view.start, view.end) for view in s.cache.nodes() if view.swa_slots is not None]
    assert (36, 38) in live
    assert any(isinstance(event, NodeSplit) and event.at == 36 for event in s.sink.transactions[-1].events)


def test_a_shortage_takes_one_window_whole_before_it_touches_the_next() -> None:
    """Three rows of two nodes each inside their windows; EVICT(0,8) | the first two rows match nothing."""
    s = Story(page=2, window=6, eviction="lru-2")
    rows = [list(range(head, head + 6)) for head in (100, 200, 300)]
    for one in rows:
        s.INS(one)
        # A lock of the first four tokens cuts the row in two.
        s.UNLOCK(s.LOCK(one[:4]))
    assert s.EVICT(0, 8)[1] >= 8
    assert [s.MATCH(one) for one in rows] == [0, 0, 6]


def victims(events: list[Event]) -> list[tuple[str, int, int]]:
    """What went, by its first Full page and number of pages: ids differ where something was undone."""
    return [
        (event.kind, int(event.full_pages[0]), len(event.full_pages))
        for event in events
        if isinstance(event, NodeDeleted | SwaTombstoned)
    ]


def pressed() -> tuple[HybridCache, MemorySink]:
    """A cache with ranks, margins and windows to choose from."""
    cache, sink = open_cache(page=64, window=100, full=24 * 512, swa=12 * 512, eviction="lru-2")
    for number in range(40):
        head = [1, 2] if number % 3 else [3]
        prompt = row(*head, 50 + number // 2, tail=number)[: -1 - 64 * (number % 4)]
        request = cache.open_request("r", prompt)
        request.extend(len(prompt) - request.prefix_len)
        request.computed()
        request.finish()
    knows = learned(cache)
    assert knows.margin > 0
    assert len({mark.rank for mark in knows.marks.values()}) > 3
    return cache, sink


class Boom(Exception):
    """Leaves a transaction by an exception."""


def undo_by_rollback(cache: HybridCache) -> None:
    with cache.transaction("tried") as transaction:
        act(cache)
        transaction.rollback()


def undo_by_exception(cache: HybridCache) -> None:
    def tried() -> None:
        with cache.transaction("tried"):
            act(cache)
            raise Boom

    with pytest.raises(Boom):
        tried()


def act(cache: HybridCache) -> None:
    """Evicts in both pools, publishes something that parts, and asks for something old."""
    cache.evict(full_tokens=2_048, swa_tokens=3_000)
    request = cache.open_request("new", row(1, 2, 999)[:-1])
    request.extend(request.num_tokens - request.prefix_len)
    request.computed()
    request.commit()
    request.finish()
    cache.evict(swa_tokens=512)


@pytest.mark.parametrize("undo", [undo_by_rollback, undo_by_exception])
def test_what_was_undone_leaves_no_trace_and_its_retry_takes_the_same(
    undo: Callable[[HybridCache], None],
) -> None:
    plain, plain_sink = pressed()
    act(plain)
    wanted = [event for one in plain_sink.transactions[-6:] for event in one.events]

    cache, sink = pressed()
    before = (cache.digest(), learned(cache), cache.sizes())
    undo(cache)
    assert (cache.digest(), learned(cache), cache.sizes()) == before
    undone = sink.transactions[-1].events
    act(cache)
    again = [event for one in sink.transactions[-6:] for event in one.events]
    assert victims(again) == victims(wanted)
    assert len(victims(wanted)) > 5
    # Inside one transaction nothing is learned before its end, so only what went first must be the same.
    assert victims(undone)[:5] == victims(wanted)[:5]
    assert learned(cache).margin == learned(plain).margin
    assert learned(cache).history == learned(plain).history
    witness = Witness(cache, sink)
    witness.look()
    witness.verdict()


def test_two_runs_make_the_same_journal() -> None:
    (first, first_sink), (second, second_sink) = pressed(), pressed()
    assert first.digest() == second.digest()
    assert [[event.kind for event in one.events] for one in first_sink.transactions] == [
        [event.kind for event in one.events] for one in second_sink.transactions
    ]
    assert learned(first) == learned(second)


def test_a_reset_begins_anew_and_the_journal_audits() -> None:
    cache, sink = pressed()
    cache.reset()
    knows = learned(cache)
    assert (knows.margin, knows.now, knows.history, knows.marks) == (0, 0, (), {})
    act(cache)
    witness = Witness(cache, sink)
    witness.look()
    witness.verdict()


def test_the_journal_names_the_order_unless_it_is_the_default() -> None:
    told = [open_cache(eviction=eviction)[1].transactions[0].events[0] for eviction in ORDERS]
    assert [getattr(event, "config", {}).get("eviction") for event in told] == [None, "lru-2"]
