"""What the embedding can do and what it refuses, said before anything runs.

The scheduler has no hooks, so what is replaced in it depends on its inside: versions are pinned to those
that the tests run with. Whatever is refused leaves model and scheduler untouched.
"""

import copy
from typing import Any, NoReturn

from kvledger.tools.engine.library import UnsupportedSetup

MIN_PAGE_SIZE = 4
"""The scheduler's own bound."""

DEFAULT_BATCH_TOKENS = 2_048
"""Tokens in a batch where neither configuration nor SWA pool says less. Attention that needs masks gets two
of so many rows, with a column for each slot of the Full pool: a quarter of the scheduler's own default
keeps them small."""


def check_model(model: Any) -> None:
    """UnsupportedSetup for a model whose scheduler could not be given our cache."""
    if getattr(model, "_device_mesh", None) is not None:
        _refuse("a model spread over devices (tensor parallelism)")
    if not hasattr(type(model), "init_continuous_batching"):
        _refuse(f"a {type(model).__name__}: give the model itself, not what wraps it")


def check_attention(model: Any) -> None:
    """UnsupportedSetup for an attention that the scheduler does not know."""
    # Imported here because only tested versions are asked, and loading one takes seconds.
    from transformers.utils.generic import is_flash_attention_requested

    attention = model.config._attn_implementation
    if attention not in ("eager", "paged|eager", "sdpa") and not is_flash_attention_requested(
        requested_attention_implementation=attention
    ):
        _refuse(f"attn_implementation={attention!r}: the scheduler knows eager, sdpa and flash attention")


def check_page_size(page_size: object) -> None:
    """UnsupportedSetup for pages that the scheduler does not know."""
    if not isinstance(page_size, int) or page_size < MIN_PAGE_SIZE:
        _refuse(f"page_size={page_size!r}: the scheduler's pages have {MIN_PAGE_SIZE} tokens or more")


def check_swa_tokens(swa_tokens: int, *, page_size: int, window: int) -> None:
    """UnsupportedSetup for an SWA pool in which no request gets on."""
    if chunk_limit(page_size=page_size, window=window, swa_tokens=swa_tokens) < page_size:
        _refuse(f"swa_tokens={swa_tokens}: a window of {window} needs {swa_floor(page_size, window)} or more")


def chunk_limit(*, page_size: int, window: int, swa_tokens: int) -> int:
    """How many tokens of one request a batch may hold so that it fits when nothing else runs.

    Beside them stand the locked window before them and two pages that are begun.
    """
    return swa_tokens - -(-window // page_size) * page_size - 2 * page_size


def swa_floor(page_size: int, window: int) -> int:
    """The smallest SWA pool in which a request gets on, a page at a time."""
    return -(-window // page_size) * page_size + 3 * page_size


def plain_batching(batching: Any, model: Any) -> Any:
    """A copy of a ContinuousBatchingConfig in which what is not supported is off.

    What the caller left open is turned off; UnsupportedSetup for what was asked for.
    """
    graphs = batching.use_cuda_graph
    if batching.use_async_batching:
        _refuse("use_async_batching=True")
    if graphs is True or (isinstance(graphs, tuple) and any(graphs)):
        _refuse(f"use_cuda_graph={graphs}")
    if batching.max_blocks_per_request:
        _refuse(f"max_blocks_per_request={batching.max_blocks_per_request} (block tables for fast decoding)")
    if batching.cpu_offload_space is None or batching.cpu_offload_space > 0:
        _refuse(f"cpu_offload_space={batching.cpu_offload_space}")
    compiled = (batching.varlen_compile_config, batching.decode_compile_config)
    text = model.config.get_text_config()
    if batching.default_compile_level or any(compiled) or getattr(text, "compile_config", None):
        _refuse("compiled forward passes (their batches are padded)")
    if not batching.allow_block_sharing:
        _refuse("allow_block_sharing=False, which forbids what is asked for here")
    plain = copy.deepcopy(batching)
    plain.use_async_batching = False
    plain.use_cuda_graph = False
    plain.max_blocks_per_request = 0
    return plain


def check_generation(generation: Any) -> None:
    """UnsupportedSetup for several sequences a prompt: they fork requests."""
    sequences = getattr(generation, "num_return_sequences", None)
    if sequences is not None and sequences > 1:
        _refuse(f"num_return_sequences={sequences} (forked requests): submit the prompt as often as needed")


def _refuse(what: str) -> NoReturn:
    raise UnsupportedSetup(f"prefixes are not shared with {what}")
