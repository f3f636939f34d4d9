"""Configurations from outside: a pydantic ValidationError, or sizes that a cache can be built from.

A configuration that is taken is the same after JSON, and a cache built from it hands out all its pages and no
more. Some three seconds.
"""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kvledger.core import CacheConfig, HybridCache, InvalidArgument, KVLayout, MemorySink, OutOfSlots
from tests.property.outside_values import Name, Number, Thing, bounded

SMALL = 512
"""Tokens of the largest pools that are built here."""

JUNK: list[Any] = [
    None, True, False, -1, 0, 2**31 - 1, 2**31, 2**63, 2**70, 1.0, 4.5, math.nan, math.inf, "4", "", "cpu",
    b"4", [], [4], {}, {"page_size": 4}, (0,), (0, 0), (-1,), ("0",), (1.0,), "\ud800", Thing(), int,
]  # fmt: skip

SIZES = st.sampled_from([1, 2, 3, 4, 8, 16, 64, Number(4)])
DEVICES = st.sampled_from(
    ["cpu", "cpu", "cpu:0", Name("cpu"), "cuda:99", "meta", "mps", "xla", "hpu", "vulkan", "", "CPU", "a\0b",
     "\ud800", "privateuseone", "cpu:1"]
)  # fmt: skip
LAYERS = st.lists(st.integers(0, 3), max_size=3) | st.sampled_from([(0,), (1, 2)])

LAYOUT: dict[str, st.SearchStrategy[Any]] = {
    "full_layers": LAYERS,
    "swa_layers": LAYERS,
    "kv_heads": st.sampled_from([1, 2]),
    "head_dim": st.sampled_from([1, 2]),
    "dtype": st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
}
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "page_size": SIZES,
    "sliding_window": SIZES,
    "full_tokens": SIZES.map(lambda size: 4 * size),
    "swa_tokens": SIZES.map(lambda size: 4 * size),
    "device": DEVICES,
    "layout": st.none() | st.fixed_dictionaries(LAYOUT),
    "locked_recovery": st.sampled_from(["remap", "skip"]),
    "mapping_dtype": st.sampled_from(["int64", "int32"]),
    "fingerprints": st.booleans(),
    "eviction": st.sampled_from(["lru", "lru-2"]),
}
NEEDED = ("page_size", "sliding_window", "full_tokens", "swa_tokens")


@st.composite
def fields_of(draw: st.DrawFn, usual: dict[str, st.SearchStrategy[Any]], needed: tuple[str, ...]) -> Any:
    """Fields of a model, some of them junk, missing, or unknown to it."""
    names = {*needed, *draw(st.sets(st.sampled_from(sorted(usual))))}
    fields = {name: draw(usual[name]) for name in sorted(names)}
    match draw(st.integers(0, 5)):
        case 0:
            fields[draw(st.sampled_from(sorted(usual)))] = draw(st.sampled_from(JUNK))
        case 1:
            del fields[draw(st.sampled_from(sorted(fields)))]
        case 2:
            fields[draw(st.sampled_from(["pages", "", "PAGE_SIZE", "\ud800"]))] = 4
    return fields


@bounded
@given(fields_of(LAYOUT, tuple(LAYOUT)))
def test_a_layout_is_sound_or_refused(fields: dict[str, Any]) -> None:
    try:
        layout = KVLayout.model_validate(fields)
    except ValidationError:
        return
    layers = layout.full_layers + layout.swa_layers
    assert len(layers) == len(set(layers)) > 0
    assert all(type(layer) is int and layer >= 0 for layer in layers)
    assert layout.kv_heads > 0 < layout.head_dim
    assert KVLayout.model_validate_json(layout.model_dump_json()) == layout


@bounded
@given(fields_of(FIELDS, NEEDED))
def test_a_configuration_is_one_that_a_cache_can_have_or_refused(fields: dict[str, Any]) -> None:
    try:
        config = CacheConfig.model_validate(fields)
    except ValidationError:
        return
    page = config.page_size
    assert all(type(getattr(config, name)) in (int, Number) for name in NEEDED)
    assert config.full_tokens % page == config.swa_tokens % page == 0
    assert min(config.full_pages, config.swa_pages, config.sliding_window) > 0
    if max(config.full_tokens, config.swa_tokens, config.sliding_window) <= SMALL:
        hand_out_everything(config)


def hand_out_everything(config: CacheConfig) -> None:
    """Build a cache, fill it and look at it; refused only for what its machine or its memory has not."""
    sink = MemorySink()
    try:
        cache = HybridCache(config, sink=sink)
    except InvalidArgument:
        assert config.fingerprints or config.device not in ("cpu", "cpu:0")
        assert sink.transactions == []
        return
    told = json.loads(json.dumps(config.told()))
    assert CacheConfig.model_validate(told) == config
    full, swa = config.full_tokens, config.swa_tokens
    assert (cache.sizes().full.total, cache.sizes().swa.total) == (full, swa)
    least = min(full, swa)
    slots = [*cache.alloc(least), *cache.alloc_full_only(full - least)]
    assert sorted(slots) == list(range(config.page_size, full + config.page_size))
    with pytest.raises(OutOfSlots):
        cache.alloc_full_only(config.page_size)
    cache.check()
    cache.free(slots)
    cache.check()


NOT_HERE = ("meta", "hpu", "privateuseone", "xla", "\ud800", "a\0b", "", "cuda:99", "cpu:-1")


@pytest.mark.parametrize("device", NOT_HERE, ids=ascii)
def test_a_device_that_holds_nothing_here_is_refused(device: str) -> None:
    sizes = {"page_size": 4, "sliding_window": 4, "full_tokens": 16, "swa_tokens": 8}
    sink = MemorySink()
    with pytest.raises(InvalidArgument, match="device"):
        HybridCache(CacheConfig(**sizes, device=device), sink=sink)
    assert sink.transactions == []


@bounded
@given(
    st.text(max_size=40) | st.binary(max_size=40) | st.sampled_from(["{}", "null", "[" * 900, '{"a":' * 900])
)
def test_text_that_is_no_configuration_is_refused(text: str | bytes) -> None:
    for model in (CacheConfig, KVLayout):
        with pytest.raises(ValidationError):
            model.model_validate_json(text)
