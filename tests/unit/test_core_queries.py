"""Queries are pure: no split, no recency, no event; and `explain` says why a match is not longer."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import InvalidArgument
from tests.support.witness import open_cache


def filled() -> tuple[HybridCache, list[int]]:
    """1..20 with twelve dead, and a lease inside it."""
    cache, _ = open_cache()
    tokens = list(range(1, 21))
    slots = cache.alloc(20)
    cache.free_swa(slots[:12])
    cache.insert(tokens, slots, swa_evicted_len=12)
    cache.acquire(tokens[:18])
    return cache, tokens


QUERIES: dict[str, Callable[[HybridCache, list[int]], object]] = {
    "match_prefix": lambda cache, tokens: cache.match_prefix(tokens[:17]),
    "explain": lambda cache, tokens: cache.explain(tokens[:15]),
    "can_fit": lambda cache, tokens: cache.can_fit(tokens, 30),
    "sizes": lambda cache, tokens: cache.sizes(),
    "nodes": lambda cache, tokens: list(cache.nodes()),
    "stats": lambda cache, tokens: cache.stats(),
    "check": lambda cache, tokens: cache.check(),
    "swa_slots": lambda cache, tokens: cache.swa_slots(cache.match_prefix(tokens).slots),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_splits_nothing_touches_nothing_and_journals_nothing(name: str) -> None:
    cache, sink = open_cache()
    tokens = list(range(1, 21))
    slots = cache.alloc(20)
    cache.insert(tokens, slots)
    cache.acquire(tokens[:18])
    before = (cache.digest(), len(sink.transactions), [(n.id, n.last_access) for n in cache.nodes()])
    QUERIES[name](cache, tokens)
    after = (cache.digest(), len(sink.transactions), [(n.id, n.last_access) for n in cache.nodes()])
    assert after == before


def test_explain_names_the_first_tombstone_and_the_live_tokens_that_are_missing() -> None:
    cache, tokens = filled()
    told = cache.explain(tokens[:15])
    assert (told.length, told.full_length) == (0, 15)
    assert told.first_tombstone is not None
    assert tuple(told.first_tombstone)[1:] == (0, 12)
    assert (told.live_tokens, told.missing_tokens) == (3, 1)


@pytest.mark.parametrize(
    ("asked", "length", "full", "reason", "tombstone", "live", "missing"),
    [
        (range(1, 21), 20, 20, "whole", None, 8, 0),
        (range(1, 17), 16, 16, "whole", None, 4, 0),
        ([*range(1, 21), 90], 20, 20, "no_full", None, 8, 0),
        ([*range(1, 17), 90], 16, 16, "no_full", None, 4, 0),
        (range(1, 16), 0, 15, "dead_window", (0, 12), 3, 1),
        ([*range(1, 14), 90, 91], 0, 13, "dead_window", (0, 12), 1, 3),
        (range(1, 13), 0, 12, "dead_window", (0, 12), 0, 4),
        ([90], 0, 0, "no_full", None, 0, 0),
        ([], 0, 0, "whole", None, 0, 0),
    ],
)
def test_explain_says_how_far_full_reaches_and_why_the_match_ends(
    asked: Sequence[int],
    length: int,
    full: int,
    reason: str,
    tombstone: tuple[int, int] | None,
    live: int,
    missing: int,
) -> None:
    cache, _ = filled()
    told = cache.explain(list(asked))
    assert (told.tokens, told.length, told.full_length, told.branch_length) == (
        len(asked),
        length,
        full,
        full,
    )
    assert told.reason == reason
    first = told.first_tombstone
    assert (None if first is None else tuple(first)[1:]) == tombstone
    assert (told.live_tokens, told.missing_tokens) == (live, missing)


@pytest.mark.parametrize(
    ("length", "usable", "full", "branch"),
    [(20, 20, 20, 20), (16, 16, 16, 16), (15, 0, 15, 15), (12, 0, 12, 12)],
)
def test_the_branch_point_is_how_far_full_reaches_where_that_is_further(
    length: int, usable: int, full: int, branch: int
) -> None:
    cache, tokens = filled()
    match = cache.match_prefix(tokens[:length])
    assert (match.length, match.full_length, match.branch_length) == (usable, full, branch)


NUMPY_DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TORCH_DTYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_slots_and_tokens_are_taken_in_every_integer_dtype_of_numpy(dtype: str) -> None:
    cache, _ = open_cache(page=2, full=32, swa=32)
    slots = cache.alloc(8)
    assert slots.dtype == np.int64
    typed = slots.astype(dtype)
    assert list(cache.swa_slots(typed)) == list(cache.swa_slots(slots))
    cache.free_swa(typed[:2])
    cache.insert(np.arange(6).astype(dtype), typed[:6], swa_evicted_len=2)
    cache.free(typed[6:])
    assert list(cache.match_prefix(np.arange(6).astype(dtype)).slots) == list(slots[:6])
    cache.check()


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_slots_and_tokens_are_taken_in_every_integer_dtype_of_torch(dtype: str) -> None:
    cache, _ = open_cache(page=2, full=32, swa=32)
    slots = cache.alloc(8)
    typed = torch.from_numpy(slots).to(getattr(torch, dtype))
    cache.free_swa(typed[:2])
    tokens = torch.arange(6).to(getattr(torch, dtype))
    cache.insert(tokens, typed[:6], swa_evicted_len=2)
    cache.free(typed[6:])
    assert list(cache.match_prefix(tokens).slots) == list(slots[:6])
    assert cache.match_prefix(tokens).slots.dtype == np.int64


def test_what_a_caller_does_to_an_array_afterwards_does_not_reach_the_cache() -> None:
    cache, _ = open_cache()
    tokens = np.arange(8, dtype=np.int32)
    slots = cache.alloc(8)
    mine = slots.copy()
    cache.insert(tokens, mine)
    before = cache.digest()
    tokens[:] = 7
    mine[:] = 1
    found = cache.match_prefix(np.arange(8)).slots
    found[:] = 3
    views = list(cache.nodes())
    for view in views:
        if view.full_slots.flags.writeable:
            view.full_slots[:] = 5
    assert cache.digest() == before
    assert list(cache.match_prefix(np.arange(8)).slots) == list(slots)


NONSENSE: list[dict[str, object]] = [
    {"page_size": 0},
    {"page_size": -1},
    {"page_size": 3},
    {"page_size": 1.5},
    {"sliding_window": 0},
    {"sliding_window": -4},
    {"full_tokens": 0},
    {"swa_tokens": 0},
    {"full_tokens": 62},
    {"swa_tokens": 66},
    {"full_tokens": 2**40},
    {"locked_recovery": "replace"},
    {"mapping_dtype": "int16"},
    {"layout": {"full_layers": [], "swa_layers": [], "kv_heads": 1, "head_dim": 1}},
    {"layout": {"full_layers": [0], "swa_layers": [0], "kv_heads": 1, "head_dim": 1}},
    {"layout": {"full_layers": [0], "swa_layers": [1], "kv_heads": 0, "head_dim": 1}},
    {"layout": {"full_layers": [0], "swa_layers": [1], "kv_heads": 1, "head_dim": 1, "dtype": "int8"}},
    {"surprise": 1},
]


@pytest.mark.parametrize("change", NONSENSE, ids=repr)
def test_a_config_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    sane: dict[str, object] = {"page_size": 4, "sliding_window": 4, "full_tokens": 64, "swa_tokens": 64}
    CacheConfig.model_validate(sane)
    with pytest.raises(ValueError, match=r"."):
        CacheConfig.model_validate(sane | change)


def test_a_device_that_is_not_there_is_refused() -> None:
    config = CacheConfig(page_size=1, sliding_window=4, full_tokens=8, swa_tokens=8, device="nonsense")
    with pytest.raises(InvalidArgument):
        HybridCache(config)


def test_a_cache_runs_without_a_sink() -> None:
    cache = HybridCache(CacheConfig(page_size=1, sliding_window=4, full_tokens=8, swa_tokens=8))
    slots = cache.alloc(4)
    with cache.transaction("try") as t:
        cache.insert([1, 2, 3, 4], slots)
        t.rollback()
    cache.insert([1, 2, 3, 4], slots)
    assert cache.match_prefix([1, 2, 3, 4]).length == 4
    cache.check()


LOCKED = {"nobody": (), "another like it": (8,), "a shorter one": (3,), "a longer one": (12,)}


@pytest.mark.parametrize("locked", LOCKED)
@pytest.mark.parametrize(
    ("matching", "room", "swa_room"), [(8, 24, 28), (6, 26, 28), (12, 20, 28), (0, 32, 32)]
)
@pytest.mark.parametrize("short", ["Full", "SWA"])
def test_what_fits_is_free_and_evictable_less_what_the_match_itself_would_pin(
    locked: str, matching: int, room: int, swa_room: int, short: str
) -> None:
    # 32 tokens in the pool that is short, 12 of them in the tree; whoever locks a prefix pins all of it
    # in Full and its last window, four tokens, in SWA.
    full, swa = (32, 256) if short == "Full" else (256, 32)
    cache, _ = open_cache(full=full, swa=swa)
    tokens = list(range(1, 13))
    cache.insert(tokens, cache.alloc(12))
    for length in LOCKED[locked]:
        cache.acquire(tokens[:length])
        if short == "Full":
            room = min(room, 32 - max(length, matching))
        else:
            both = set(range(length - 4, length)) | set(range(matching - 4, matching))
            swa_room = 32 - len([position for position in both if position >= 0])
    fits = room if short == "Full" else swa_room
    prompt = [*tokens[:matching], 90]
    assert cache.can_fit(prompt, fits)
    assert not cache.can_fit(prompt, fits + 1)


@pytest.mark.parametrize("page", [1, 2])
@pytest.mark.parametrize(("count", "reused"), [(1, 0), (2, 1), (3, 2), (8, 7), (9, 8)])
def test_an_opened_request_reuses_no_more_than_all_but_its_last_token(
    page: int, count: int, reused: int
) -> None:
    cache, _ = open_cache(page=page)
    tokens = list(range(1, 9))
    cache.insert(tokens, cache.alloc(8))
    request = cache.open_request("r", [*tokens, 90][:count])
    assert request.prefix_len == reused // page * page
