"""When a cache fingerprints KV, what of, and how often it asks its memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core import commit as commit_module
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvalidArgument, InvariantViolation, KVUnreadable
from kvledger.core.events import (
    CacheOpened,
    Event,
    FingerprintReason,
    KvFingerprinted,
    LockAcquired,
    LockReleased,
    Pages,
    WidePages,
)
from kvledger.core.insertion import Insertion
from kvledger.core.node import Node
from kvledger.core.pools import Fingerprints, KVFingerprinter, PoolChanges
from kvledger.core.sinks import MemorySink
from tests.property.side_by_side import ONE_NUMBER, fill_with_noise
from tests.support.old_recovery import replace_full_whoever_reads_it
from tests.support.witness import Witness, open_cache

LOCKED, RECOVERED, UNLOCKED = FingerprintReason
PAGE = 4


@dataclass
class Looking:
    """A fingerprinting cache whose memory counts how often it is asked, and what its journal got since."""

    policy: str = "remap"
    asked: list[int] = field(default_factory=list)
    answers: list[Fingerprints] = field(default_factory=list)
    seen: int = 1

    def __post_init__(self) -> None:
        self.cache, self.sink = open_cache(
            page=PAGE,
            window=PAGE,
            full=32 * PAGE,
            swa=16 * PAGE,
            layout=ONE_NUMBER,
            fingerprints=True,
            locked_recovery=self.policy,
        )
        fill_with_noise(self.cache)
        ask = self.cache._state.fingerprint
        assert ask is not None

        def counted(full: WidePages, swa: WidePages) -> Fingerprints:
            assert full.dtype == swa.dtype == np.int64
            self.asked.append(len(full))
            self.answers.append(ask(full, swa))
            return self.answers[-1]

        self.cache._state.fingerprint = counted

    def new_events(self) -> list[Event]:
        """What was journaled since the last call, undone events too."""
        new = self.sink.transactions[self.seen :]
        self.seen = len(self.sink.transactions)
        return [event for transaction in new for event in transaction.events]

    def looks(self) -> list[tuple[int, str, list[int]]]:
        """Node, reason and pages of each new fingerprint, whose sums are what the memory answered."""
        told, answered = [], [row for answer in self.answers for row in answer.tolist()]
        self.answers.clear()
        for event in self.new_events():
            if isinstance(event, KvFingerprinted):
                told.append((int(event.node), str(event.reason), event.full_pages.tolist()))
                rows = [answered.pop(0) for _ in event.full_pages]
                assert event.full_sums.tolist() == [full for full, _ in rows]
                assert event.swa_sums is None or event.swa_sums.tolist() == [swa for _, swa in rows]
                for array in (event.full_sums, event.swa_sums):
                    assert array is None or not array.flags.writeable
        assert not answered
        return told

    def insert(self, tokens: list[int]) -> None:
        self.cache.insert(tokens, self.cache.alloc(len(tokens)))


TOKENS = list(range(5 * PAGE))


def test_the_first_lock_and_the_last_release_of_a_node_are_fingerprinted_in_one_call_each() -> None:
    look = Looking()
    look.insert(TOKENS)
    assert look.looks() == []
    first = look.cache.acquire(TOKENS)
    assert look.looks() == [(1, "locked", [1, 2, 3, 4]), (2, "locked", [5])]
    second = look.cache.acquire(TOKENS)
    look.cache.release(first)
    assert look.looks() == []
    look.cache.release(second)
    assert look.looks() == [(1, "unlocked", [1, 2, 3, 4]), (2, "unlocked", [5])]
    assert look.asked == [5, 5]


def test_a_longer_lock_fingerprints_what_it_is_the_first_to_lock() -> None:
    look = Looking()
    look.insert(TOKENS)
    short = look.cache.acquire(TOKENS[: 2 * PAGE])
    parts = look.looks()
    assert [pages for _, _, pages in parts] == [[1], [2]]
    long = look.cache.acquire(TOKENS)
    assert [pages for _, _, pages in look.looks()] == [[3, 4], [5]]
    look.cache.release(short)
    assert look.looks() == []
    look.cache.release(long)
    assert [pages for _, _, pages in look.looks()] == [[1], [2], [3, 4], [5]]
    assert look.asked == [2, 3, 5]


def test_fingerprints_stand_right_behind_the_lock_and_right_before_the_release() -> None:
    look = Looking()
    look.insert(TOKENS)
    look.new_events()
    lease = look.cache.acquire(TOKENS)
    look.cache.release(lease)
    kinds = [type(event) for event in look.new_events()]
    at, end = kinds.index(LockAcquired), kinds.index(LockReleased)
    assert kinds[at + 1 : end] == [KvFingerprinted] * 4
    assert kinds[end + 1 :] == []


def test_an_empty_lock_and_the_swa_half_of_one_are_not_fingerprinted() -> None:
    look = Looking()
    look.cache.release(look.cache.acquire(TOKENS))
    look.insert(TOKENS)
    lease = look.cache.acquire(TOKENS)
    look.looks()
    look.cache.release_swa(lease)
    assert look.looks() == []


def test_a_request_is_fingerprinted_at_its_commit_and_its_end() -> None:
    look = Looking()
    request = look.cache.open_request("r1", [*TOKENS, 7])
    request.extend(len(TOKENS) + 1)
    request.computed()
    request.commit()
    assert look.looks() == [(1, "locked", [1, 2, 3, 4]), (2, "locked", [5])]
    request.retract()
    assert [reason for _, reason, _ in look.looks()] == ["unlocked", "unlocked"]
    request.refresh()
    assert [reason for _, reason, _ in look.looks()] == ["locked", "locked"]
    look.cache.reset()
    assert [reason for _, reason, _ in look.looks()] == ["unlocked", "unlocked"]
    assert look.asked == [5] * 4


def recover(look: Looking) -> None:
    """Three nodes of which two tombstones are locked; an insert brings the SWA of both back."""
    look.insert(TOKENS)
    lease = look.cache.acquire(TOKENS)
    look.cache.release_swa(lease)
    look.cache.evict(swa_tokens=5 * PAGE)
    look.looks()
    look.asked.clear()
    look.insert(TOKENS)


def test_recoveries_under_a_lock_are_fingerprinted_after_the_insert_in_one_call() -> None:
    look = Looking()
    recover(look)
    assert look.looks() == [(1, "recovered", [1, 2, 3, 4]), (2, "recovered", [5])]
    assert look.asked == [5]
    Witness(look.cache, look.sink).verdict()


@pytest.mark.interpreted
def test_a_recovery_that_a_commit_undoes_again_is_not_fingerprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    look = Looking()
    request = look.cache.open_request("r1", [*TOKENS, 7])
    request.extend(len(TOKENS) + 1)
    request.computed()
    look.insert(TOKENS)
    look.cache.release_swa(look.cache.acquire(TOKENS))
    look.cache.evict(swa_tokens=5 * PAGE)
    look.looks()

    def short(insertion: Insertion, *_: object) -> tuple[int, Node | None]:
        """As if the match ended with the first of the two nodes that the insert brings back."""
        first, second = insertion.steps
        assert (first.end, second.end) == (4, 5)
        return first.end, first.node

    monkeypatch.setattr(commit_module, "_accepted", short)
    committed = request.commit()
    assert (committed.length, committed.refused) == (4 * PAGE, PAGE)
    recovered = [node for node, reason, _ in look.looks() if reason == "recovered"]
    assert recovered == [1]


def test_a_recovery_that_is_skipped_is_not_fingerprinted() -> None:
    look = Looking(policy="skip")
    recover(look)
    assert look.looks() == []
    assert look.asked == []


def test_a_tombstone_without_a_lock_is_recovered_without_a_fingerprint() -> None:
    look = Looking()
    look.insert(TOKENS)
    look.cache.evict(swa_tokens=PAGE)
    look.insert(TOKENS)
    assert look.looks() == []


@pytest.mark.interpreted
def test_a_recovery_that_replaces_locked_full_is_fingerprinted_with_what_it_put_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Insertion, "_recover", replace_full_whoever_reads_it)
    look = Looking()
    recover(look)
    assert look.looks() == [(1, "recovered", [6, 7, 8, 9]), (2, "recovered", [10])]


def test_sums_are_those_of_the_pool_and_a_tombstone_has_none_of_swa() -> None:
    look = Looking()
    look.insert(TOKENS)
    look.cache.evict(swa_tokens=PAGE)
    look.new_events()
    look.cache.acquire(TOKENS)
    first, second = [event for event in look.new_events() if isinstance(event, KvFingerprinted)]
    sums = look.cache.pool.fingerprint(np.arange(1, 6))
    assert first.swa_sums is None
    assert second.swa_sums is not None
    assert [*first.full_sums.tolist(), *second.full_sums.tolist()] == sums[:, 0].tolist()
    assert second.swa_sums.tolist() == sums[4:, 1].tolist()


def test_what_is_undone_took_its_fingerprints_with_it() -> None:
    look = Looking()
    look.insert(TOKENS)
    witness = Witness(look.cache, look.sink)
    before = look.cache.digest()
    with look.cache.transaction("mine") as transaction:
        look.cache.acquire(TOKENS)
        transaction.rollback()
    undone = look.sink.transactions[-1]
    marked = [
        bool(mark)
        for event, mark in zip(undone.events, undone.undone, strict=True)
        if isinstance(event, KvFingerprinted)
    ]
    assert marked == [True, True]
    assert look.cache.digest() == before
    witness.look()
    witness.verdict()


# Off, and refused.


def test_without_the_setting_nothing_is_asked_and_nothing_journaled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the memory was asked")

    monkeypatch.setattr(DevicePools, "fingerprint", fail)
    cache, sink = open_cache(page=PAGE, window=PAGE, layout=ONE_NUMBER)
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    cache.release(cache.acquire(TOKENS))
    assert not any(isinstance(event, KvFingerprinted) for t in sink.transactions for event in t.events)
    opening = sink.transactions[0].events[0]
    assert isinstance(opening, CacheOpened)
    assert opening.config["fingerprints"] is False


def config(**more: Any) -> CacheConfig:
    return CacheConfig(page_size=PAGE, sliding_window=PAGE, full_tokens=64, swa_tokens=64, **more)


def test_pools_without_kv_cannot_be_fingerprinted() -> None:
    with pytest.raises(InvalidArgument, match="without a layout"):
        HybridCache(config(fingerprints=True))


class Memory:
    """An engine's memory that cannot look into its pages."""

    restores_at_once = True

    def __init__(self) -> None:
        self._pools = DevicePools(config())

    def allocate(self, full: int, swa: int) -> tuple[Pages, Pages] | None:
        return self._pools.allocate(full, swa)

    def give_back(self, full: Pages, swa: Pages) -> None:
        self._pools.give_back(full, swa)

    def commit(self, changes: PoolChanges) -> None:
        self._pools.commit(changes)

    def available(self) -> tuple[int, int]:
        return self._pools.available()


