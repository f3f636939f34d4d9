"""What the configuration of a hybrid model says about its KV: kinds of layers, shape, window.

Reads configurations of `transformers` without loading it. A configuration with `sliding_window=n` attends to
a token itself and the n - 1 before it, so the cache's window of such a model is n - 1.
"""

from typing import Any, Literal, NoReturn, cast, get_args

from kvledger.core.config import KVLayout
from kvledger.tools.engine.library import UnsupportedSetup

FULL = "full_attention"
SLIDING = "sliding_attention"

DType = Literal["float16", "bfloat16", "float32", "float64"]


def layout_of(config: Any, *, dtype: str) -> KVLayout:
    """The layers of a text model and the shape of their KV.

    UnsupportedSetup for a model that does not mix full and sliding layers and nothing else, and for KV that
    the pools cannot hold.
    """
    kinds = tuple(getattr(config, "layer_types", None) or ())
    others = sorted(set(kinds) - {FULL, SLIDING})
    full = tuple(layer for layer, kind in enumerate(kinds) if kind == FULL)
    swa = tuple(layer for layer, kind in enumerate(kinds) if kind == SLIDING)
    window = getattr(config, "sliding_window", None)
    if others:
        _refuse(f"layers of the kinds {others}")
    if not full or not swa:
        _refuse(f"a model without both full and sliding layers (layer_types is {list(kinds)})")
    if not isinstance(window, int) or window < 2:
        _refuse(f"sliding_window={window!r}")
    if getattr(config, "num_kv_shared_layers", 0):
        _refuse("layers that use the KV of other layers")
    if dtype not in get_args(DType):
        _refuse(f"KV of dtype {dtype}")
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return KVLayout(
        full_layers=full, swa_layers=swa, kv_heads=heads, head_dim=head_dim, dtype=cast(DType, dtype)
    )


def layout_of_model(model: Any) -> KVLayout:
    """The layout of a model that is built, in the dtype of its weights."""
    return layout_of(model.config.get_text_config(), dtype=str(model.dtype).removeprefix("torch."))


def window_of(config: Any) -> int:
    """How many earlier tokens a sliding layer of a configuration attends to."""
    return int(config.sliding_window) - 1


def _refuse(what: str) -> NoReturn:
    raise UnsupportedSetup(f"not supported: {what}")
