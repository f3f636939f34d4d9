"""What stands where the model would be: something that fills the slots of a batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kvledger.core import HybridCache
from kvledger.core.config import KVLayout
from kvledger.tools.kv.synthetic import KVCodec, layer_codes, prefix_codes
from kvledger.tools.scheduler.job import Job


@dataclass(frozen=True, slots=True)
class Work:
    """One job's share of a forward: positions [start, end), for which it has slots."""

    job: Job
    start: int
    end: int
    publish: bool


class Forward(Protocol):
    """Computes KV for a batch and writes it into the pool."""

    def prepare(self, job: Job) -> None:
        """Called once before the job's first forward."""

    def run(self, batch: Sequence[Work]) -> None:
        """Write the KV of every position of the batch, in all layers."""

    def leave(self, job: Job) -> None:
        """Called once when the job will compute no more: it finished, was aborted or rejected."""


class NoForward:
    """Bookkeeping alone: for a cache without tensors."""

    def prepare(self, job: Job) -> None:
        """Nothing to prepare."""

    def run(self, batch: Sequence[Work]) -> None:
        """Nothing to write."""

    def leave(self, job: Job) -> None:
        """Nothing to let go of."""


class SyntheticForward:
    """Writes what each position's tokens call for; see `kvledger.tools.kv.synthetic`."""

    def __init__(self, cache: HybridCache, layout: KVLayout, codec: KVCodec) -> None:
        self._cache = cache
        self._codec = codec
        self._layers = layout.full_layers + layout.swa_layers

    def prepare(self, job: Job) -> None:
        """Hash all tokens the job will ever hold, once. O(tokens * layers), vectorised."""
        codes = prefix_codes(job.spec.namespace, job.tokens)
        job.codes = {layer: layer_codes(codes, layer) for layer in self._layers}

    def run(self, batch: Sequence[Work]) -> None:
        """One write per layer for the whole batch."""
        slots = np.concatenate([work.job.row[work.start : work.end] for work in batch])
        for layer in self._layers:
            codes = np.concatenate([work.job.codes[layer][work.start : work.end] for work in batch])
            k, v = self._codec.encode(codes)
            self._cache.pool.write(layer, slots, k, v)

    def leave(self, job: Job) -> None:
        """Its codes go with the job."""
