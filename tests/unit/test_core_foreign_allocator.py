"""An engine that owns its memory: what the cache asks of it, and when it hears of frees and mappings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.core.events import WidePages
from kvledger.core.pools import PageAllocator, PoolChanges
from kvledger.core.sinks import MemorySink
from tests.support.witness import Witness

CONFIG = CacheConfig(page_size=2, sliding_window=4, full_tokens=32, swa_tokens=32)
HEAD = list(range(1, 9))


@dataclass
class Engine:
    """Hands out its highest pages first and writes down every call it gets."""

    restores_at_once: bool = False
    full: set[int] = field(default_factory=lambda: set(range(1, 17)))
    swa: set[int] = field(default_factory=lambda: set(range(1, 17)))
    mapping: dict[int, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    last: PoolChanges | None = None

    def allocate(self, full: int, swa: int) -> tuple[WidePages, WidePages] | None:
        if full > len(self.full) or swa > len(self.swa):
            return None
        self.calls.append("allocate")
        taken = sorted(self.full)[-full:] if full else []
        taken_swa = sorted(self.swa)[-swa:] if swa else []
        self.full -= set(taken)
        self.swa -= set(taken_swa)
        return np.array(taken, dtype=np.int64), np.array(taken_swa, dtype=np.int64)

    def give_back(self, full: WidePages, swa: WidePages) -> None:
        self.calls.append("give_back")
        self.put(full, swa)

    def put(self, full: WidePages, swa: WidePages) -> None:
        for pages, pool in ((full, self.full), (swa, self.swa)):
            assert pages.dtype == np.int64
            named = [int(page) for page in pages]
            assert len(set(named)) == len(named), "a page was given back twice in one call"
            assert not set(named) & pool, "a page was given back that was not handed out"
            pool |= set(named)

    def commit(self, changes: PoolChanges) -> None:
        self.calls.append("commit")
        self.last = changes
        self.put(changes.freed_full, changes.freed_swa)
        assert changes.mapped_full.dtype == changes.mapped_swa.dtype == np.int64
        for page, peer in zip(changes.mapped_full, changes.mapped_swa, strict=True):
            self.mapping[int(page)] = int(peer)

    def available(self) -> tuple[int, int]:
        return len(self.full), len(self.swa)

    def agrees(self, cache: HybridCache) -> bool:
        """Free sets and mapping are the cache's."""
        sizes = cache.sizes()
        every = np.arange(1, 17)
        peers = cache.swa_slots(every * 2) // 2
        known = [self.mapping.get(int(page), 0) for page in every]
        free = (2 * len(self.full), 2 * len(self.swa))
        return free == (sizes.full.free, sizes.swa.free) and known == list(peers)


