"""What the cache refuses: each with its typed error, nothing changed and nothing journaled."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from kvledger.core import HybridCache, Lease, Request
from kvledger.core.errors import (
    CacheError,
    DoubleFree,
    ForeignSlots,
    InvalidArgument,
    MissingSwa,
    OutOfSlots,
    StaleLease,
    TransactionError,
    UnalignedLength,
    WrongThread,
)
from kvledger.core.sinks import MemorySink
from tests.support.witness import open_cache

TREE = list(range(1, 17))


@dataclass
class Desk:
    """A cache of pages of 4 with somebody holding something of every kind."""

    cache: HybridCache
    sink: MemorySink
    tree: np.ndarray  # int64[16], the tree's
    raw: np.ndarray  # int64[8], the caller's
    full_only: np.ndarray  # int64[4], the caller's, without peers
    freed: np.ndarray  # int64[4], nobody's any more
    lease: Lease
    request: Request  # 10 tokens computed, three pages of its own
    waiting: Request  # 5 tokens, none of them reserved
    closed: Request


@pytest.fixture
def desk() -> Desk:
    cache, sink = open_cache(page=4, window=8)
    tree = cache.alloc(16)
    cache.insert(TREE, tree)
    raw = cache.alloc(8)
    full_only = cache.alloc_full_only(4)
    request = cache.open_request("running", list(range(100, 110)))
    request.extend(10)
    request.computed()
    waiting = cache.open_request("waiting", list(range(200, 205)))
    closed = cache.open_request("closed", list(range(300, 305)))
    closed.abort()
    lease = cache.acquire(TREE[:8])
    freed = cache.alloc(4)
    cache.free(freed)
    return Desk(cache, sink, tree, raw, full_only, freed, lease, request, waiting, closed)


def refused(desk: Desk, error: type[CacheError], call: Callable[[], object]) -> CacheError:
    """The call raises that error; digest, sizes and journal are what they were."""
    before = (desk.cache.digest(), desk.cache.sizes(), len(desk.sink.transactions), list(desk.request.slots))
    with pytest.raises(error) as caught:
        call()
    after = (desk.cache.digest(), desk.cache.sizes(), len(desk.sink.transactions), list(desk.request.slots))
    assert after == before
    desk.cache.check()
    return caught.value


Call = Callable[[Desk], object]

NOT_TOKENS: list[object] = [
    [2**31],
    [-(2**31) - 1],
    np.array([2**40]),
    np.array([2**63], dtype=np.uint64),
    [2**70],
    [1.5],
    [1.0],
    np.array([1.0, 2.0], dtype=np.float32),
    torch.tensor([1.0]),
    [[1, 2], [3, 4]],
    ["1"],
    "1234",
    [None],
    None,
    7,
    [True, False],
]


@pytest.mark.parametrize("tokens", NOT_TOKENS, ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        "match_prefix",
        "explain",
        "acquire",
        "can_fit",
        "open_request",
        "append",
        "insert",
        "insert_after",
        "advance",
    ],
)
def test_tokens_that_are_no_int32_integers_are_refused_everywhere(
    desk: Desk, tokens: object, call: str
) -> None:
    cache = desk.cache
    calls: dict[str, Callable[[], object]] = {
        "match_prefix": lambda: cache.match_prefix(tokens),
        "explain": lambda: cache.explain(tokens),
        "acquire": lambda: cache.acquire(tokens),
        "can_fit": lambda: cache.can_fit(tokens, 1),
        "open_request": lambda: cache.open_request("new", tokens),
        "append": lambda: desk.request.append(tokens),
        "insert": lambda: cache.insert(tokens, desk.raw[:4]),
        "insert_after": lambda: cache.insert_after(desk.lease, tokens, desk.raw[:4]),
        "advance": lambda: cache.advance(desk.lease, tokens, desk.raw[:4]),
    }
    error = refused(desk, InvalidArgument, calls[call])
    assert isinstance(error, ValueError)


def test_the_ends_of_int32_are_tokens_like_any_other(desk: Desk) -> None:
    tokens = [2**31 - 1, -(2**31), 0, -1]
    desk.cache.insert(tokens, desk.raw[:4])
    assert desk.cache.match_prefix(np.array(tokens, dtype=np.int64)).length == 4
    assert desk.cache.match_prefix([2**31 - 1, -(2**31), 0, 1]).length == 0


NEGATIVE: dict[str, Call] = {
    "alloc": lambda d: d.cache.alloc(-4),
    "alloc_full_only": lambda d: d.cache.alloc_full_only(-4),
    "evict full": lambda d: d.cache.evict(full_tokens=-1),
    "evict swa": lambda d: d.cache.evict(swa_tokens=-1),
    "can_fit": lambda d: d.cache.can_fit(TREE, -1),
    "acquire": lambda d: d.cache.acquire(TREE, max_length=-1),
    "insert protected": lambda d: d.cache.insert([1, 2, 3, 4], d.raw[:4], protected_len=-4),
    "insert dead": lambda d: d.cache.insert([1, 2, 3, 4], d.raw[:4], swa_evicted_len=-4),
    "insert_after dead": lambda d: d.cache.insert_after(d.lease, [9] * 4, d.raw[:4], swa_evicted_len=-4),
    "advance dead": lambda d: d.cache.advance(d.lease, [9] * 4, d.raw[:4], swa_evicted_len=-4),
    "extend": lambda d: d.request.extend(-1),
    "computed": lambda d: d.request.computed(-1),
    "commit": lambda d: d.request.commit(-1),
    "alloc float": lambda d: d.cache.alloc(4.0),  # type: ignore[arg-type]
    "alloc text": lambda d: d.cache.alloc("4"),  # type: ignore[arg-type]
    "evict float": lambda d: d.cache.evict(full_tokens=0.5),  # type: ignore[arg-type]
    "extend float": lambda d: d.request.extend(1.5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_size_that_is_negative_or_no_integer_is_refused(desk: Desk, name: str) -> None:
    refused(desk, InvalidArgument, lambda: NEGATIVE[name](desk))


BORDERS: dict[str, tuple[type[CacheError], Call]] = {
    "protected_len past the end": (
        InvalidArgument,
        lambda d: d.cache.insert(TREE[:4], d.tree[:4], protected_len=8),
    ),
    "protected_len inside a page": (
        InvalidArgument,
        lambda d: d.cache.insert(TREE[:4], d.tree[:4], protected_len=2),
    ),
    "swa_evicted_len inside a page": (
        InvalidArgument,
        lambda d: d.cache.insert([9, 9, 9, 9], d.raw[:4], swa_evicted_len=2),
    ),
    "fewer slots than tokens": (InvalidArgument, lambda d: d.cache.insert(range(20, 28), d.raw[:4])),
    "unknown node": (InvalidArgument, lambda d: d.cache.node(10**6)),
    "a node id below all": (InvalidArgument, lambda d: d.cache.node(-1)),
    "computed past the slots": (InvalidArgument, lambda d: d.request.computed(11)),
    "refresh with own slots": (InvalidArgument, lambda d: d.request.refresh()),
    "a second request of the same name": (InvalidArgument, lambda d: d.cache.open_request("running", [1])),
    "a namespace that is no string": (
        InvalidArgument,
        lambda d: d.cache.acquire(TREE, 1),  # type: ignore[arg-type]
    ),
    "a request without a name": (InvalidArgument, lambda d: d.cache.open_request("", [1, 2])),
    "alloc of part of a page": (UnalignedLength, lambda d: d.cache.alloc(3)),
    "alloc_full_only of part of a page": (UnalignedLength, lambda d: d.cache.alloc_full_only(5)),
    "insert of part of a page": (UnalignedLength, lambda d: d.cache.insert([1, 2, 3], d.raw[:3])),
    "free of part of a page": (UnalignedLength, lambda d: d.cache.free(d.raw[:3])),
    "free of halves of two pages": (UnalignedLength, lambda d: d.cache.free(d.raw[2:6])),
    "free of a page backwards": (UnalignedLength, lambda d: d.cache.free(d.raw[:4][::-1].copy())),
    "free_swa of part of a page": (UnalignedLength, lambda d: d.cache.free_swa(d.raw[1:4])),
    "free of the tree's slots": (ForeignSlots, lambda d: d.cache.free(d.tree[:4])),
    "free of a request's slots": (ForeignSlots, lambda d: d.cache.free(d.request.slots[:4])),
    "free_swa of the tree's slots": (ForeignSlots, lambda d: d.cache.free_swa(d.tree[:4])),
    "free_swa of a request's slots": (ForeignSlots, lambda d: d.cache.free_swa(d.request.slots[:4])),
    "free of the padding page": (ForeignSlots, lambda d: d.cache.free([0, 1, 2, 3])),
    "free past the pool": (ForeignSlots, lambda d: d.cache.free([400, 401, 402, 403])),
    "free below the pool": (ForeignSlots, lambda d: d.cache.free([-4, -3, -2, -1])),
    "insert of a request's slots": (
        ForeignSlots,
        lambda d: d.cache.insert([9, 9, 9, 9], d.request.slots[:4]),
    ),
    "insert of the tree's slots as one's own": (
        ForeignSlots,
        lambda d: d.cache.insert([9, 9, 9, 9], d.tree[:4]),
    ),
    "insert with protected slots that differ": (
        ForeignSlots,
        lambda d: d.cache.insert(TREE[:8], np.concatenate([d.tree[4:8], d.raw[:4]]), protected_len=4),
    ),
    "insert with own slots named as protected": (
        ForeignSlots,
        lambda d: d.cache.insert(TREE[:8], d.raw, protected_len=4),
    ),
    "insert with a protected prefix that is not in the tree": (
        ForeignSlots,
        lambda d: d.cache.insert([9] * 8, np.concatenate([d.tree[:4], d.raw[:4]]), protected_len=4),
    ),
    "insert with a protected prefix of another namespace": (
        ForeignSlots,
        lambda d: d.cache.insert(
            TREE[:8], np.concatenate([d.tree[:4], d.raw[:4]]), namespace="x", protected_len=4
        ),
    ),
    "free of a page twice in one call": (
        DoubleFree,
        lambda d: d.cache.free(np.concatenate([d.raw[:4], d.raw[:4]])),
    ),
    "free of a page freed already": (DoubleFree, lambda d: d.cache.free(d.freed)),
    "free of a good page and one freed already": (
        DoubleFree,
        lambda d: d.cache.free(np.concatenate([d.raw, d.freed])),
    ),
    "free_swa of a page twice in one call": (
        DoubleFree,
        lambda d: d.cache.free_swa(np.concatenate([d.raw[:4], d.raw[:4]])),
    ),
    "free_swa without a peer": (DoubleFree, lambda d: d.cache.free_swa(d.full_only)),
    "free_swa of a good page and one without a peer": (
        DoubleFree,
        lambda d: d.cache.free_swa(np.concatenate([d.raw, d.full_only])),
    ),
    "free_swa of a page freed already": (DoubleFree, lambda d: d.cache.free_swa(d.freed)),
    "insert of a page twice": (
        DoubleFree,
        lambda d: d.cache.insert([9] * 8, np.concatenate([d.raw[:4], d.raw[:4]])),
    ),
    "insert of a page freed already": (InvalidArgument, lambda d: d.cache.insert([9] * 4, d.freed)),
    "insert without a peer": (MissingSwa, lambda d: d.cache.insert([9] * 4, d.full_only)),
    "insert with a peer missing past the dead prefix": (
        MissingSwa,
        lambda d: d.cache.insert([9] * 12, np.concatenate([d.raw, d.full_only]), swa_evicted_len=4),
    ),
    "insert without a peer over what is live": (
        MissingSwa,
        lambda d: d.cache.insert(TREE[:4], d.full_only),
    ),
    "slots that are floats": (InvalidArgument, lambda d: d.cache.free(d.raw.astype(np.float64))),
    "slots of two dimensions": (InvalidArgument, lambda d: d.cache.free(d.raw.reshape(2, 4))),
}


Continuing = Callable[[HybridCache], Callable[..., object]]

CONTINUING: dict[str, Continuing] = {
    "insert_after": lambda cache: cache.insert_after,
    "advance": lambda cache: cache.advance,
}
BEHIND_A_LEASE: dict[str, tuple[type[CacheError], Callable[[Desk, Callable[..., object]], object]]] = {
    "part of a page": (UnalignedLength, lambda d, go: go(d.lease, [9] * 3, d.raw[:3])),
    "halves of two pages": (UnalignedLength, lambda d, go: go(d.lease, [9] * 4, d.raw[2:6])),
    "a page backwards": (UnalignedLength, lambda d, go: go(d.lease, [9] * 4, d.raw[:4][::-1].copy())),
    "swa_evicted_len inside a page": (
        UnalignedLength,
        lambda d, go: go(d.lease, [9] * 8, d.raw, swa_evicted_len=10),
    ),
    "swa_evicted_len past the end": (
        InvalidArgument,
        lambda d, go: go(d.lease, [9] * 8, d.raw, swa_evicted_len=20),
    ),
    "swa_evicted_len past a lease that nothing continues": (
        InvalidArgument,
        lambda d, go: go(d.lease, [], [], swa_evicted_len=12),
    ),
    "fewer slots than tokens": (InvalidArgument, lambda d, go: go(d.lease, [9] * 8, d.raw[:4])),
    "slots of the whole, not of what is new": (
        InvalidArgument,
        lambda d, go: go(d.lease, [9] * 4, np.concatenate([d.tree[:8], d.raw[:4]])),
    ),
    "slots that are floats": (InvalidArgument, lambda d, go: go(d.lease, [9] * 8, d.raw.astype(np.float64))),
    "the tree's slots": (ForeignSlots, lambda d, go: go(d.lease, TREE[8:12], d.tree[8:12])),
    "a request's slots": (ForeignSlots, lambda d, go: go(d.lease, [9] * 4, d.request.slots[:4])),
    "the padding page": (ForeignSlots, lambda d, go: go(d.lease, [9] * 4, [0, 1, 2, 3])),
    "a page past the pool": (ForeignSlots, lambda d, go: go(d.lease, [9] * 4, [400, 401, 402, 403])),
    "a page twice": (DoubleFree, lambda d, go: go(d.lease, [9] * 8, np.concatenate([d.raw[:4], d.raw[:4]]))),
    "a page freed already": (DoubleFree, lambda d, go: go(d.lease, [9] * 4, d.freed)),
    "no SWA peer": (MissingSwa, lambda d, go: go(d.lease, [9] * 4, d.full_only)),
    "no SWA peer over what is live": (MissingSwa, lambda d, go: go(d.lease, TREE[8:12], d.full_only)),
    "a peer missing past the dead part": (
        MissingSwa,
        lambda d, go: go(d.lease, [9] * 12, np.concatenate([d.raw, d.full_only]), swa_evicted_len=12),
    ),
}


@pytest.mark.parametrize("operation", CONTINUING)
@pytest.mark.parametrize("name", BEHIND_A_LEASE)
def test_what_may_not_continue_a_lease_is_refused_by_the_errors_of_insert(
    desk: Desk, name: str, operation: str
) -> None:
    error, call = BEHIND_A_LEASE[name]
    epoch = desk.cache._state.next_epoch
    refused(desk, error, lambda: call(desk, CONTINUING[operation](desk.cache)))
    assert desk.cache._state.next_epoch == epoch, "a refusal has used up an epoch, which later events tell"
    with desk.cache.transaction("outer"):
        before = desk.cache.digest()
        with pytest.raises(error):
            call(desk, CONTINUING[operation](desk.cache))
        assert desk.cache.digest() == before
    desk.cache.release(desk.lease)


def test_peers_missing_before_the_dead_length_are_not_asked_for_behind_a_lease(desk: Desk) -> None:
    slots = np.concatenate([desk.full_only, desk.raw])
    advanced = desk.cache.advance(desk.lease, [9] * 12, slots, swa_evicted_len=12)
    assert (advanced.lease.length, advanced.refused) == (20, 0)
    assert list(desk.cache.swa_slots(advanced.lease.slots[8:12])) == [0] * 4


@pytest.mark.parametrize("name", BORDERS)
def test_what_no_state_could_make_valid_is_refused_by_its_own_error(desk: Desk, name: str) -> None:
    error, call = BORDERS[name]
    refused(desk, error, lambda: call(desk))


def test_peers_missing_before_the_protected_or_dead_length_are_not_asked_for(desk: Desk) -> None:
    slots = np.concatenate([desk.full_only, desk.raw])
    inserted = desk.cache.insert([9] * 12, slots, swa_evicted_len=4)
    assert (inserted.adopted_full, inserted.adopted_swa) == ([(0, 12)], [(4, 12)])


def test_a_peer_missing_right_past_the_protected_length_is_asked_for_where_that_is_past_the_dead_one(
    desk: Desk,
) -> None:
    for protected in (4, 8, 16):
        slots = np.concatenate([desk.tree[:protected], desk.full_only, desk.raw])
        row = [*TREE[:protected], *[9] * 12]
        for dead in (0, protected - 4, protected):
            refused(
                desk,
                MissingSwa,
                lambda row=row, slots=slots, protected=protected, dead=dead: desk.cache.insert(  # type: ignore[misc]
                    row, slots, protected_len=protected, swa_evicted_len=dead
                ),
            )
    desk.cache.insert(row, slots, protected_len=16, swa_evicted_len=20)


OWNERS: dict[str, Callable[[Desk], tuple[object, str]]] = {
    "the tree's": lambda d: (d.tree[:4], "belongs to the tree"),
    "a request's": lambda d: (d.request.slots[:4], "belongs to another request"),
    "nobody's": lambda d: (d.freed, "is free already"),
}


@pytest.mark.parametrize("whose", OWNERS)
def test_a_refusal_names_the_page_and_whose_it_is(desk: Desk, whose: str) -> None:
    slots, words = OWNERS[whose](desk)
    error = refused(desk, CacheError, lambda: desk.cache.free(slots))
    page = int(np.asarray(slots)[0]) // 4
    assert f"page {page} {words}" in str(error)


@pytest.mark.parametrize("at", [0, 4, 8, 12])
def test_protected_slots_that_are_not_the_trees_are_refused_with_position_and_node(
    desk: Desk, at: int
) -> None:
    slots = np.concatenate([desk.tree, desk.raw])
    slots[at : at + 4] = desk.raw[4:]
    error = refused(desk, ForeignSlots, lambda: desk.cache.insert([*TREE, *[9] * 8], slots, protected_len=16))
    (node,) = (node for node in desk.cache.nodes() if node.start <= at < node.end)
    assert f"from token {at} on are not those of node {node.id}" in str(error)


def test_computed_never_shrinks(desk: Desk) -> None:
    with contextlib.suppress(InvalidArgument):
        desk.request.computed(4)
    assert desk.request.computed_len == 10


def test_only_computed_tokens_are_ever_published(desk: Desk) -> None:
    desk.waiting.extend(5)
    desk.waiting.computed(3)
    try:
        committed = desk.waiting.commit(5)
    except InvalidArgument:
        committed = desk.waiting.commit()
    assert committed.length == 0
    assert desk.cache.match_prefix(range(200, 205)).full_length == 0


def test_a_second_release_is_stale_and_so_is_the_early_release_after_it(desk: Desk) -> None:
    desk.cache.release(desk.lease)
    refused(desk, StaleLease, lambda: desk.cache.release(desk.lease))
    refused(desk, StaleLease, lambda: desk.cache.release_swa(desk.lease))


def test_the_swa_half_is_given_up_once_however_often_it_is_asked(desk: Desk) -> None:
    other = desk.cache.acquire(TREE[:8])
    desk.cache.release_swa(desk.lease)
    protected = desk.cache.sizes().swa.protected
    with contextlib.suppress(StaleLease):
        desk.cache.release_swa(desk.lease)
    assert desk.cache.sizes().swa.protected == protected == 8
    desk.cache.release(desk.lease)
    assert desk.cache.sizes().swa.protected == 8
    desk.cache.release(other)
    assert desk.cache.sizes().swa.protected == 0


@pytest.mark.parametrize("what", [None, 1, "lease", object()])
def test_a_release_needs_the_receipt(desk: Desk, what: object) -> None:
    for call in (desk.cache.release, desk.cache.release_swa):
        refused(desk, CacheError, lambda call=call: call(what))  # type: ignore[misc]


def test_a_receipt_of_another_cache_is_no_receipt_here(desk: Desk) -> None:
    other, _ = open_cache(page=4, window=8)
    slots = other.alloc(16)
    other.insert(TREE, slots)
    foreign = [other.acquire(TREE) for _ in range(8)]
    for lease in foreign:
        refused(desk, CacheError, lambda lease=lease: desk.cache.release(lease))  # type: ignore[misc]


METHODS: dict[str, Callable[[Request], object]] = {
    "extend": lambda r: r.extend(1),
    "computed": lambda r: r.computed(),
    "commit": lambda r: r.commit(),
    "append": lambda r: r.append([1]),
    "slide": lambda r: r.slide(),
    "refresh": lambda r: r.refresh(),
    "finish": lambda r: r.finish(),
    "abort": lambda r: r.abort(),
    "retract": lambda r: r.retract(),
}


@pytest.mark.parametrize("method", METHODS)
def test_any_method_of_a_closed_request_is_stale(desk: Desk, method: str) -> None:
    refused(desk, StaleLease, lambda: METHODS[method](desk.closed))


@pytest.mark.parametrize("method", METHODS)
def test_any_method_of_a_request_born_in_an_undone_transaction_is_stale(desk: Desk, method: str) -> None:
    with desk.cache.transaction("try") as t:
        request = desk.cache.open_request("unborn", TREE)
        request.extend(1)
        t.rollback(reason="not now")
    refused(desk, StaleLease, lambda: METHODS[method](request))


@pytest.mark.parametrize("method", METHODS)
def test_after_a_reset_only_finish_and_abort_are_no_ops_and_they_are_journaled(
    desk: Desk, method: str
) -> None:
    desk.cache.reset()
    before, journaled = desk.cache.digest(), len(desk.sink.transactions)
    if method in ("finish", "abort"):
        METHODS[method](desk.request)
        assert desk.cache.digest() == before
        kinds = [event.kind for event in desk.sink.transactions[-1].events]
        assert (len(desk.sink.transactions), kinds) == (journaled + 1, ["call_ignored"])
        return
    with pytest.raises(StaleLease):
        METHODS[method](desk.request)
    assert (desk.cache.digest(), len(desk.sink.transactions)) == (before, journaled)


def test_out_of_slots_says_which_pool_how_much_was_needed_and_what_there_was(desk: Desk) -> None:
    sizes = desk.cache.sizes()
    error = refused(desk, OutOfSlots, lambda: desk.cache.alloc(1000))
    assert isinstance(error, OutOfSlots)
    assert (error.pool, error.needed) == ("full", 1000)
    assert (error.free, error.evictable) == (sizes.full.free, sizes.full.evictable)


def test_out_of_slots_names_the_swa_pool_where_that_one_is_short() -> None:
    cache, _ = open_cache(full=64, swa=8)
    with pytest.raises(OutOfSlots) as caught:
        cache.alloc(9)
    assert (caught.value.pool, caught.value.needed, caught.value.free) == ("swa", 9, 8)
    assert len(cache.alloc_full_only(9)) == 9


def test_an_extend_that_does_not_fit_evicts_nothing(desk: Desk) -> None:
    transactions = len(desk.sink.transactions)
    before = desk.cache.digest()
    desk.request.append([1] * 200)
    with pytest.raises(OutOfSlots):
        desk.request.extend(200)
    assert desk.cache.digest() == before
    assert len(desk.sink.transactions) == transactions
    assert desk.cache.match_prefix(TREE).length == 16


def in_another_thread(call: Callable[[], object]) -> BaseException | None:
    """Run a call elsewhere; what it raised."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_a_call_from_another_thread_is_refused_until_the_cache_is_handed_over(desk: Desk) -> None:
    calls: list[Callable[[], object]] = [
        lambda: desk.cache.alloc(4),
        lambda: desk.cache.release(desk.lease),
        lambda: desk.request.extend(1),
        lambda: desk.request.slide(),
        lambda: desk.cache.evict(full_tokens=4),
        lambda: desk.cache.insert_after(desk.lease, [9] * 4, desk.raw[:4]),
        lambda: desk.cache.advance(desk.lease, [9] * 4, desk.raw[:4]),
        lambda: desk.cache.hand_over(),
    ]
    before, journaled = desk.cache.digest(), len(desk.sink.transactions)
    for call in calls:
        assert isinstance(in_another_thread(call), WrongThread)
    assert (desk.cache.digest(), len(desk.sink.transactions)) == (before, journaled)
    desk.cache.hand_over()
    assert in_another_thread(lambda: desk.cache.free(desk.raw)) is None
    with pytest.raises(WrongThread):
        desk.cache.alloc(4)


