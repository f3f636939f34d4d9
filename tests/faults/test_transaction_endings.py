"""How transactions end when something is wrong with the way they end."""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import torch

from kvledger.core import CacheConfig, HybridCache, KVLayout, MemorySink
from kvledger.core import transaction as transaction_module
from kvledger.core.errors import (
    CacheError,
    InvalidArgument,
    InvariantViolation,
    StaleLease,
    TransactionError,
    WrongThread,
)
from kvledger.core.events import Evicted, PagesAllocated, RolledBack
from kvledger.core.page_table import PageTable
from kvledger.core.sinks import TransactionRecord
from kvledger.core.transaction import Ledger
from kvledger.journal.audit import audit
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import replay

T = TypeVar("T")


def made(
    sink: Any = None, *, page: int = 4, tokens: int = 64, pool: Any = None, layout: KVLayout | None = None
) -> HybridCache:
    config = CacheConfig(
        page_size=page, sliding_window=4, full_tokens=tokens, swa_tokens=tokens, layout=layout
    )
    return HybridCache(config, sink=sink, pool=pool)


def healthy(cache: HybridCache, sink: MemorySink) -> None:
    cache.check()
    stored = number_transactions(sink.transactions)
    assert replay(stored).state.digest() == cache.digest()
    assert audit(stored).verdict == "pass"


def only(sink: MemorySink, kind: type[T]) -> T:
    (event,) = [event for event in sink.transactions[-1].events if isinstance(event, kind)]
    return event


def fail_inside(cache: HybridCache, error: BaseException, *, request_id: str | None = None) -> None:
    with cache.transaction("x", request_id=request_id):
        cache.alloc(4)
        raise error


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_cannot_say_what_it_is_still_undoes_its_transaction() -> None:
    sink = MemorySink()
    cache = made(sink)
    before = cache.digest()
    with pytest.raises(Mute):
        fail_inside(cache, Mute())
    assert cache.digest() == before
    cache.alloc(4)
    assert len(sink.transactions) == 3
    healthy(cache, sink)


@pytest.mark.parametrize("failing", [True, False], ids=["an exception", "no exception"])
def test_an_outer_block_that_ends_before_an_inner_one_undoes_all_and_says_so(failing: bool) -> None:
    sink = MemorySink()
    cache = made(sink)
    before = cache.digest()
    outer = cache.transaction("outer").__enter__()
    cache.alloc(4)
    inner = cache.transaction("inner").__enter__()
    cache.alloc(4)
    error = ValueError("first out") if failing else None
    with pytest.raises(TransactionError, match="all was undone"):
        outer.__exit__(None if error is None else ValueError, error, None)
    assert cache.digest() == before
    with pytest.raises(TransactionError, match="ended already"):
        inner.__exit__(None, None, None)
    cache.alloc(4)
    healthy(cache, sink)


def in_thread(call: Callable[[], object]) -> BaseException | None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return caught[0] if caught else None


def test_a_transaction_cannot_be_ended_from_another_thread() -> None:
    cache = made(MemorySink())
    block = cache.transaction("a").__enter__()
    cache.alloc(4)
    assert isinstance(in_thread(lambda: block.__exit__(None, None, None)), WrongThread)
    assert cache.sizes().full.held == 4
    block.__exit__(None, None, None)
    cache.free(np.arange(4, 8))


def test_a_request_can_only_be_read_from_the_owning_thread_and_while_it_is_open() -> None:
    cache = made()
    request = cache.open_request("r", range(1, 9))
    request.extend(8)
    request.computed()
    assert isinstance(in_thread(lambda: request.slots), WrongThread)
    assert isinstance(in_thread(lambda: request.slots_of(0, 4)), WrongThread)
    request.abort()
    for read in (lambda: request.slots, lambda: request.slots_of(0, 4), lambda: request.lease):
        with pytest.raises(StaleLease):
            read()
    assert request.computed_len == 8


def test_a_savepoint_of_another_cache_is_refused() -> None:
    first, second = made(MemorySink()), made(MemorySink())
    with first.transaction("x") as one, second.transaction("y") as two:
        first.alloc(4)
        theirs = one.savepoint()
        second.alloc(4)
        two.savepoint()
        with pytest.raises(TransactionError):
            two.rollback(theirs)
        assert second.sizes().full.held == 4


def test_many_rollbacks_leave_each_older_savepoint_good_and_each_younger_one_dead() -> None:
    cache = made(MemorySink())
    with cache.transaction("x") as t:
        good = [t.savepoint()]
        for _ in range(5):
            cache.alloc(4)
            good.append(t.savepoint())
        dead = []
        while len(good) > 1:
            dead.append(good.pop())
            t.rollback(good[-1])
            cache.alloc(4)
            t.rollback(good[-1])
            for savepoint in dead:
                with pytest.raises(TransactionError):
                    t.rollback(savepoint)
        t.rollback(good[0])
        assert cache.sizes().full.held == 0


