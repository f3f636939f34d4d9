"""Tiny hybrid models, and the continuous batching of `transformers` run so that two runs can be compared.

A run is deterministic: requests are queued before the loop starts, cancellations come from within it, and
only one thread touches the scheduler. What is compared are the scores that each token was chosen by.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    GptOssConfig,
    GptOssForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.generation import ContinuousBatchingConfig
from transformers.generation.continuous_batching import cache as their_cache
from transformers.generation.continuous_batching.model_runner import ModelRunner

VOCABULARY = 512
TOLERANCE = 1e-4

ALONE: dict[str, Any] = {"batch_tokens": 256}
"""A run that shares nothing, in few large batches: how prompts are cut into batches moves nobody's scores."""

ARCHITECTURES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, {}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"use_sliding_window": True}),
    "gpt-oss": (
        GptOssConfig,
        GptOssForCausalLM,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "attn_implementation": "eager"},
    ),
}


@lru_cache
def tiny_model(architecture: str, sliding_window: int) -> Any:
    """Four layers, sliding and full in turn, seeded random weights, float32 on the CPU."""
    config_class, model_class, more = ARCHITECTURES[architecture]
    torch.manual_seed(11)
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=sliding_window,
        layer_types=["sliding_attention", "full_attention"] * 2,
        max_position_embeddings=1_024,
        initializer_range=0.2,  # so that tokens matter, and the best one stands out
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
        **more,
    )
    return model_class(config).eval()


@dataclass
class Run:
    """What came out: tokens by request, scores by (request, tokens before the sampled one), and totals."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    scores: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    computed_tokens: int = 0
    batches: int = 0


@contextmanager
def one_thread_of_torch() -> Iterator[None]:
    """Small tensors: more threads cost more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_batching(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int = 6,
    batch_tokens: int = 32,
    cancel: Mapping[str, int] | None = None,
    at_batch: Callable[[int], None] | None = None,
    **batching: Any,
) -> Run:
    """Serve the prompts as req_0, req_1, ... with the scheduler of `transformers`, greedily.

    `cancel`: request to how many tokens it gets before it is cancelled; `at_batch` is called with the number
    of each batch before its tokens are sampled. With the library's own cache the pool is large.
    """
    run = Run()
    leaving = dict(cancel or {})
    sample = ModelRunner._sample

    def recorded(runner: ModelRunner, scores: torch.Tensor, output_ids: torch.Tensor) -> None:
        batch: Any = runner.inputs_and_outputs
        run.batches += 1
        run.computed_tokens += batch.total_seqlen_q
        if at_batch is not None:
            at_batch(run.batches)
        asked = [future.state for future in batch.requests_in_batch if future.has_new_token]
        for row, state in enumerate(asked):
            run.scores[state.request_id, state.position_offset] = scores[0, row].clone()
            if state.generated_len() + 1 == leaving.get(state.request_id):
                manager.cancel_request(state.request_id)
        sample(runner, scores, output_ids)

    with pytest.MonkeyPatch.context() as patch, one_thread_of_torch():
        patch.setattr(ModelRunner, "_sample", recorded)
        # Otherwise it asks the machine, and some machines do not say.
        patch.setattr(their_cache.PagedAttentionMemoryHandler, "get_available_memory", lambda _: 1 << 32)
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(
                max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
            ),
            continuous_batching_config=ContinuousBatchingConfig(
                **{"page_size": 16, "num_blocks": 128, "max_batch_tokens": batch_tokens, **batching}
            ),
        )
        ids = manager.add_requests([list(prompt) for prompt in prompts], max_new_tokens=new_tokens)
        manager.start()
        expected = set(ids) - set(leaving)
        while expected and (manager.is_running() or not manager.output_router.output_queue.empty()):
            output = manager.get_result(timeout=1)
            if output is not None:
                run.tokens[output.request_id] = output.generated_tokens
                if output.error is not None:
                    run.errors[output.request_id] = output.error
                expected.discard(output.request_id)
        manager.stop(block=True)
    return run


def assert_same(shared: Run, alone: Run, *, except_for: Sequence[str] = ()) -> None:
    """The same tokens, chosen by the same scores; of cancelled requests, as far as both went."""
    assert not shared.errors
    assert not alone.errors
    for request, tokens in alone.tokens.items():
        if request not in except_for:
            assert shared.tokens[request] == tokens, request
    assert set(shared.scores) == set(alone.scores)
    for place, scores in alone.scores.items():
        assert worst(shared.scores[place], scores) <= TOLERANCE, place


def worst(these: torch.Tensor, those: torch.Tensor) -> float:
    """The largest difference; NaN counts as endless."""
    return float(torch.nan_to_num((these - those).abs(), nan=float("inf")).max())


def furthest(shared: Run, alone: Run) -> float:
    """The largest difference at any place that both runs have."""
    return max(
        worst(shared.scores[place], alone.scores[place]) for place in shared.scores.keys() & alone.scores
    )


def prompts_with_heads(
    *, heads: Sequence[int], tails: Sequence[int], copies: int, seed: int = 5
) -> list[list[int]]:
    """Prompts that share heads of these lengths, `copies` of each, with tails of these lengths in turn."""
    dice = np.random.default_rng(seed)

    def text(length: int) -> list[int]:
        return [int(token) for token in dice.integers(1, VOCABULARY, length)]

    starts = [text(length) for length in heads]
    made = [
        [*start, *text(tails[(number + copy) % len(tails)])]
        for copy in range(copies)
        for number, start in enumerate(starts)
    ]
    return made