class Answering(Memory):
    """The same, which gives the answer that a test says."""

    def __init__(self, answer: Callable[[Pages, Pages], Any]) -> None:
        super().__init__()
        self._answer = answer

    def fingerprint(self, full: Pages, swa: Pages, /) -> Fingerprints:
        return self._answer(full, swa)


def test_a_memory_that_cannot_compute_fingerprints_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"Memory cannot compute fingerprints: it has no fingerprint\(\)"
    ):
        HybridCache(config(fingerprints=True), pool=Memory())
    HybridCache(config(), pool=Memory())


def test_an_engines_memory_needs_no_layout_and_hears_both_pages() -> None:
    heard: list[tuple[list[int], list[int]]] = []

    def answer(full: Pages, swa: Pages) -> Fingerprints:
        heard.append((full.tolist(), swa.tolist()))
        return np.stack((full, swa), axis=1).astype(np.uint64)

    sink = MemorySink()
    memory = Answering(answer)
    assert isinstance(memory, KVFingerprinter)
    cache = HybridCache(config(fingerprints=True), sink=sink, pool=memory)
    cache.alloc_full_only(PAGE)
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    cache.acquire(TOKENS)
    assert heard == [([2, 3, 4, 5, 6], [1, 2, 3, 4, 5])]
    Witness(cache, sink).verdict()


