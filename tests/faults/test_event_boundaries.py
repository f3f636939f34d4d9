"""An exception at any event boundary of any operation leaves everything as it was.

Each operation is prepared anew, its events are counted, and then it is made to fail at its first event,
its second, and so on. Afterwards digest, sizes, progress and journal are compared, and the same operation is
tried again: it has to succeed. The same is done where the sink refuses and where the memory fails.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from kvledger.core import HybridCache, Lease, Request
from kvledger.core.errors import CacheError, InvariantViolation, JournalError, StaleLease
from kvledger.core.events import Event
from kvledger.core.sinks import MemorySink, TransactionRecord
from kvledger.core.transaction import Ledger
from tests.reference.retention import learned
from tests.support.witness import Witness, open_cache

Act = Callable[[], object]
Prepare = Callable[[HybridCache], Act]

HEAD = list(range(1, 9))


def insert(cache: HybridCache, tokens: list[int], *, dead: int = 0) -> np.ndarray:
    """Allocate, give back the dead SWA, insert; the slots that were allocated."""
    slots = cache.alloc(len(tokens))
    if dead:
        cache.free_swa(slots[:dead])
    cache.insert(tokens, slots, swa_evicted_len=dead)
    return slots


def locked_tombstone(cache: HybridCache) -> None:
    """HEAD with its Full locked and its SWA evicted."""
    insert(cache, HEAD)
    insert(cache, [*HEAD, 100, 101, 102, 103])
    cache.release_swa(cache.acquire(HEAD))
    cache.evict(swa_tokens=12)


def running(cache: HybridCache, name: str, tokens: list[int]) -> Request:
    """A request that has computed all its tokens."""
    request = cache.open_request(name, tokens)
    request.extend(len(tokens) - request.prefix_len)
    request.computed()
    return request


def alloc(cache: HybridCache) -> Act:
    return lambda: cache.alloc(4)


def alloc_full_only(cache: HybridCache) -> Act:
    return lambda: cache.alloc_full_only(4)


def insert_a_long_leaf(cache: HybridCache) -> Act:
    slots = cache.alloc(16)
    cache.free_swa(slots[:4])
    return lambda: cache.insert(list(range(16)), slots, swa_evicted_len=4)


def insert_a_duplicate_with_a_new_tail(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    slots = cache.alloc(12)
    return lambda: cache.insert([*HEAD[:6], 50, 51, 52, 53, 54, 55], slots)


def insert_that_heals_by_adopting(cache: HybridCache) -> Act:
    insert(cache, HEAD, dead=8)
    slots = cache.alloc(8)
    cache.free_swa(slots[:4])
    return lambda: cache.insert(HEAD, slots, swa_evicted_len=4)


def insert_that_heals_under_a_lock(cache: HybridCache) -> Act:
    locked_tombstone(cache)
    slots = cache.alloc(10)
    cache.free_swa(slots[:2])
    return lambda: cache.insert([*HEAD, 200, 201], slots, swa_evicted_len=2)


def insert_with_a_protected_part_of_a_node(cache: HybridCache) -> Act:
    own = insert(cache, HEAD, dead=8)
    slots = np.concatenate([own[:2], cache.alloc(6)])
    return lambda: cache.insert(HEAD, slots, protected_len=2, swa_evicted_len=4)


def insert_after_a_lease(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    lease = cache.acquire(HEAD)
    insert(cache, [*HEAD, 50, 51, 52])
    slots = cache.alloc(10)
    cache.free_swa(slots[:1])
    return lambda: cache.insert_after(lease, [50, 51, *range(60, 68)], slots, swa_evicted_len=9)


def insert_after_that_heals_under_a_lock(cache: HybridCache) -> Act:
    lease = lease_before_locked_tombstones(cache)
    slots = cache.alloc(10)
    return lambda: cache.insert_after(lease, [*range(9, 17), 200, 201], slots)


def advance_to_something_new(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    lease = cache.acquire(HEAD)
    slots = cache.alloc(12)
    return lambda: cache.advance(lease, list(range(300, 312)), slots, swa_evicted_len=12)


def advance_from_nothing(cache: HybridCache) -> Act:
    lease = cache.acquire(HEAD)
    slots = cache.alloc(8)
    return lambda: cache.advance(lease, HEAD, slots)


def advance_over_a_duplicate(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    lease = cache.acquire(HEAD)
    insert(cache, [*HEAD, *range(300, 312)])
    slots = cache.alloc(10)
    return lambda: cache.advance(lease, list(range(300, 310)), slots)


def advance_that_heals_by_adopting(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    lease = cache.acquire(HEAD)
    insert(cache, [*HEAD, *range(300, 308)], dead=16)
    slots = cache.alloc(8)
    return lambda: cache.advance(lease, list(range(300, 308)), slots)


def advance_that_heals_under_a_lock(cache: HybridCache) -> Act:
    lease = lease_before_locked_tombstones(cache)
    slots = cache.alloc(10)
    return lambda: cache.advance(lease, [*range(9, 17), 200, 201], slots)


def advance_that_is_refused_in_part(cache: HybridCache) -> Act:
    lease = lease_before_locked_tombstones(cache, live_upto=12)
    slots = cache.alloc(8)
    return lambda: cache.advance(lease, list(range(9, 17)), slots)


def lease_before_locked_tombstones(cache: HybridCache, *, live_upto: int = 8) -> Lease:
    """A lease of 1..8; behind it, up to 16, Full is locked, and SWA is there before `live_upto` alone."""
    insert(cache, list(range(1, 17)))
    lease, whole = cache.acquire(HEAD), cache.acquire(list(range(1, 17)))
    cache.acquire(list(range(1, live_upto + 1)))
    cache.release_swa(whole)
    cache.evict(swa_tokens=64)
    return lease


def acquire_with_two_splits(cache: HybridCache) -> Act:
    insert(cache, list(range(20)), dead=3)
    return lambda: cache.acquire(list(range(17)))


def release(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    lease = cache.acquire(HEAD)
    return lambda: cache.release(lease)


def release_swa(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    lease = cache.acquire(HEAD)
    return lambda: cache.release_swa(lease)


def evict_full_with_a_cascade(cache: HybridCache) -> Act:
    insert(cache, list(range(16)), dead=12)
    insert(cache, [70, 71])
    return lambda: cache.evict(full_tokens=18)


def evict_swa_inside_and_out(cache: HybridCache) -> Act:
    insert(cache, [50, 51])
    insert(cache, HEAD[:4])
    insert(cache, HEAD)
    cache.release_swa(cache.acquire(HEAD))
    return lambda: cache.evict(swa_tokens=10)


def free(cache: HybridCache) -> Act:
    slots = cache.alloc(6)
    return lambda: cache.free(slots)


def free_swa(cache: HybridCache) -> Act:
    slots = cache.alloc(6)
    return lambda: cache.free_swa(slots[:2])


def open_request(cache: HybridCache) -> Act:
    insert(cache, list(range(20)))
    return lambda: cache.open_request("r", list(range(18)))


def extend_that_evicts(cache: HybridCache) -> Act:
    insert(cache, list(range(16)), dead=12)
    insert(cache, list(range(100, 110)))
    request = cache.open_request("r", list(range(200, 260)))
    return lambda: request.extend(60)


def commit_of_something_new(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    request = running(cache, "r", [*HEAD, *range(300, 312)])
    return request.commit


def commit_that_heals_under_a_lock(cache: HybridCache) -> Act:
    locked_tombstone(cache)
    request = running(cache, "r", [*HEAD, 200, 201])
    return request.commit


def commit_of_a_duplicate(cache: HybridCache) -> Act:
    first, second = running(cache, "a", HEAD), running(cache, "b", HEAD)
    first.commit()
    return second.commit


def slide_that_unlocks(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    request = running(cache, "r", [*HEAD, *range(300, 312)])
    return request.slide


def refresh_that_reaches_further(cache: HybridCache) -> Act:
    request = cache.open_request("r", [*HEAD, 9])
    insert(cache, HEAD)
    return request.refresh


def finish_after_sliding(cache: HybridCache) -> Act:
    insert(cache, HEAD[:4])
    request = running(cache, "r", [*HEAD, *range(300, 312)])
    request.slide()
    return request.finish


def abort(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    return running(cache, "r", [*HEAD, 300]).abort


def retract(cache: HybridCache) -> Act:
    insert(cache, HEAD)
    return running(cache, "r", [*HEAD, 300, 301]).retract


def reset(cache: HybridCache) -> Act:
    cache.alloc(2)
    insert(cache, HEAD)
    insert(cache, [*HEAD[:4], 70])
    cache.acquire(HEAD)
    running(cache, "r", [*HEAD, 300])
    return cache.reset


def several_in_one_transaction(cache: HybridCache) -> Act:
    locked_tombstone(cache)
    raw = cache.alloc(8)
    request = running(cache, "r", [*HEAD, 200, 201])

    def act() -> None:
        with cache.transaction("several") as t:
            cache.insert(HEAD, raw)
            before = t.savepoint()
            request.commit()
            cache.evict(full_tokens=4, swa_tokens=4)
            t.rollback(before, reason="changed its mind")
            with cache.transaction("inner"):
                request.commit()
            cache.free(cache.alloc(2))

    return act


def evict_swa_that_cuts_a_node(cache: HybridCache) -> Act:
    insert(cache, list(range(22)))
    insert(cache, [*range(20), *range(30, 52)])
    return lambda: cache.evict(swa_tokens=20)


PREPARED: list[Prepare] = [
    alloc,
    alloc_full_only,
    insert_a_long_leaf,
    insert_a_duplicate_with_a_new_tail,
    insert_that_heals_by_adopting,
    insert_that_heals_under_a_lock,
    insert_with_a_protected_part_of_a_node,
    insert_after_a_lease,
    insert_after_that_heals_under_a_lock,
    advance_to_something_new,
    advance_from_nothing,
    advance_over_a_duplicate,
    advance_that_heals_by_adopting,
    advance_that_heals_under_a_lock,
    advance_that_is_refused_in_part,
    acquire_with_two_splits,
    release,
    release_swa,
    evict_full_with_a_cascade,
    evict_swa_inside_and_out,
    free,
    free_swa,
    open_request,
    extend_that_evicts,
    commit_of_something_new,
    commit_that_heals_under_a_lock,
    commit_of_a_duplicate,
    slide_that_unlocks,
    refresh_that_reaches_further,
    finish_after_sliding,
    abort,
    retract,
    reset,
    several_in_one_transaction,
]

POLICIES: dict[Prepare, dict[str, object]] = {advance_that_is_refused_in_part: {"locked_recovery": "skip"}}


def opened(prepare: Prepare, eviction: str = "lru") -> tuple[HybridCache, MemorySink]:
    """A cache of the policy an operation is meant for."""
    return open_cache(eviction=eviction, **POLICIES.get(prepare, {}))  # type: ignore[arg-type]


TEACHING: list[Prepare] = [
    insert_a_duplicate_with_a_new_tail,
    insert_that_heals_under_a_lock,
    insert_after_a_lease,
    advance_that_is_refused_in_part,
    evict_full_with_a_cascade,
    evict_swa_inside_and_out,
    evict_swa_that_cuts_a_node,
    open_request,
    extend_that_evicts,
    commit_of_something_new,
    commit_of_a_duplicate,
    refresh_that_reaches_further,
    finish_after_sliding,
    retract,
    reset,
    several_in_one_transaction,
]
"""What the order "lru-2" learns from, or decides."""

EVERY_OPERATION = pytest.mark.parametrize("prepare", PREPARED, ids=lambda prepare: prepare.__name__)


class Boom(Exception):
    """The exception put in."""


@dataclass
class Trip:
    """Makes one `apply` raise; counts all of them."""

    at: int | None = None
    seen: int = 0
    error: type[BaseException] = Boom

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        apply = Ledger.apply

        def tripped(ledger: Ledger, event: Event) -> None:
            self.seen += 1
            if self.seen - 1 == self.at:
                raise self.error(f"before event {self.at}, {event.kind}")
            apply(ledger, event)

        monkeypatch.setattr(Ledger, "apply", tripped)


def progress(cache: HybridCache, request: Request) -> tuple[object, ...]:
    """What of a request no event tells."""
    return (
        request.prefix_len,
        request.branch_len,
        request.publish_len,
        request.computed_len,
        request.protected_len,
        request.reserved,
        request.frontier,
        list(request.slots),
    )


def open_requests(act: Act) -> list[Request]:
    """The request that a prepared call is bound to, if any."""
    owner = getattr(act, "__self__", None)
    return [owner] if isinstance(owner, Request) else []


def picture(cache: HybridCache, act: Act) -> tuple[object, ...]:
    """All that must not have changed."""
    return (
        cache.digest(),
        cache.sizes(),
        learned(cache) if cache.config.eviction == "lru-2" else None,
        [progress(cache, request) for request in open_requests(act)],
    )


@pytest.mark.interpreted
@EVERY_OPERATION
@pytest.mark.parametrize("error", [Boom, KeyboardInterrupt])
def test_an_exception_before_any_event_of_an_operation_undoes_all_of_it(
    prepare: Prepare, error: type[BaseException]
) -> None:
    fail_before_each_event(prepare, error, "lru")


@pytest.mark.interpreted
@pytest.mark.parametrize("prepare", TEACHING, ids=lambda prepare: prepare.__name__)
def test_under_lru_2_it_undoes_what_was_learned_too_and_the_retry_ends_the_same(prepare: Prepare) -> None:
    fail_before_each_event(prepare, Boom, "lru-2")


def fail_before_each_event(prepare: Prepare, error: type[BaseException], eviction: str) -> None:
    """Let an operation fail before its first event, its second, and so on, and try it again each time."""
    cache, _ = opened(prepare, eviction)
    act = prepare(cache)
    with pytest.MonkeyPatch.context() as counting:
        trip = Trip()
        trip.install(counting)
        act()
    assert trip.seen > 0, "this operation emits nothing: the test would prove nothing"
    undisturbed = outcome(cache)

    for k in range(trip.seen):
        cache, sink = opened(prepare, eviction)
        act = prepare(cache)
        before = picture(cache, act)
        with pytest.MonkeyPatch.context() as tripping:
            Trip(at=k, error=error).install(tripping)
            with pytest.raises(error):
                act()
        assert picture(cache, act) == before, f"event {k} of {trip.seen}"
        witness = Witness(cache, sink)
        witness.look()
        witness.verdict()
        act()
        witness.look()
        witness.verdict()
        assert cache.digest() != before[0] or prepare is commit_of_a_duplicate
        assert outcome(cache) == undisturbed


def outcome(cache: HybridCache) -> tuple[object, ...]:
    """What an operation led to, without ids, which differ where something was undone before."""
    knows = learned(cache) if cache.config.eviction == "lru-2" else None
    return (
        cache.sizes(),
        sorted((view.start, view.end, view.full_slots[0], view.last_access) for view in cache.nodes()),
        None if knows is None else (knows.margin, knows.counts, knows.history, knows.now),
    )


class RefusingSink(MemorySink):
    """Takes everything until it is told to refuse."""

    refuse = False

    def append(self, transaction: TransactionRecord) -> None:
        if self.refuse:
            raise JournalError("the disk is full")
        super().append(transaction)


@EVERY_OPERATION
def test_a_sink_that_refuses_undoes_the_operation_and_its_error_comes_through(prepare: Prepare) -> None:
    sink = RefusingSink()
    cache = HybridCache(opened(prepare)[0].config, sink=sink)
    act = prepare(cache)
    before = picture(cache, act)
    sink.refuse = True
    with pytest.raises(JournalError, match="the disk is full"):
        act()
    assert picture(cache, act) == before
    sink.refuse = False
    witness = Witness(cache, sink)
    witness.look()
    act()
    witness.look()
    witness.verdict()


def test_memory_that_fails_to_commit_stops_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, sink = open_cache()
    slots = cache.alloc(4)

    def broken(changes: object) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(cache.pool, "commit", broken)
    with pytest.raises(RuntimeError, match="device lost"):
        cache.free(slots)
    monkeypatch.undo()
    journaled = len(sink.transactions)
    for call in (lambda: cache.alloc(4), lambda: cache.evict(full_tokens=1), lambda: cache.acquire([1])):
        with pytest.raises(CacheError) as caught:
            call()
        assert isinstance(caught.value, InvariantViolation)
    assert len(sink.transactions) == journaled


def test_an_exception_in_the_callers_own_block_undoes_the_whole_transaction() -> None:
    cache, sink = open_cache()
    insert(cache, HEAD)
    raw = cache.alloc(4)
    before = cache.digest()
    witness = Witness(cache, sink)
    born: list[Lease | Request] = []

    def step() -> None:
        with cache.transaction("step", request_id="r9"):
            cache.free(raw)
            born.append(cache.acquire(HEAD))
            request = cache.open_request("r9", [*HEAD, 10])
            born.append(request)
            request.extend(1)
            raise Boom("the scheduler fell over")

    with pytest.raises(Boom):
        step()
    assert cache.digest() == before
    witness.look()
    last = sink.transactions[-1]
    assert (last.op, last.request_id, last.rolled_back) == ("step", "r9", True)
    assert "the scheduler fell over" in last.reason
    lease, request = born
    assert isinstance(lease, Lease)
    assert isinstance(request, Request)
    for call in (lambda: cache.release(lease), request.finish, request.slide, request.abort):
        with pytest.raises(StaleLease):
            call()
    cache.free(raw)
    witness.look()