def test_a_cache_belongs_to_the_thread_of_its_first_mutation_not_of_its_making() -> None:
    cache, _ = open_cache()
    assert in_another_thread(lambda: cache.alloc(4)) is None
    with pytest.raises(WrongThread):
        cache.alloc(4)


def test_reset_and_hand_over_are_refused_inside_a_transaction(desk: Desk) -> None:
    with desk.cache.transaction("outer"):
        for call in (desk.cache.reset, desk.cache.hand_over):
            with pytest.raises(TransactionError):
                call()


def test_a_savepoint_serves_its_own_transaction_only(desk: Desk) -> None:
    with desk.cache.transaction("first") as first:
        old = first.savepoint()
    with desk.cache.transaction("second") as second:
        desk.cache.alloc(4)
        before = desk.cache.digest()
        with pytest.raises(TransactionError):
            second.rollback(old)
        assert desk.cache.digest() == before
    for call in (first.savepoint, first.rollback):
        with pytest.raises(TransactionError):
            call()


def test_a_savepoint_that_was_rolled_back_past_is_refused_also_after_new_work(desk: Desk) -> None:
    with desk.cache.transaction("step") as t:
        early = t.savepoint()
        desk.cache.alloc(4)
        late = t.savepoint()
        t.rollback(early)
        desk.cache.alloc(4)
        desk.cache.acquire(TREE)
        before = desk.cache.digest()
        with pytest.raises(TransactionError):
            t.rollback(late)
        assert desk.cache.digest() == before
        t.rollback(early)


