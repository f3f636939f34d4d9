"""Replay: what each event does to the state, and which boundary a seq means."""

from collections.abc import Iterator

import numpy as np
import pytest

from kvledger.core.errors import JournalError
from kvledger.core.events import Event, EventsDropped, MappingSet
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import Fold, ReplayError, replay
from kvledger.journal.state import PoolPlaces
from tests.support.hand_written import (
    Story,
    allocated,
    created,
    edited,
    inserted,
    pages,
    split,
    touched,
    with_event_before,
    with_transaction_after,
)
from tests.support.stories import (
    HEALTHY,
    eviction_and_reuse,
    nested_rollbacks,
    one_request,
    recovery_under_lock,
    recovery_without_lock,
    refused_commit,
    reset_in_the_middle,
    two_namespaces,
)


@pytest.mark.parametrize("story", HEALTHY)
def test_every_seq_means_the_last_transaction_boundary_at_or_before_it(story: str) -> None:
    journal = HEALTHY[story]()
    fold = Fold()
    boundaries = {0: ""}
    for transaction in journal:
        fold.apply(transaction)
        boundaries[transaction.last_seq] = fold.state.digest()
    for seq in range(1, journal[-1].last_seq + 3):
        boundary = max(at for at in boundaries if at <= seq)
        replayed = replay(journal, upto=seq)
        assert replayed.seq == boundary
        assert replayed.state.digest() == boundaries[boundary]
    assert replay(journal).state.digest() == fold.state.digest()


@pytest.mark.parametrize("story", HEALTHY)
def test_replaying_twice_gives_the_same_state(story: str) -> None:
    assert replay(HEALTHY[story]()).state.digest() == replay(HEALTHY[story]()).state.digest()


def test_a_replay_reads_no_further_than_it_has_to() -> None:
    journal = one_request()

    def only_the_first_four() -> Iterator[StoredTransaction]:
        yield from journal[:4]
        raise AssertionError("read on")

    assert replay(only_the_first_four(), upto=12).seq == 5


def test_a_replay_tells_what_it_read() -> None:
    replayed = replay(refused_commit())
    assert (replayed.seq, replayed.transaction) == (14, 4)
    assert (replayed.events, replayed.undone_events) == (14, 1)


@pytest.mark.parametrize("upto", [0, -1])
def test_nothing_at_or_before_a_seq_is_an_error(upto: int) -> None:
    with pytest.raises(ReplayError, match=f"no transaction at or before seq {upto}"):
        replay(one_request(), upto=upto)
    with pytest.raises(JournalError):
        replay([])


def test_the_tree_of_a_commit_is_shown_as_views() -> None:
    state = replay(one_request(), upto=13).state
    first, second = state.walk()
    assert (first.id, first.parent, first.children, first.start, first.end) == (1, None, (2,), 0, 4)
    assert (second.id, second.parent, second.children, second.start, second.end) == (2, 1, (), 4, 8)
    assert (first.full_lock, first.swa_lock, second.full_lock, second.swa_lock) == (1, 0, 1, 1)
    assert (first.stamp, second.stamp) == (1, 3)
    assert np.frombuffer(second.tokens, "<i4").tolist() == [4, 5, 6, 7]
    assert second.swa_pages is not None
    assert (second.full_pages.tolist(), second.swa_pages.tolist()) == ([2], [2])


def test_a_row_is_extended_committed_and_gone() -> None:
    journal = one_request()
    name = RequestId("r1")
    assert replay(journal, upto=5).state.requests[name].row.tolist() == [1, 2, 3, 4, 5]
    committed = replay(journal, upto=13).state
    assert committed.requests[name].row.tolist() == [1, 2, 3, 4, 5]
    assert committed.requests[name].lease == 2
    assert list(committed.leases) == [2]
    assert replay(journal).state.requests == {}


def test_a_long_row_grows_with_its_allocations() -> None:
    story = Story().then("open_request", *one_request_opened())
    for page in range(16):
        story.then("extend", allocated(pages(page + 1), pages(0), owner="r1", row_start=page))
    row = replay(story.then("extend").journal()).state.requests[RequestId("r1")].row
    assert row.tolist() == list(range(1, 17))


def one_request_opened() -> list[Event]:
    return [stored.event for stored in one_request()[1].events]


def test_giving_back_swa_keeps_full_and_clears_the_mapping() -> None:
    state = replay(one_request(), upto=15).state
    assert state.mapping[[1, 2, 3, 4, 5]].tolist() == [1, 2, 0, 4, 5]
    full, swa = state.places()
    assert full == PoolPlaces(total=16, free=11, deferred=0, tree=2, held=3)
    assert swa == PoolPlaces(total=8, free=4, deferred=0, tree=2, held=2)


def test_a_recovery_under_lock_keeps_full_and_takes_the_incoming_swa() -> None:
    state = replay(recovery_under_lock(), upto=14).state
    node = state.nodes[NodeId(1)]
    assert (node.full.tolist(), node.swa is not None and node.swa.tolist()) == ([1], [1])
    assert state.mapping[[1, 2]].tolist() == [1, 0]
    assert (node.is_mixed, node.stamp) == (True, 3)
    assert state.places()[0].free == 15


def test_a_recovery_without_lock_takes_the_incoming_full() -> None:
    state = replay(recovery_without_lock()).state
    assert state.nodes[NodeId(1)].full.tolist() == [2]
    assert state.mapping[[1, 2]].tolist() == [0, 1]
    assert state.places()[0] == PoolPlaces(total=16, free=15, deferred=0, tree=1, held=0)