@pytest.mark.parametrize("reason", [None, 5, b"x"])
def test_the_reason_of_a_rollback_is_a_string(reason: Any) -> None:
    cache = made(MemorySink())
    with cache.transaction("x") as t:
        cache.alloc(4)
        with pytest.raises(InvalidArgument):
            t.rollback(reason=reason)
        assert cache.sizes().full.held == 4


def test_a_rollback_is_journaled_with_the_request_it_is_about() -> None:
    sink = MemorySink()
    cache = made(sink)
    with cache.transaction("x", request_id="r9") as t:
        cache.alloc(4)
        t.rollback()
        with pytest.raises(ValueError, match="inner"):
            fail_inside(cache, ValueError("inner"), request_id="r7")
    rolled_back = [event for event in sink.transactions[-1].events if isinstance(event, RolledBack)]
    assert [event.request_id for event in rolled_back] == ["r9", "r7"]


class Meddler:
    """A sink that calls the cache it is told about."""

    def __init__(self) -> None:
        self.cache: HybridCache | None = None
        self.kept: list[TransactionRecord] = []
        self.errors: list[CacheError] = []

    def append(self, transaction: TransactionRecord) -> None:
        if self.cache is not None:
            try:
                self.cache.evict(4)
            except CacheError as error:
                self.errors.append(error)
        self.kept.append(transaction)


def test_a_sink_cannot_change_the_cache_whose_transaction_it_is_taking() -> None:
    sink = Meddler()
    cache = made(sink)
    sink.cache = cache
    cache.alloc(4)
    with pytest.raises(ValueError, match="out"):
        fail_inside(cache, ValueError("out"))
    assert [type(error) for error in sink.errors] == [TransactionError, TransactionError]
    assert all(len(record.events) == len(record.undone) for record in sink.kept)
    assert replay(number_transactions(sink.kept)).state.digest() == cache.digest()


def test_names_that_are_subclasses_of_str_are_taken_as_plain_strings() -> None:
    sink = MemorySink()
    cache = made(sink)
    request = cache.open_request(np.array(["r1"])[0], [1, 2, 3], namespace=np.array(["n"])[0])
    assert type(request.id) is str
    assert type(request.namespace) is str
    assert cache.match_prefix([1], namespace="n").length == 0
    healthy(cache, sink)


def test_eviction_asks_for_no_more_than_there_is() -> None:
    sink = MemorySink()
    cache = made(sink)
    cache.insert(range(16), cache.alloc(16))
    assert cache.evict(2**70, 2**70).full_tokens == 16
    evicted = only(sink, Evicted)
    assert (evicted.asked_full, evicted.asked_swa) == (64, 64)


