"""Short drives for faults that the life of `life.py` seldom or never meets."""

import numpy as np

from kvledger.core import HybridCache
from kvledger.core.errors import DoubleFree, OutOfSlots
from tests.planted.evidence import See


def _insert(cache: HybridCache, count: int, *, dead: int = 0, first: int = 1, namespace: str = "") -> None:
    """Insert tokens `first`, `first` + 1, ..., those before `dead` without SWA."""
    slots = cache.alloc(count)
    if dead:
        cache.free_swa(slots[:dead])
    cache.insert(list(range(first, first + count)), slots, namespace, swa_evicted_len=dead)


def protected_inside_a_tombstone(cache: HybridCache, see: See) -> None:
    """A caller says that half of a tombstone is in its row already, and brings the rest anew, with SWA."""
    page = cache.config.page_size
    _insert(cache, 8 * page, dead=8 * page)
    see()
    kept = cache.match_prefix(list(range(1, 8 * page + 1))).slots
    assert len(kept) == 0  # a tombstone from the first token on matches nothing
    slots = cache.nodes()[0].full_slots
    mine = np.concatenate((slots[: 4 * page], cache.alloc(8 * page)))
    cache.insert(list(range(1, 12 * page + 1)), mine, protected_len=4 * page)
    see()


def healed_under_lock(cache: HybridCache, see: See) -> None:
    """A locked prefix loses its SWA; a raw caller brings it back, and again."""
    page = cache.config.page_size
    tokens = list(range(1, 4 * page + 1))
    _insert(cache, 4 * page)
    lease = cache.acquire(tokens)
    cache.release_swa(lease)
    see()
    for _ in range(2):
        cache.evict(swa_tokens=4 * page)
        see()
        _insert(cache, 4 * page)
        see()
    cache.release(lease)
    cache.release(cache.acquire(tokens))
    see()


def freed_and_healed_in_one(cache: HybridCache, see: See) -> None:
    """Pages are freed and a tombstone is healed with others before the frees take effect."""
    page = cache.config.page_size
    tokens = list(range(1, 4 * page + 1))
    _insert(cache, 4 * page)
    lease = cache.acquire(tokens)
    cache.release_swa(lease)
    cache.evict(swa_tokens=4 * page)
    first, second = cache.alloc(4 * page), cache.alloc(4 * page)
    see()
    with cache.transaction("group"):
        cache.free(first)
        cache.insert(tokens, second)
        cache.evict(swa_tokens=4 * page)
        cache.free_swa(cache.alloc(2 * page))
    see()
    cache.alloc(page)
    see()


def named_twice(cache: HybridCache, see: See) -> None:
    """A caller names a page twice in one call."""
    page = cache.config.page_size
    slots = cache.alloc(page)
    see()
    try:
        cache.free(np.concatenate((slots, slots)))
    except DoubleFree:
        cache.free(slots)
    see()


def two_callers(cache: HybridCache, see: See) -> None:
    """Two locks on one prefix; one gives its SWA half back, then the whole, and room is made."""
    page = cache.config.page_size
    tokens = list(range(1, 6 * page + 1))
    _insert(cache, 6 * page)
    first, second = cache.acquire(tokens), cache.acquire(tokens)
    see()
    cache.release_swa(first)
    cache.release(first)
    see()
    cache.evict(6 * page, 6 * page)
    see()
    cache.release(second)
    see()


def a_lock_and_a_shorter_one(cache: HybridCache, see: See) -> None:
    """A prefix is locked, a shorter one of it too, which splits it; then room is made."""
    page = cache.config.page_size
    _insert(cache, 12 * page)
    long = cache.acquire(list(range(1, 12 * page + 1)))
    short = cache.acquire(list(range(1, 9 * page + 1)))
    see()
    cache.release(short)
    cache.evict(12 * page, 12 * page)
    see()
    cache.release(long)
    see()


def one_of_each_size(cache: HybridCache, see: See) -> None:
    """Prompts that differ behind their first page are served one after the other."""
    page = cache.config.page_size
    for number in range(4):
        request = cache.open_request(f"r{number}", [*range(1, 3 * page), *([number + 50] * 2 * page)])
        request.extend(request.num_tokens - request.reserved)
        request.computed()
        request.finish()
        see()


def a_used_one_and_a_cold_one(cache: HybridCache, see: See) -> None:
    """A prefix is used again and again while another lies cold; room is made for one of them."""
    page = cache.config.page_size
    _insert(cache, 4 * page)
    _insert(cache, 4 * page, first=500)
    hot = list(range(1, 4 * page + 1))
    cache.release(cache.acquire(hot))
    _insert(cache, 4 * page)
    see()
    cache.evict(full_tokens=5 * page)
    see()