def test_a_tombstone_has_no_swa_and_no_swa_origin() -> None:
    node = replay(recovery_without_lock(), upto=6).state.nodes[NodeId(1)]
    assert (node.swa, node.swa_origin) == (None, None)


def test_deleted_nodes_leave_their_namespace() -> None:
    state = replay(eviction_and_reuse()).state
    assert (state.nodes, state.roots, list(state.walk())) == ({}, {}, [])


def test_a_parent_that_becomes_a_leaf_takes_over_a_stamp() -> None:
    journal = edited(eviction_and_reuse(), 8, parent_stamp=77)
    fold = Fold()
    for transaction in journal[:4]:
        fold.apply(transaction)
    parent = fold.state.nodes[NodeId(1)]
    fold.apply(journal[4])
    assert parent.stamp == 77


def test_a_split_shares_out_tokens_pages_locks_and_children() -> None:
    journal = with_transaction_after(two_namespaces(), 5, "mine", split(2, 4, 2))
    with pytest.raises(ReplayError, match="cannot be split at 2"):
        replay(journal)
    state = replay(two_namespaces(), upto=10).state
    head, tail = state.nodes[NodeId(3)], state.nodes[NodeId(1)]
    assert (head.start, head.end, tail.start, tail.end) == (0, 4, 4, 8)
    assert (head.full.tolist(), tail.full.tolist()) == ([1], [2])
    assert (list(head.children), tail.parent, list(state.roots["x"])) == ([1], head, [3])
    assert (head.full_lock, head.swa_lock, tail.full_lock, tail.swa_lock) == (1, 0, 1, 1)
    assert head.tokens + tail.tokens == np.arange(8, dtype="<i4").tobytes()
    assert [view.id for view in state.walk("y")] == [2]
    assert [node.id for node in state.path(tail)] == [3, 1]


def test_a_split_under_a_lock_gives_both_halves_its_counts() -> None:
    story = (
        Story()
        .then("alloc", allocated(pages(1, 2)))
        .then("insert", created(1, pages(1, 2), pages(1, 2)), inserted(8, full=[(0, 8)], swa=[(0, 8)]))
    )
    fold = Fold()
    for transaction in story.journal():
        fold.apply(transaction)
    node = fold.state.nodes[NodeId(1)]
    node.full_lock, node.swa_lock = 3, 2
    fold.apply(story.then("mine", split(1, 2, 4)).journal()[-1])
    head = fold.state.nodes[NodeId(2)]
    assert (head.full_lock, head.swa_lock, node.full_lock, node.swa_lock) == (3, 2, 3, 2)


def test_releases_give_back_exactly_what_was_locked() -> None:
    journal = one_request()
    assert [replay(journal, upto=13).state.nodes[NodeId(n)].swa_lock for n in (1, 2)] == [0, 1]
    early = replay(journal, upto=15).state
    assert [early.nodes[NodeId(n)].full_lock for n in (1, 2)] == [1, 1]
    assert [early.nodes[NodeId(n)].swa_lock for n in (1, 2)] == [0, 0]
    assert not early.leases[LeaseId(2)].swa_held
    assert [replay(journal).state.nodes[NodeId(n)].full_lock for n in (1, 2)] == [0, 0]


def test_undone_events_leave_no_trace() -> None:
    state = replay(nested_rollbacks(), upto=8).state
    assert (state.nodes, state.leases) == ({}, {})
    assert state.places()[0] == PoolPlaces(total=16, free=14, deferred=0, tree=0, held=2)


def test_a_reset_raises_the_generation_and_leaves_what_callers_hold() -> None:
    state = replay(reset_in_the_middle(), upto=17).state
    assert state.generation == 1
    assert state.places()[0] == PoolPlaces(total=16, free=15, deferred=0, tree=0, held=1)


def test_touching_stamps_nodes_in_order() -> None:
    journal = with_event_before(one_request(), 14, touched(2, 1, first_stamp=50))
    state = replay(journal, upto=16).state
    assert (state.nodes[NodeId(2)].stamp, state.nodes[NodeId(1)].stamp) == (50, 51)


def test_the_mapping_can_be_set_anew() -> None:
    story = Story().then("alloc", allocated(pages(1, 2))).then("mine", MappingSet(pages(1, 2), pages(2, 1)))
    state = replay(story.journal()).state
    assert (state.mapping[[1, 2]].tolist(), state.swa_at[[1, 2]].tolist()) == ([2, 1], [2, 1])


def test_a_fold_refuses_gaps_and_goes_on_no_more() -> None:
    journal = one_request()
    fold = Fold()
    fold.apply(journal[0])
    with pytest.raises(ReplayError, match="one is missing") as caught:
        fold.apply(journal[2])
    assert caught.value.seq == 5
    with pytest.raises(ReplayError, match="start again"):
        fold.apply(journal[1])


def test_a_fold_knows_no_state_before_the_first_event() -> None:
    with pytest.raises(ReplayError, match="no cache_opened event"):
        _ = Fold().state


def test_events_that_were_dropped_end_a_replay() -> None:
    journal = with_transaction_after(one_request(), 3, "dropped", EventsDropped(4, 9))
    with pytest.raises(ReplayError, match="4 to 9 were not stored") as caught:
        replay(journal)
    assert caught.value.seq == 6