class Torn:
    """Makes one method of the page table fail in the middle of a change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self._armed = True
        real = getattr(PageTable, method)

        def failing(table: PageTable, *args: Any, **named: Any) -> Any:
            result = real(table, *args, **named)
            if self._armed:
                self._armed = False
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(PageTable, method, failing)


@pytest.mark.interpreted
@pytest.mark.parametrize("method", ["hold", "adopt", "free_swa_pages", "settle"])
def test_a_change_that_was_cut_off_in_the_middle_stops_the_cache_loudly(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    sink = MemorySink()
    cache = made(sink)
    slots = cache.alloc(8)
    Torn(monkeypatch, method)
    calls: dict[str, Callable[[], object]] = {
        "hold": lambda: cache.alloc(4),
        "settle": lambda: cache.alloc(4),
        "adopt": lambda: cache.insert(range(8), slots),
        "free_swa_pages": lambda: cache.free_swa(slots),
    }
    with pytest.raises(KeyboardInterrupt):
        calls[method]()
    with pytest.raises(InvariantViolation, match="refuses further work"):
        cache.alloc(4)
    with pytest.raises(InvariantViolation):
        cache.evict(4)


@pytest.mark.interpreted
def test_an_undone_change_that_cannot_be_taken_back_stops_the_cache_loudly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = made(MemorySink())
    Torn(monkeypatch, "unhold")
    t = cache.transaction("x")
    t.__enter__()
    cache.alloc(4)
    with pytest.raises(KeyboardInterrupt):
        t.rollback()
    for call in (lambda: cache.alloc(4), lambda: t.__exit__(None, None, None)):
        with pytest.raises(InvariantViolation, match="could not be taken back"):
            call()


@pytest.mark.interpreted
def test_what_eviction_cannot_learn_from_a_commit_reaches_the_caller_and_the_commit_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = MemorySink()
    config = CacheConfig(
        page_size=4, sliding_window=4, full_tokens=64, swa_tokens=64, eviction="lru-2", fingerprints=False
    )
    cache = HybridCache(config, sink=sink)
    slots = cache.alloc(8)

    def forgetful(*_: object) -> None:
        raise LookupError("nothing was learned")

    with monkeypatch.context() as patch:
        patch.setattr(transaction_module, "learn", forgetful)
        with pytest.raises(LookupError, match="nothing was learned"):
            cache.insert(range(8), slots)
    assert cache.match_prefix(range(8)).length == 8
    cache.alloc(4)
    healthy(cache, sink)


@pytest.mark.interpreted
def test_an_exception_between_two_changes_does_not_stop_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = MemorySink()
    cache = made(sink)
    real, calls = Ledger.apply, [0]

    def failing(ledger: Ledger, event: Any) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        real(ledger, event)

    monkeypatch.setattr(Ledger, "apply", failing)
    before = cache.digest()

    def four() -> None:
        with cache.transaction("x"):
            for _ in range(4):
                cache.alloc(4)

    with pytest.raises(KeyboardInterrupt):
        four()
    assert cache.digest() == before
    cache.alloc(4)
    healthy(cache, sink)


class Engine:
    """An allocator that hands out what it is told to."""

    restores_at_once = False

    def __init__(self, answer: Any, fail_on_give_back: bool = False) -> None:
        self.answer = answer
        self.fail = fail_on_give_back

    def allocate(self, full: int, swa: int) -> Any:
        return self.answer

    def give_back(self, full: np.ndarray, swa: np.ndarray) -> None:
        if self.fail:
            raise OSError("the engine is gone")

    def commit(self, changes: Any) -> None:
        """Hear of it."""

    def available(self) -> tuple[int, int]:
        return 16, 16


@pytest.mark.parametrize(
    "answer",
    [
        ([1, 1], [1, 2]),
        ([0, 1], [1, 2]),
        ([-1, 1], [1, 2]),
        ([1, 17], [1, 2]),
        ([1], [1, 2]),
        ([1, 2], [1, 2, 3]),
        ([1, 2], [2, 2]),
        ([[1, 2]], [1, 2]),
        (["a", "b"], [1, 2]),
        ([1, 2], [None, 1]),
    ],
)
def test_what_an_engine_hands_out_is_looked_at_before_anything_changes(answer: Any) -> None:
    sink = MemorySink()
    cache = made(sink, pool=Engine(answer))
    before = cache.digest()
    with pytest.raises(InvariantViolation, match="allocator"):
        cache.alloc(8)
    assert cache.digest() == before
    assert len(sink.transactions) == 1


def test_an_engine_keeps_its_own_arrays_and_the_events_theirs() -> None:
    full, swa = np.array([3, 4]), np.array([5, 6])
    sink = MemorySink()
    cache = made(sink, pool=Engine((full, swa)))
    cache.alloc(8)
    full[:] = 9
    allocated = only(sink, PagesAllocated)
    assert allocated.full_pages.tolist() == [3, 4]
    assert not allocated.full_pages.flags.writeable


def test_an_engine_that_cannot_take_pages_back_stops_the_cache_loudly() -> None:
    sink = MemorySink()
    cache = made(sink, pool=Engine(([1], [1]), fail_on_give_back=True))
    with pytest.raises(OSError, match="gone"):
        fail_inside(cache, ValueError("out"))
    with pytest.raises(InvariantViolation, match="refuses further work"):
        cache.alloc(4)


LAYOUT = KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=2)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((4, 1, 2)),
        [[0.0]],
        torch.zeros((4, 1, 2), dtype=torch.int64),
        torch.zeros((4, 1, 2), dtype=torch.complex64),
        torch.zeros((4, 1, 2), device="meta"),
        torch.zeros((3, 1, 2)),
    ],
)
def test_kv_is_a_floating_point_tensor_that_fits(values: Any) -> None:
    cache = made(layout=LAYOUT)
    slots = cache.alloc(4)
    good = torch.ones((4, 1, 2))
    for k, v in ((values, good), (good, values)):
        with pytest.raises(InvalidArgument):
            cache.pool.write(0, slots, k, v)
    assert not cache.pool.k[0].any()


def test_written_kv_does_not_keep_the_graph_it_came_from() -> None:
    cache = made(layout=LAYOUT)
    slots = cache.alloc(4)
    cache.pool.write(1, slots, torch.ones((4, 1, 2), requires_grad=True), torch.ones((4, 1, 2)))
    assert not cache.pool.k[1].requires_grad
    assert cache.pool.read(1, slots)[0].sum() == 8


def test_a_wrong_mirror_shows_in_check_and_in_what_is_read() -> None:
    cache = made(layout=LAYOUT)
    slots = cache.alloc(8)
    cache.pool.write(1, slots, torch.arange(16.0).reshape(8, 1, 2), torch.zeros((8, 1, 2)))
    right = cache.pool.read(1, slots)[0].clone()
    cache.pool.mapping[[1, 2]] = cache.pool.mapping[[2, 1]]
    assert not torch.equal(cache.pool.read(1, slots)[0], right)
    with pytest.raises(InvariantViolation, match="otherwise than the host"):
        cache.check()


def test_reads_inside_a_transaction_see_its_mapping() -> None:
    cache = made(layout=LAYOUT)
    slots = cache.alloc(4)
    cache.pool.write(1, slots, torch.full((4, 1, 2), 7.0), torch.zeros((4, 1, 2)))
    cache.insert(range(4), slots)
    (tombstone,) = cache.nodes()
    lease = cache.acquire(range(4))
    cache.release_swa(lease)
    cache.evict(swa_tokens=4)
    fresh = cache.alloc(4)
    cache.pool.write(1, fresh, torch.full((4, 1, 2), 9.0), torch.zeros((4, 1, 2)))
    with cache.transaction("x"):
        cache.insert(range(4), fresh)
        assert (cache.pool.read(1, tombstone.full_slots)[0] == 9).all()
    assert (cache.pool.read(1, tombstone.full_slots)[0] == 9).all()


@pytest.mark.parametrize(
    "tokens",
    [
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.int32, device="meta"),
        torch.zeros(3, dtype=torch.bool),
        np.array(3),
        np.array([{}]),
        np.zeros((2, 2), dtype=int),
        object(),
    ],
)
def test_tokens_and_slots_of_any_strange_kind_get_a_typed_refusal(tokens: Any) -> None:
    cache = made()
    calls: list[Callable[[Any], object]] = [
        cache.match_prefix,
        cache.swa_slots,
        cache.free,
        lambda values: cache.open_request("r", values),
        lambda values: cache.insert(values, cache.alloc(0)),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument):
            call(tokens)


@pytest.mark.parametrize("id", [[1], "1", 1.0, True, np.array(1), -1, None, 99])
def test_a_node_is_asked_for_by_its_number(id: Any) -> None:
    with pytest.raises(InvalidArgument):
        made().node(id)


@pytest.mark.parametrize("field", ["page_size", "sliding_window", "full_tokens", "swa_tokens"])
@pytest.mark.parametrize("value", [True, "4", 4.0])
def test_sizes_are_integers_and_nothing_that_could_be_read_as_one(field: str, value: Any) -> None:
    sizes: dict[str, Any] = {"page_size": 4, "sliding_window": 4, "full_tokens": 64, "swa_tokens": 64}
    with pytest.raises(ValueError, match=field):
        CacheConfig(**{**sizes, field: value})


def test_what_was_closed_before_a_reset_stays_stale_after_it() -> None:
    sink = MemorySink()
    cache = made(sink)
    closed, open_one = cache.open_request("a", [1, 2]), cache.open_request("b", [1, 2])
    released, held = cache.acquire([1]), cache.acquire([1])
    closed.finish()
    cache.release(released)
    cache.reset()
    for stale in (closed.finish, closed.abort, lambda: cache.release(released)):
        with pytest.raises(StaleLease):
            stale()
    events = sum(len(record.events) for record in sink.transactions)
    open_one.finish()
    cache.release(held)
    assert sum(len(record.events) for record in sink.transactions) == events + 2
    healthy(cache, sink)


def test_a_refresh_counts_only_the_tokens_it_adds_to_the_hit() -> None:
    cache = made()
    cache.insert(range(8), cache.alloc(8))
    request = cache.open_request("r", range(13))
    request.refresh()
    request.refresh()
    assert cache.stats().hit_tokens == 8
    cache.insert(range(12), np.concatenate((cache.acquire(range(8)).slots, cache.alloc(4))), protected_len=8)
    request.refresh()
    assert cache.stats().hit_tokens == 8 + 8 + 4


@pytest.mark.parametrize("name", ["", "a\x00b", "\udc80", "n" * 513, 5, None, b"r"])
def test_names_that_no_journal_could_keep_are_refused_before_anything_happens(name: Any) -> None:
    sink = MemorySink()
    cache = made(sink)
    with pytest.raises(InvalidArgument):
        cache.open_request(name, [1, 2])
    with pytest.raises(InvalidArgument):
        cache.transaction("x", request_id=name or "\x00")
    if name != "n" * 513:
        with pytest.raises(InvalidArgument):
            cache.transaction(name)
    assert len(sink.transactions) == 1
    cache.open_request("n" * 512, [1, 2])