def test_the_outer_transaction_cannot_roll_back_from_under_an_inner_one(desk: Desk) -> None:
    with desk.cache.transaction("outer") as outer:
        saved = outer.savepoint()
        with desk.cache.transaction("inner"):
            desk.cache.alloc(4)
            before = desk.cache.digest()
            with pytest.raises(TransactionError):
                outer.rollback(saved)
            assert desk.cache.digest() == before


def test_errors_raised_inside_a_transaction_leave_what_went_before_in_it(desk: Desk) -> None:
    with desk.cache.transaction("step"):
        slots = desk.cache.alloc(4)
        inside = desk.cache.digest()
        for error, call in (
            (OutOfSlots, lambda: desk.cache.alloc(1000)),
            (DoubleFree, lambda: desk.cache.free(np.concatenate([slots, slots]))),
            (StaleLease, lambda: desk.closed.slide()),
        ):
            with pytest.raises(error):
                call()
            assert desk.cache.digest() == inside
    desk.cache.free(slots)


def test_an_advance_to_a_dead_end_uses_up_no_epoch(desk: Desk) -> None:
    desk.cache.release_swa(desk.lease)
    epoch = desk.cache._state.next_epoch
    with pytest.raises(InvalidArgument, match="nobody could reuse"):
        desk.cache.advance(desk.lease, [9] * 4, desk.raw[:4])
    assert desk.cache._state.next_epoch == epoch