def held_above_a_leaf(cache: HybridCache, see: See) -> None:
    """A locked tombstone gets a leaf below it, and that one is evicted."""
    page = cache.config.page_size
    tokens = list(range(1, 4 * page + 1))
    _insert(cache, 4 * page)
    lease = cache.acquire(tokens)
    cache.release_swa(lease)
    cache.evict(swa_tokens=4 * page)
    see()
    _insert(cache, 12 * page, dead=8 * page)
    see()
    cache.evict(full_tokens=4 * page)
    see()
    cache.release(lease)
    see()


def locked_after_it_was_queued(cache: HybridCache, see: See) -> None:
    """A cold node is queued for eviction, then locked, and then room is made."""
    page = cache.config.page_size
    _insert(cache, 4 * page)
    _insert(cache, 4 * page, first=500)
    cache.evict(swa_tokens=page)
    see()
    lease = cache.acquire(list(range(500, 500 + 4 * page)))
    cache.evict(swa_tokens=page)
    see()
    cache.release(lease)
    see()


def healed_before_its_free_took_effect(cache: HybridCache, see: See) -> None:
    """SWA is given back, its Full becomes a tombstone and is healed under a lock, in one transaction."""
    page = cache.config.page_size
    tokens = list(range(1, 8 * page + 1))
    see()
    with cache.transaction("group"):
        slots = cache.alloc(8 * page)
        cache.free_swa(slots[: 4 * page])
        cache.insert(tokens, slots, swa_evicted_len=4 * page)
        lease = cache.acquire(tokens)
        cache.insert(tokens, cache.alloc(8 * page))
    see()
    cache.alloc(cache.sizes().swa.free)
    see()
    cache.release(lease)


def a_recovery_undone(cache: HybridCache, see: See) -> None:
    """A recovery under a lock, the release of that lock and a free of the caller's are undone in one go."""
    page = cache.config.page_size
    tokens = list(range(1, 4 * page + 1))
    _insert(cache, 4 * page)
    lease = cache.acquire(tokens)
    cache.release_swa(lease)
    cache.evict(swa_tokens=4 * page)
    incoming, other = cache.alloc(4 * page), cache.alloc(2 * page)
    see()
    with cache.transaction("group") as t:
        cache.insert(tokens, incoming)
        second = cache.acquire(tokens)
        cache.release_swa(second)
        cache.release(lease)
        cache.free(other)
        t.rollback()
    see()
    cache.free(other)
    cache.insert(tokens, incoming)
    see()
    cache.release(lease)
    see()


def a_release_undone(cache: HybridCache, see: See) -> None:
    """The early release of a lock's SWA half is undone, and then done."""
    page = cache.config.page_size
    _insert(cache, 4 * page)
    lease = cache.acquire(list(range(1, 4 * page + 1)))
    see()
    with cache.transaction("group") as t:
        cache.release_swa(lease)
        t.rollback()
    see()
    cache.release_swa(lease)
    see()
    cache.release(lease)
    see()


def a_lock_undone(cache: HybridCache, see: See) -> None:
    """A lock that splits and touches an old prefix is undone, and with it all that it did."""
    page = cache.config.page_size
    _insert(cache, 8 * page)
    _insert(cache, 4 * page, first=500)
    see()
    with cache.transaction("group") as t:
        cache.release(cache.acquire(list(range(1, 6 * page + 1))))
        t.rollback()
    see()
    cache.evict(full_tokens=page)
    see()


def freed_and_taken_in_one(cache: HybridCache, see: See) -> None:
    """A caller frees pages and takes others before the frees take effect."""
    page = cache.config.page_size
    first = cache.alloc(4 * page)
    see()
    with cache.transaction("group"):
        cache.free(first)
        second = cache.alloc(4 * page)
    see()
    cache.free(second)
    see()


def refused_for_want_of_room(cache: HybridCache, see: See) -> None:
    """A request asks for more than there is, twice, while it waits; then it goes."""
    page = cache.config.page_size
    _insert(cache, 4 * page)
    request = cache.open_request("r", list(range(1, cache.config.full_tokens + 2 * page)))
    held = cache.alloc(4 * page)
    see()
    for _ in range(2):
        try:
            request.extend(cache.config.full_tokens)
        except OutOfSlots:
            see()
    request.refresh()
    see()
    request.abort()
    cache.free(held)
    see()


def a_reset_under_locks(cache: HybridCache, see: See) -> None:
    """A reset takes a caller's lock; the tree grows anew, and the receipt comes back."""
    page = cache.config.page_size
    tokens = list(range(1, 4 * page + 1))
    _insert(cache, 4 * page)
    old = cache.acquire(tokens)
    cache.reset()
    see()
    _insert(cache, 4 * page)
    new = cache.acquire(tokens)
    cache.release(old)
    see()
    cache.evict(4 * page, 4 * page)
    see()
    cache.release(new)
    see()
