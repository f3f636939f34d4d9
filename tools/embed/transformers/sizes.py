"""How large the pools are where the caller does not say: as many tokens as a budget of memory holds.

The budget is half of what is free on a CUDA device, and a fixed amount elsewhere. Out of it come the KV of
both pools and the scheduler's two attention masks, which have a column for each slot of the Full pool. The
SWA pool gets a quarter as many tokens as the Full pool, since requests keep little more than a window there.
"""

import torch

from kvledger.core import KVLayout
from kvledger.tools.embed.transformers.support import (
    DEFAULT_BATCH_TOKENS,
    check_page_size,
    check_swa_tokens,
    swa_floor,
)
from kvledger.tools.engine.library import UnsupportedSetup

HOST_BYTES = 256 * 2**20
"""The budget where the device does not say what is free: small beside any model that is worth serving."""

FULL_PER_SWA = 4


def pool_sizes(
    layout: KVLayout,
    *,
    device: torch.device,
    window: int,
    page_size: int,
    full_tokens: int | None,
    swa_tokens: int | None,
) -> tuple[int, int]:
    """Tokens of the Full and of the SWA pool: those asked for, and what follows for those left open.

    UnsupportedSetup for sizes with which no request gets on, and where the budget holds none.
    """
    check_page_size(page_size)
    for name, asked in (("full_tokens", full_tokens), ("swa_tokens", swa_tokens)):
        if asked is not None and not isinstance(asked, int):
            raise UnsupportedSetup(f"{name} is a number of tokens, not {asked!r}")
    floor = swa_floor(page_size, window)
    if full_tokens is None:
        if swa_tokens is None:
            return sizes_within(memory_budget(device), layout, window=window, page_size=page_size)
        full_tokens = FULL_PER_SWA * swa_tokens
    if swa_tokens is None:
        swa_tokens = max(floor, _swa_beside(full_tokens, page_size=page_size))
    check_swa_tokens(swa_tokens, page_size=page_size, window=window)
    return full_tokens, swa_tokens


def memory_budget(device: torch.device) -> int:
    """Bytes that the pools and what grows with them may take."""
    if device.type != "cuda":
        return HOST_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return free // 2


def sizes_within(budget: int, layout: KVLayout, *, window: int, page_size: int) -> tuple[int, int]:
    """The largest pools (Full, SWA), in tokens, that `budget` bytes hold. UnsupportedSetup for no request."""
    number = torch.finfo(getattr(torch, layout.dtype)).bits // 8
    token = 2 * layout.kv_heads * layout.head_dim * number
    full, swa = (len(layers) * token for layers in (layout.full_layers, layout.swa_layers))
    column = 2 * DEFAULT_BATCH_TOKENS * number
    left = budget - DEFAULT_BATCH_TOKENS * column  # a batch sees itself, whatever the pools hold
    floor = swa_floor(page_size, window)
    tokens = FULL_PER_SWA * left // (FULL_PER_SWA * (full + column) + swa)
    if tokens < FULL_PER_SWA * floor:
        tokens = (left - floor * swa) // (full + column)
    full_tokens = tokens // page_size * page_size
    if full_tokens < floor:
        raise UnsupportedSetup(
            f"{budget:,} bytes hold no pools for this model: say full_tokens and swa_tokens "
            f"({floor:,} or more of each)"
        )
    return full_tokens, max(floor, _swa_beside(full_tokens, page_size=page_size))


def _swa_beside(full_tokens: int, *, page_size: int) -> int:
    """Tokens of an SWA pool beside a Full pool of so many: whole pages, rounded down."""
    return full_tokens // FULL_PER_SWA // page_size * page_size
