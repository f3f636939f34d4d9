"""A cache under a seeded load beside the replayed state of what it journaled, stopped again and again."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvledger.api.projection import Standing
from kvledger.api.schemas.common import At
from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import OutOfSlots
from kvledger.core.sinks import MemorySink
from kvledger.journal.replay import Fold

HEADS = 3
HEAD_TOKENS = 24
KINDS_OF_TOKENS = 6
"""So few that prompts part late and often."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The cache, the sink that it writes to, and its state as replay knows it, between two operations."""

    cache: HybridCache
    sink: MemorySink
    standing: Standing
    prompts: list[list[int]]


def standing_of(fold: Fold) -> Standing:
    """The state of a fold as an answer is given it."""
    at = At(asked=None, seq=fold.seq, transaction=fold.transaction, time_us=0, settled=False)
    return Standing(fold.state, at)


def live(
    *,
    seed: int,
    requests: int = 60,
    every: int = 4,
    page: int = 4,
    window: int = 8,
    full: int = 640,
    swa: int = 320,
) -> Iterator[Moment]:
    """Serve so many requests, and give the cache after every `every` of them, and at the end."""
    dice = random.Random(seed)
    sink = MemorySink()
    config = CacheConfig(page_size=page, sliding_window=window, full_tokens=full, swa_tokens=swa)
    cache = HybridCache(config, sink=sink)
    fold, folded = Fold(), 0
    running = []
    prompts: list[list[int]] = []
    raw = None
    for number in range(requests):
        head = dice.randrange(HEADS)
        prompt = [head] * HEAD_TOKENS + [
            dice.randrange(KINDS_OF_TOKENS) for _ in range(dice.randrange(1, 30))
        ]
        prompts.append(prompt)
        request = cache.open_request(f"r/{number}", np.array(prompt, np.int32), namespace=f"n{head % 2}")
        try:
            request.extend(len(prompt) - request.prefix_len)
        except OutOfSlots:
            request.abort()
        else:
            request.computed()
            request.commit()
            running.append(request)
        for other in running:
            try:
                other.append([dice.randrange(KINDS_OF_TOKENS)])
                other.extend(1)
            except OutOfSlots:
                continue
            other.computed()
            other.slide()
        if len(running) > 3:
            running.pop(dice.randrange(len(running))).finish()
        if raw is None and number % 7 == 3:
            try:
                raw = cache.alloc(page * 2)
            except OutOfSlots:
                raw = None
        elif raw is not None and number % 7 == 6:
            cache.free(raw)
            raw = None
        if number % every == every - 1 or number == requests - 1:
            for record in sink.transactions[folded:]:
                fold.apply_record(record)
            folded = len(sink.transactions)
            yield Moment(cache, sink, standing_of(fold), prompts)
