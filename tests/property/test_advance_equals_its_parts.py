"""advance and insert_after are their long forms, spelled with what was public before them.

Two caches are walked with the same seed into the same state. Then one of them moves a lease on, and the other
does the same in a transaction of `insert`, `acquire` and `release`. One thing may differ: `insert` touches
whole nodes of the last window before `acquire` cuts the oldest of them where the lock begins, so its head is
recent too; `advance`, like a commit, touches nodes once they are cut.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from kvledger.core import HybridCache
from kvledger.core.events import NodeSplit, NodeTouched, PrefixInserted
from tests.property.steps_leases import Continuation
from tests.property.twin import STEPS, Twin

SEEDS = range(80)


def walked(seed: int) -> tuple[Twin, random.Random]:
    """A cache in some state with a lease or two, and the chance that goes on from there."""
    chance = random.Random(seed)
    twin = Twin.drawn(chance.randrange)
    for _ in range(40 + chance.randrange(40)):
        getattr(twin, chance.choice(STEPS))(chance.randrange)
        if not twin.stack:
            twin.model.settle()
    while twin.stack:
        twin.end(lambda limit: limit - 1)
    twin.model.settle()
    if not twin.leases:
        twin.acquire(chance.randrange)
    return twin, chance


def continued(seed: int) -> tuple[Twin, Continuation]:
    """The same, with what is brought behind one of the leases."""
    twin, chance = walked(seed)
    new = twin.continuation(chance.randrange)
    assert new is not None
    return twin, new


def everything(cache: HybridCache) -> list[tuple[Any, ...]]:
    """Nodes without their ids and stamps, by place."""
    nodes = cache.nodes()
    first = {node.id: int(node.full_slots[0]) for node in nodes}
    return sorted(
        (
            node.namespace,
            node.start,
            list(node.full_slots),
            list(node.tokens),
            None if node.swa_slots is None else list(node.swa_slots),
            (node.full_lock, node.swa_lock),
            0 if node.parent is None else first[node.parent],
            repr((node.full_origin, node.swa_origin)),
        )
        for node in nodes
    )


def same_but_for_recency(left: HybridCache, right: HybridCache) -> None:
    assert everything(left) == everything(right)
    assert left.sizes() == right.sizes()
    slots = range((left.config.full_pages + 1) * left.config.page_size)
    assert list(left.swa_slots(slots)) == list(right.swa_slots(slots))
    for _ in range(3):
        assert list(left.alloc(left.config.page_size)) == list(right.alloc(left.config.page_size))
        if not min(left.sizes().full.free, left.sizes().swa.free):
            break


def whole(twin: Twin, new: Continuation) -> dict[str, Any]:
    """Arguments of `insert` for what continues a lease."""
    return {
        "tokens": new.row,
        "slots": [*new.lease.slots, *twin.slots(new.pages)],
        "namespace": new.lock.namespace,
        "protected_len": new.lease.length,
        "swa_evicted_len": new.dead,
    }


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returned, or the error it raised."""
    try:
        return call()
    except Exception as error:
        return type(error)


def compare_inserts(seed: int, tally: Counter[str]) -> None:
    """One seed's insert behind a lease, against the insert of the whole."""
    (left, new), (right, same) = continued(seed), continued(seed)
    assert left.cache.digest() == right.cache.digest()
    assert (new.row, new.pages, new.dead) == (same.row, same.pages, same.dead)
    if not new.tokens:
        return
    short = outcome(
        lambda: left.cache.insert_after(
            new.lease, new.tokens, left.slots(new.pages), swa_evicted_len=new.dead
        )
    )
    long = outcome(lambda: right.cache.insert(**whole(right, same)))
    assert short == long
    assert left.cache.digest() == right.cache.digest()
    tally["refused" if isinstance(short, type) else "inserted"] += 1


def test_insert_after_leaves_and_returns_what_the_insert_of_the_whole_does() -> None:
    tally: Counter[str] = Counter()
    for seed in SEEDS:
        compare_inserts(seed, tally)
    assert tally["inserted"] > 10
    assert tally["refused"] > 0


def compare_moves(seed: int, tally: Counter[str]) -> None:
    """One seed's move of a lease, against insert, acquire and release in a transaction."""
    (left, new), (right, same) = continued(seed), continued(seed)
    short = outcome(
        lambda: left.cache.advance(new.lease, new.tokens, left.slots(new.pages), swa_evicted_len=new.dead)
    )
    if isinstance(short, type) or short.refused or not new.tokens:
        tally["refused"] += 1
        return
    with right.cache.transaction("by hand"):
        right.cache.insert(**whole(right, same))
        long = right.cache.acquire(new.row, new.lock.namespace)
        right.cache.release(same.lease)
    assert (short.lease.length, short.lease.swa_from, list(short.lease.slots)) == (
        long.length,
        long.swa_from,
        list(long.slots),
    )
    if cut_after_a_touch(right):
        tally["recency of the head of a cut node"] += 1
        same_but_for_recency(left.cache, right.cache)
    else:
        assert left.cache.digest() == right.cache.digest()
        tally["equal"] += 1


def cut_after_a_touch(twin: Twin) -> bool:
    """Whether the last transaction touched a node in its insert and cut it where the lock then began."""
    events = twin.sink.transactions[-1].events
    inserted = next(at for at, event in enumerate(events) if isinstance(event, PrefixInserted))
    touched = {node for event in events[:inserted] if isinstance(event, NodeTouched) for node in event.nodes}
    return any(isinstance(event, NodeSplit) and event.node in touched for event in events[inserted:])


def test_advance_leaves_what_insert_acquire_and_release_in_one_transaction_do() -> None:
    tally: Counter[str] = Counter()
    for seed in SEEDS:
        compare_moves(seed, tally)
    assert tally["equal"] > 10
    assert tally["recency of the head of a cut node"] > 0


def test_the_head_of_a_node_that_the_new_lock_cuts_is_as_old_as_it_was() -> None:
    twin = Twin(page=1, window=4, full_pages=32, swa_pages=32)
    cache = twin.cache
    cache.insert([1, 2], cache.alloc(2))
    lease = cache.acquire([1, 2])
    cache.insert_after(lease, range(3, 7), cache.alloc(4))
    cache.insert([50], cache.alloc(1))
    before = {node.start: node.last_access for node in cache.nodes() if node.full_lock or node.start}
    assert sorted(before) == [0, 2]
    cache.advance(lease, range(3, 8), cache.alloc(5))
    after = {node.start: node.last_access for node in cache.nodes() if node.full_lock}
    assert sorted(after) == [0, 2, 3, 6]
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[2] < after[3] < after[6]
