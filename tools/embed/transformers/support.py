"""What the embedding can do and what it refuses, said before anything runs.

The scheduler has no hooks, so what is replaced in it depends on its inside: versions are pinned to those
that the tests run with. Whatever is refused leaves model and scheduler untouched.
"""

import copy
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from kvledger.core import KVLayout
from kvledger.core.errors import InvalidArgument

TESTED_VERSIONS = "5.24.x"
_TESTED = ("5", "24")

MIN_PAGE_SIZE = 4
"""The scheduler's own bound."""

FULL = "full_attention"
SLIDING = "sliding_attention"

DEFAULT_BATCH_TOKENS = 2_048
"""Tokens in a batch where neither configuration nor SWA pool says less. Attention that needs masks gets two
of so many rows, with a column for each slot of the Full pool: a quarter of the scheduler's own default
keeps them small."""


class UnsupportedSetup(InvalidArgument):
    """A version, model or configuration that prefixes are not shared with; nothing was changed."""


def check_version() -> None:
    """UnsupportedSetup unless `transformers` is there, in a tested version."""
    try:
        installed = version("transformers")
    except PackageNotFoundError:
        raise UnsupportedSetup(
            f"transformers is not installed: pip install 'kvledger[engine]' brings {TESTED_VERSIONS}"
        ) from None
    if tuple(installed.split(".")[:2]) != _TESTED:
        raise UnsupportedSetup(
            f"transformers {installed} is installed, and what is replaced in its scheduler was tested with "
            f"{TESTED_VERSIONS} only: install such a version"
        )


def layout_of(model: Any) -> KVLayout:
    """The layers of a model and the shape of their KV; UnsupportedSetup for a model that is not hybrid."""
    config = model.config.get_text_config()
    types = getattr(config, "layer_types", None) or ()
    unknown = sorted(set(types) - {FULL, SLIDING})
    full = tuple(layer for layer, kind in enumerate(types) if kind == FULL)
    swa = tuple(layer for layer, kind in enumerate(types) if kind == SLIDING)
    window = getattr(config, "sliding_window", None)
    dtype = str(model.dtype).removeprefix("torch.")
    if unknown:
        _refuse(f"layers of the kinds {unknown}")
    if not full or not swa:
        _refuse(f"a model without both full and sliding layers (layer_types is {list(types)})")
    if not isinstance(window, int) or window < 2:
        _refuse(f"sliding_window={window!r}")
    if getattr(config, "num_kv_shared_layers", 0):
        _refuse("layers that use the KV of other layers")
    if getattr(model, "_device_mesh", None) is not None:
        _refuse("a model spread over devices (tensor parallelism)")
    if not hasattr(type(model), "init_continuous_batching"):
        _refuse(f"a {type(model).__name__}: give the model itself, not what wraps it")
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        _refuse(f"KV of dtype {dtype}")
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return KVLayout(full_layers=full, swa_layers=swa, kv_heads=heads, head_dim=head_dim, dtype=dtype)


def check_sizes(*, page_size: int, window: int, swa_tokens: int) -> None:
    """UnsupportedSetup for pages the scheduler does not know, or an SWA pool in which no request gets on."""
    if page_size < MIN_PAGE_SIZE:
        _refuse(f"page_size={page_size}: the scheduler's pages have {MIN_PAGE_SIZE} tokens or more")
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
