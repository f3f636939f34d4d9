"""What fingerprints add to a lock and its release: a ratio, and microseconds for each page.

The same cache is built twice, with the setting off and on, and both are measured in turns, so that what else
the machine does meets both. On a device the clock is the wall's and runs until the sums are back; on a
processor it is the thread's CPU time, with one thread for torch as in `kvledger run`.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.sinks import MemorySink
from kvledger.tools.bench.environment import Environment, environment
from kvledger.tools.progress import Progress
from kvledger.tools.run.runner import one_torch_thread
from kvledger.tools.workload.spec import Tokens

PAGE_SIZES = (16, 64)
LENGTHS = (512, 2_048)
WINDOW = 512
VOCABULARY = 128_000
WARM_UP = 3

LAYOUT = KVLayout(
    full_layers=(1, 3, 5, 7), swa_layers=(0, 2, 4, 6), kv_heads=4, head_dim=64, dtype="bfloat16"
)
"""A small model's: 4 KiB a token in each pool."""


class FingerprintFigure(BaseModel):
    """An `acquire` and its `release`, of `pages` pages: medians, and what the setting adds for each page.

    Each page is read twice, when it is locked and when it is unlocked: its `page_bytes` are those of both
    pools. `bytes_per_us` is what was read over what was added.
    """

    model_config = ConfigDict(frozen=True)

    page_size: int
    tokens: int
    pages: int
    page_bytes: int
    off_us: float
    on_us: float
    ratio: float
    added_us_per_page: float
    bytes_per_us: float


class FingerprintReport(BaseModel):
    """All figures of one `kvledger bench fingerprints`."""

    model_config = ConfigDict(frozen=True)

    environment: Environment
    device: str
    layout: KVLayout
    repeats: int
    seed: int
    figures: list[FingerprintFigure]


def bench_fingerprints(
    *, repeats: int, seed: int, device: str = "cpu", progress: Progress | None = None
) -> FingerprintReport:
    """Measure every page size and length. InvalidArgument for a device that cannot be used.

    `progress` hears how many figures there are so far.
    """
    figures: list[FingerprintFigure] = []
    cases = [(page, tokens) for page in PAGE_SIZES for tokens in LENGTHS]
    with one_torch_thread():
        for page_size, tokens in cases:
            figures.append(_measure(page_size, tokens, repeats=repeats, seed=seed, device=device))
            if progress is not None:
                progress("figures", len(figures), len(cases))
    return FingerprintReport(
        environment=environment(),
        device=device,
        layout=LAYOUT,
        repeats=repeats,
        seed=seed,
        figures=figures,
    )


def _measure(page_size: int, tokens: int, *, repeats: int, seed: int, device: str) -> FingerprintFigure:
    random = np.random.Generator(np.random.PCG64(seed))
    prompt = random.integers(0, VOCABULARY, size=tokens, dtype=np.int32)
    caches = [_filled(page_size, prompt, device=device, fingerprints=on) for on in (False, True)]
    clock = time.thread_time_ns if torch.device(device).type == "cpu" else time.perf_counter_ns
    spent = np.empty((2, repeats))
    for number in range(-WARM_UP, repeats):
        for row, cache in enumerate(caches):
            took = _lock_and_release(cache, prompt, clock)
            if number >= 0:
                spent[row, number] = took / 1e3
    off, on = np.median(spent, axis=1).tolist()
    pages = tokens // page_size
    element = torch.empty(0, dtype=getattr(torch, LAYOUT.dtype)).element_size()
    token_bytes = 2 * LAYOUT.kv_heads * LAYOUT.head_dim * element
    full, swa = (token_bytes * len(layers) for layers in (LAYOUT.full_layers, LAYOUT.swa_layers))
    added = max(on - off, 0.001)
    return FingerprintFigure(
        page_size=page_size,
        tokens=tokens,
        pages=pages,
        page_bytes=page_size * (full + swa),
        off_us=round(off, 1),
        on_us=round(on, 1),
        ratio=round(on / off, 2),
        added_us_per_page=round(added / pages, 2),
        bytes_per_us=round(2 * tokens * (full + swa) / added, 1),
    )


def _filled(page_size: int, prompt: Tokens, *, device: str, fingerprints: bool) -> HybridCache:
    """A cache that holds the prompt, live from its first token on."""
    config = CacheConfig(
        page_size=page_size,
        sliding_window=WINDOW,
        full_tokens=len(prompt),
        swa_tokens=len(prompt),
        device=device,
        layout=LAYOUT,
        fingerprints=fingerprints,
    )
    cache = HybridCache(config, sink=MemorySink())
    for tensors in (cache.pool.k, cache.pool.v):
        for tensor in tensors.values():
            tensor.normal_()
    cache.insert(prompt, cache.alloc(len(prompt)))
    return cache


def _lock_and_release(cache: HybridCache, prompt: Tokens, clock: Callable[[], int]) -> int:
    started = clock()
    cache.release(cache.acquire(prompt))
    return clock() - started