def broken_memory(full: Pages, swa: Pages) -> Fingerprints:
    raise RuntimeError("the device is gone")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (broken_memory, KVUnreadable),
        (lambda full, swa: None, InvariantViolation),
        (lambda full, swa: np.zeros((len(full), 2), np.int64), InvariantViolation),
        (lambda full, swa: np.zeros((len(full) + 1, 2), np.uint64), InvariantViolation),
        (lambda full, swa: np.zeros(len(full), np.uint64), InvariantViolation),
    ],
)
def test_a_lock_is_refused_where_the_memory_fails_or_answers_nonsense(
    answer: Callable[[Pages, Pages], Any], error: type[Exception]
) -> None:
    sink = MemorySink()
    cache = HybridCache(config(fingerprints=True), sink=sink, pool=Answering(answer))
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    before = cache.digest()
    with pytest.raises(error):
        cache.acquire(TOKENS)
    assert cache.digest() == before
    witness = Witness(cache, sink)
    witness.look()
    witness.verdict()


def test_the_setting_is_a_truth_value() -> None:
    for wrong in ("yes", 1, None):
        with pytest.raises(ValueError, match="fingerprints"):
            config(fingerprints=wrong)


def test_a_layout_without_one_kind_of_layers_has_one_as_its_sum() -> None:
    layout = KVLayout(full_layers=(0,), swa_layers=(), kv_heads=1, head_dim=1)
    cache, sink = open_cache(page=PAGE, window=PAGE, layout=layout, fingerprints=True)
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    cache.acquire(TOKENS)
    looked = [event for event in sink.transactions[-1].events if isinstance(event, KvFingerprinted)]
    assert [event.swa_sums is not None and set(event.swa_sums.tolist()) for event in looked] == [{1}, {1}]
