"""Small models of real architectures, built from a configuration with seeded random weights.

All have four layers that mix `sliding_attention` with `full_attention`, a vocabulary of 256 and float32
weights unless told otherwise.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
)

from kvledger.core.config import KVLayout
from kvledger.core.errors import InvalidArgument
from kvledger.tools.engine.hybrid import FULL, SLIDING, DType, layout_of
from kvledger.tools.engine.workload import VOCABULARY

WINDOW = 15
"""Earlier tokens that a sliding layer attends to, unless asked otherwise: `sliding_window=16`."""

WEIGHT_SEED = 0
"""Weights are the same in every run, whatever seed names its workload."""

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 32_768,
    # Ten times the usual spread: attention of small models with tiny weights is nearly a plain mean, in which
    # a wrong token hardly shows.
    "initializer_range": 0.2,
    # Each architecture's own arithmetic: softcapping and sinks are only in this one.
    "attn_implementation": "eager",
}


def _gemma3(sliding_window: int) -> tuple[Any, type[Any]]:
    layers = [SLIDING, SLIDING, FULL, SLIDING]
    config = Gemma3TextConfig(
        **SHAPE, sliding_window=sliding_window, layer_types=layers, query_pre_attn_scalar=16
    )
    return config, Gemma3ForCausalLM


def _gemma2(sliding_window: int) -> tuple[Any, type[Any]]:
    layers = [SLIDING, FULL] * 2
    config = Gemma2Config(
        **SHAPE, sliding_window=sliding_window, layer_types=layers, query_pre_attn_scalar=16
    )
    return config, Gemma2ForCausalLM


def _gpt_oss(sliding_window: int) -> tuple[Any, type[Any]]:
    layers = [SLIDING, FULL] * 2
    config = GptOssConfig(
        **SHAPE,
        sliding_window=sliding_window,
        layer_types=layers,
        num_local_experts=4,
        num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 150_000.0},
    )
    return config, GptOssForCausalLM


ARCHITECTURES: dict[str, Callable[[int], tuple[Any, type[Any]]]] = {
    "gemma3-tiny": _gemma3,
    "gemma2-tiny": _gemma2,
    "gpt-oss-tiny": _gpt_oss,
}


def build_model(
    name: str, *, window: int = WINDOW, dtype: DType = "float32", device: str = "cpu", seed: int = WEIGHT_SEED
) -> Any:
    """A model of `ARCHITECTURES`, ready to compute, whose sliding layers see `window` earlier tokens.

    Leaves torch's generator as it was. InvalidArgument for a name that is not there.
    """
    config, architecture = _described(name, window)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = architecture(config)
    return model.to(device=device, dtype=getattr(torch, dtype)).eval()


def layout_by_name(name: str, *, dtype: DType = "float32") -> KVLayout:
    """The KV layout of a model of `ARCHITECTURES`, without building it."""
    config, _ = _described(name, WINDOW)
    return layout_of(config, dtype=dtype)


def _described(name: str, window: int) -> tuple[Any, type[Any]]:
    describe = ARCHITECTURES.get(name)
    if describe is None:
        raise InvalidArgument(f"no model {name!r}: there are {', '.join(ARCHITECTURES)}")
    return describe(window + 1)