@pytest.fixture(params=[False, True], ids=["told at the end", "told at once"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(restores_at_once=request.param)


def with_engine(engine: Engine) -> tuple[HybridCache, Witness]:
    sink = MemorySink()
    cache = HybridCache(CONFIG, sink=sink, pool=engine)
    return cache, Witness(cache, sink)


HANDED_OUT: dict[str, Callable[[WidePages], Any]] = {
    "of another name": lambda pages: pages.astype(np.longlong),
    "in another byte order": lambda pages: pages.astype(">i8"),
    "strided": lambda pages: np.repeat(pages, 2)[::2],
    "reversed": lambda pages: pages[::-1],
    "not aligned": lambda pages: np.frombuffer(b"x" + pages.tobytes(), np.uint8)[1:].view(np.int64),
    "as the cache keeps them": lambda pages: pages.astype(np.int32),
    "narrow": lambda pages: pages.astype(np.int16),
    "a list": lambda pages: pages.tolist(),
}


@pytest.mark.parametrize("how", HANDED_OUT)
def test_pages_of_an_engine_may_be_integers_of_any_kind(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    allocate = engine.allocate
    handed_out: list[Any] = []

    def odd(full: int, swa: int) -> Any:
        found = allocate(full, swa)
        if found is None:
            return None
        handed_out.extend(HANDED_OUT[how](pages) for pages in found)
        return tuple(handed_out[-2:])

    monkeypatch.setattr(engine, "allocate", odd)
    cache, witness = with_engine(engine)
    slots = cache.alloc(8)
    cache.insert(range(8), slots)
    for pages in handed_out:
        if isinstance(pages, list) or pages.flags.writeable:
            pages[:] = pages[::-1]  # they are the engine's own again
    cache.free(cache.alloc(4))
    witness.look()
    cache.evict(full_tokens=8, swa_tokens=8)
    assert engine.agrees(cache)
    assert len(engine.full) == 16


def test_an_engine_is_an_allocator_by_its_methods_alone(engine: Engine) -> None:
    assert isinstance(engine, PageAllocator)


def test_frees_and_mappings_reach_the_engine_at_commit_in_one_call(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    slots = cache.alloc(16)
    engine.calls.clear()
    with cache.transaction("step"):
        cache.free(slots[:4])
        cache.free_swa(slots[4:6])
        cache.insert(HEAD, slots[4:12], swa_evicted_len=2)
        cache.free(slots[12:])
        assert engine.calls == []
    assert engine.calls == ["commit"]
    assert engine.last is not None
    assert sorted(engine.last.freed_full) == sorted({*slots[:4] // 2, *slots[12:] // 2})
    assert engine.agrees(cache)
    witness.look()


def test_a_page_taken_and_freed_in_one_transaction_is_told_net(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    with cache.transaction("step"):
        cache.free(cache.alloc(4))
        kept = cache.alloc(4)
    assert engine.calls.count("commit") == 1
    assert engine.agrees(cache)
    assert [engine.mapping[int(page)] for page in kept[::2] // 2] == list(cache.swa_slots(kept)[::2] // 2)
    witness.look()


def test_pages_of_an_undone_transaction_go_back_in_one_call_when_it_ends(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    before = (set(engine.full), set(engine.swa), cache.digest())
    with cache.transaction("step") as t:
        cache.alloc(4)
        cache.alloc_full_only(4)
        cache.alloc(2)
        t.rollback(reason="not now")
    assert (engine.full, engine.swa, cache.digest()) == before
    if not engine.restores_at_once:
        returns = [call for call in engine.calls if call in ("give_back", "commit")]
        assert len(returns) == 1
    assert engine.agrees(cache)
    witness.look()


def test_pages_of_a_transaction_left_by_an_exception_go_back_in_one_call(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    before = (set(engine.full), set(engine.swa), cache.digest())

    def step() -> None:
        with cache.transaction("step"):
            cache.alloc(4)
            cache.alloc(6)
            raise RuntimeError("left")

    with pytest.raises(RuntimeError, match="left"):
        step()
    assert (engine.full, engine.swa, cache.digest()) == before
    if not engine.restores_at_once:
        assert engine.calls.count("give_back") == 1
        assert "commit" not in engine.calls
    witness.look()


def test_pages_of_an_undone_part_are_handed_out_again_in_the_same_transaction(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    with cache.transaction("step") as t:
        start = t.savepoint()
        cache.alloc(32)
        t.rollback(start)
        assert len(cache.alloc(32)) == 32
        with pytest.raises(OutOfSlots):
            cache.alloc(2)
    assert engine.agrees(cache)
    witness.look()


def test_an_undone_part_goes_back_at_once_or_at_the_end_as_the_engine_wants_it(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    with cache.transaction("step") as t:
        start = t.savepoint()
        cache.alloc(4)
        t.rollback(start)
        assert ("give_back" in engine.calls) == engine.restores_at_once
        assert len(engine.full) == (16 if engine.restores_at_once else 14)
    assert engine.agrees(cache)
    witness.look()


@pytest.mark.parametrize("undone", [2, 4, 8])
def test_pages_of_an_undone_part_are_filled_up_with_others_where_more_is_wanted(
    engine: Engine, undone: int
) -> None:
    cache, witness = with_engine(engine)
    with cache.transaction("step") as t:
        start = t.savepoint()
        cache.alloc(undone)
        cache.alloc_full_only(undone)
        t.rollback(start)
        first, second = cache.alloc(4), cache.alloc(12)
        alone = cache.alloc_full_only(8)
    slots = [*first, *second, *alone]
    assert len(set(slots)) == len(slots) == 24
    assert len(set(cache.swa_slots(np.array(slots[:16])))) == 16
    assert engine.agrees(cache)
    witness.look()
    cache.free(np.array(slots))
    assert (len(engine.full), len(engine.swa)) == (16, 16)


def test_what_eviction_frees_is_reused_before_the_engine_is_asked(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    cache.insert(HEAD, cache.alloc(8))
    cache.alloc(24)
    request = cache.open_request("r", list(range(100, 108)))
    engine.calls.clear()
    request.extend(8)
    assert engine.calls in ([], ["commit"])
    assert engine.agrees(cache)
    witness.look()


def test_a_whole_life_leaves_the_engine_with_all_its_pages(engine: Engine) -> None:
    cache, witness = with_engine(engine)
    for number in range(6):
        request = cache.open_request(f"r{number}", [*HEAD, *range(number, number + 9)])
        request.extend(17 - request.prefix_len)
        request.computed()
        request.commit()
        request.slide()
        request.finish()
        assert engine.agrees(cache)
    cache.evict(full_tokens=32, swa_tokens=32)
    assert engine.agrees(cache)
    cache.reset()
    assert (len(engine.full), len(engine.swa)) == (16, 16)
    witness.look()
    witness.verdict()
