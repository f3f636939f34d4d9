"""The reference scheduler's forward pass, done by a real model.

A step's batch is cut into groups of equal length, each one call of the model: all decoding requests together,
and chunks of prompts by their length. Generated tokens are those that the workload names, whatever the
logits say, so that two runs compare position by position. What is sampled is logits; `LogitsCheck` gets them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.errors import InvalidArgument
from kvledger.tools.engine.hybrid import layout_of_model, window_of
from kvledger.tools.engine.logits import LogitsCheck
from kvledger.tools.engine.paged import PagedCache
from kvledger.tools.scheduler.forward import Work
from kvledger.tools.scheduler.job import Job


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A model, and the configuration of a cache that keeps what it reads; `fit` makes it."""

    model: Any
    config: CacheConfig
    layout: KVLayout
    window: int


def fit(model: Any, config: CacheConfig) -> FittedModel:
    """Hold a configuration to a model, once, before anything is built or recorded for it.

    InvalidArgument for a cache for KV of another shape, or one that lets go of tokens which the model still
    reads.
    """
    layout = layout_of_model(model)
    if config.layout != layout:
        raise InvalidArgument(f"the model's KV is {layout!r}, the cache's {config.layout!r}")
    window = window_of(model.config.get_text_config())
    if config.sliding_window < window:
        raise InvalidArgument(
            f"the model attends to {window} earlier tokens (sliding_window - 1), the cache keeps "
            f"{config.sliding_window}"
        )
    return FittedModel(model, config, layout, window)


class ModelForward:
    """Runs a causal model of transformers over the pools of a cache that was built for it.

    With `poison` (the default) no slot that belongs to nobody holds a number, and neither does the rest of a
    page that a request has begun. `check` hears the logits of every sampled position. InvalidArgument for a
    model that was fitted to another configuration than the cache's.
    """

    def __init__(
        self, cache: HybridCache, fitted: FittedModel, *, check: LogitsCheck | None, poison: bool = True
    ) -> None:
        if cache.config != fitted.config:
            raise InvalidArgument("the model was fitted to another configuration than this cache's")
        self._cache = cache
        self._model = fitted.model
        self._dtype: torch.dtype = fitted.model.dtype
        self._layout = fitted.layout
        self._window = fitted.window
        self._check = check
        self._poison = poison
        if poison:
            cache.pool.poison()

    def prepare(self, job: Job) -> None:
        """Nothing to prepare."""

    def run(self, batch: Sequence[Work]) -> None:
        """Compute the batch, one call of the model for all requests that have equally many tokens in it."""
        if self._poison:
            self._poison_rests(batch)
        groups: dict[int, list[Work]] = {}
        for work in batch:
            groups.setdefault(work.end - work.start, []).append(work)
        with torch.inference_mode():
            for group in groups.values():
                self._compute(group)

    def leave(self, job: Job) -> None:
        """Compare its logits, now that there will be no more of them."""
        if self._check is not None:
            self._check.settle(job.name)

    def _compute(self, group: Sequence[Work]) -> None:
        pool = self._cache.pool
        paged = PagedCache(pool, group, window=self._window, dtype=self._dtype)
        tokens = np.stack([work.job.tokens[work.start : work.end] for work in group])
        logits = self._model(
            input_ids=pool.to_device(tokens.astype(np.int64)),
            position_ids=paged.positions,
            attention_mask=paged.masks,
            cache=paged,
            logits_to_keep=1,
        ).logits
        if self._check is None:
            return
        for work, last in zip(group, logits[:, -1], strict=True):
            if work.end == work.job.known:
                self._check.sampled(work.job.name, work.job.tokens[: work.end], last)

    def _poison_rests(self, batch: Sequence[Work]) -> None:
        """NaN into what is left of each page that was begun and not filled.

        The pools do so for pages that come out of a free set. A page that was evicted and handed out again in
        one transaction was never free, and still holds what it held.
        """
        page = self._cache.config.page_size
        rests = [
            np.arange(last + 1, last - last % page + page)
            for work in batch
            if work.end % page and work.end - work.end % page >= work.start
            for last in (int(work.job.row[work.end - 1]),)
        ]
        if not rests:
            return
        slots = np.concatenate(rests)
        shape = (len(slots), self._layout.kv_heads, self._layout.head_dim)
        nothing = torch.full(shape, float("nan"), dtype=self._dtype, device=self._cache.pool.device)
        for layer in self._layout.full_layers + self._layout.swa_layers:
            self._cache.pool.write(layer, slots, nothing, nothing)
