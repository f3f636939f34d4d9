"""Where token ids come from: one seeded source of text that never says the same thing twice by chance."""

import numpy as np

from kvledger.tools.workload.spec import Tokens

VOCABULARY = 50_000
"""Size of a usual tokenizer; large enough that two random texts part at their first page."""


class TextSource:
    """Random text and random choices from one generator, so that the seed alone decides a workload."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.Generator(np.random.PCG64(seed))

    def text(self, length: int) -> Tokens:
        """`length` fresh tokens, int32[length]."""
        return self._random.integers(0, VOCABULARY, size=length, dtype=np.int32)

    def between(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return int(self._random.integers(low, high + 1))

    def chance(self, probability: float) -> bool:
        """True with `probability`."""
        return bool(self._random.random() < probability)

    def gap_ms(self, mean_ms: float) -> int:
        """Time to the next arrival of a Poisson process, whole milliseconds."""
        return int(self._random.exponential(mean_ms))

    def choose(self, weights: list[float]) -> int:
        """Index drawn in proportion to `weights`."""
        total = sum(weights)
        return int(self._random.choice(len(weights), p=[weight / total for weight in weights]))
