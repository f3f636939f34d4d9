"""What prefixes are not shared with: refused before anything runs, by one error, and nothing was touched."""

import copy
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from transformers import CompileConfig, GenerationConfig
from transformers.generation import ContinuousBatchingConfig

from kvledger.core.errors import InvalidArgument
from kvledger.tools.embed.transformers import UnsupportedSetup, shared_prefixes
from kvledger.tools.engine import library
from tests.support.batching import run_batching, tiny_model

SIZES: dict[str, Any] = {"page_size": 4, "full_tokens": 256, "swa_tokens": 128, "journal": None}


@pytest.fixture
def model() -> Any:
    return tiny_model("gemma3", 18)


@pytest.mark.parametrize("installed", ["5.23.4", "5.25.0", "6.24.0", "4.57.1"])
def test_another_version_of_transformers_is_refused_and_the_tested_ones_named(
    installed: str, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "version", lambda _: installed)
    with pytest.raises(UnsupportedSetup, match=rf"{installed} is installed, tested is 5\.24\.x only"):
        shared_prefixes(model, **SIZES)


def test_without_transformers_the_error_says_what_brings_it(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(library, "version", missing)
    with pytest.raises(UnsupportedSetup, match=r"pip install 'kvledger\[engine\]'"):
        shared_prefixes(model, **SIZES)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layer_types": ["full_attention"] * 4}, "without both full and sliding layers"),
        ({"layer_types": ["sliding_attention"] * 4}, "without both full and sliding layers"),
        ({"layer_types": ["full_attention", "linear_attention"] * 2}, r"kinds \['linear_attention'\]"),
        ({"layer_types": None}, "without both full and sliding layers"),
        ({"sliding_window": None}, "sliding_window=None"),
        ({"sliding_window": 1}, "sliding_window=1"),
        ({"num_kv_shared_layers": 2}, "KV of other layers"),
    ],
)
def test_a_model_that_is_not_hybrid_is_refused(changed: dict[str, Any], said: str, model: Any) -> None:
    config = copy.copy(model.config)
    for name, value in changed.items():
        object.__setattr__(config, name, value)
    other = copy.copy(model)
    other.config = config
    with pytest.raises(UnsupportedSetup, match=said):
        shared_prefixes(other, **SIZES)


def test_what_wraps_a_model_is_refused_because_its_scheduler_would_not_notice(model: Any) -> None:
    wrapper = SimpleNamespace(dtype=model.dtype, device=model.device, config=model.config)
    with pytest.raises(UnsupportedSetup, match="give the model itself"):
        shared_prefixes(wrapper, **SIZES)


def test_a_model_spread_over_devices_is_refused(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_device_mesh", object(), raising=False)
    with pytest.raises(UnsupportedSetup, match="tensor parallelism"):
        shared_prefixes(model, **SIZES)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"page_size": 2}, "4 tokens or more"),
        ({"swa_tokens": 28}, "a window of 17 needs 32 or more"),
    ],
)
def test_sizes_in_which_no_request_gets_on_are_refused(sizes: dict[str, int], said: str, model: Any) -> None:
    with pytest.raises(UnsupportedSetup, match=said):
        shared_prefixes(model, **(SIZES | sizes))
    with pytest.raises(ValidationError, match="does not divide"):
        shared_prefixes(model, **(SIZES | {"full_tokens": 255}))


def test_the_smallest_swa_pool_that_is_accepted_serves_a_request_longer_than_it(model: Any) -> None:
    prompt = [7 + token % 50 for token in range(90)]
    alone = run_batching(model, [prompt])
    with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=32, poison=True, journal=None):
        shared = run_batching(model, [prompt])
    assert shared.tokens == alone.tokens


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"use_async_batching": True}, "use_async_batching=True"),
        ({"use_cuda_graph": True}, "use_cuda_graph=True"),
        ({"use_cuda_graph": (False, True)}, r"use_cuda_graph=\(False, True\)"),
        ({"max_blocks_per_request": 8}, "block tables"),
        ({"cpu_offload_space": 1.0}, "cpu_offload_space=1.0"),
        ({"cpu_offload_space": None}, "cpu_offload_space=None"),
        ({"default_compile_level": 1}, "compiled forward passes"),
        ({"varlen_compile_config": CompileConfig()}, "compiled forward passes"),
        ({"decode_compile_config": CompileConfig()}, "compiled forward passes"),
        ({"allow_block_sharing": False}, "allow_block_sharing=False"),
    ],
)
def test_what_the_scheduler_cannot_do_meanwhile_is_refused_before_it_is_made(
    asked: dict[str, Any], said: str, model: Any
) -> None:
    before = model.config._attn_implementation
    batching = ContinuousBatchingConfig(**asked)
    with shared_prefixes(model, **SIZES) as ledger:
        with pytest.raises(UnsupportedSetup, match=said):
            model.generate_batch([[1, 2]], continuous_batching_config=batching)
        generation = GenerationConfig()
        generation.continuous_batching_config = batching
        with pytest.raises(UnsupportedSetup, match=said):
            model.generate_batch([[1, 2]], generation_config=generation)
        assert model.config._attn_implementation == before
        assert ledger.report().requests == 0
        assert not run_batching(model, [[1, 2, 3]]).errors
    assert all(getattr(batching, name) == value for name, value in asked.items())


def test_forked_requests_are_refused(model: Any) -> None:
    with (
        shared_prefixes(model, **SIZES),
        pytest.raises(UnsupportedSetup, match="num_return_sequences=2"),
    ):
        model.generate_batch(
            [[1, 2]], generation_config=GenerationConfig(do_sample=True, num_return_sequences=2)
        )


def test_a_model_shares_through_one_block_and_one_manager_at_a_time(model: Any) -> None:
    ledger = shared_prefixes(model, **SIZES)
    with pytest.raises(InvalidArgument, match="has to be entered first"):
        ledger.report()
    with ledger:
        with pytest.raises(UnsupportedSetup, match="by another block"), shared_prefixes(model, **SIZES):
            pass
        assert "init_continuous_batching" in vars(model)
        manager = model.init_continuous_batching()
        manager.start()
        with pytest.raises(UnsupportedSetup, match="one manager at a time"):
            model.init_continuous_batching()
    with pytest.raises(InvalidArgument, match="is used once"), ledger:
        pass
    with pytest.raises(UnsupportedSetup, match="the block that shared prefixes is over"):
        manager._create_batch_processor()


def test_a_model_with_a_manager_of_its_own_is_refused_and_nothing_is_recorded(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "_cached_continuous_batching_manager", object(), raising=False)
    with (
        pytest.raises(UnsupportedSetup, match="destroy_cached_continuous_batching_manager"),
        shared_prefixes(model, **(SIZES | {"journal": tmp_path / "run.db"})),
    ):
        pass
    assert not (tmp_path / "run.db").exists()


def test_a_model_that_changed_its_dtype_meanwhile_is_refused() -> None:
    model = copy.deepcopy(tiny_model("gemma3", 18))
    with shared_prefixes(model, **SIZES):
        manager = model.init_continuous_batching()
        model.bfloat16()
        with pytest.raises(
            UnsupportedSetup, match=r"was float32 on cpu .* and is torch\.bfloat16 on cpu now"
        ):
            manager._create_batch_processor()
