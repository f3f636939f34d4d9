"""A cache under random use: rows that share heads, locked and unlocked, in pools that evict."""

import random

from kvledger.core import Lease
from tests.support.witness import open_cache


class Pressed:
    """Rows of up to `longest` new tokens, and at most three leases; what is evicted is the test's."""

    def __init__(self, seed: int, *, window: int, longest: int, eviction: str = "lru") -> None:
        self.dice = random.Random(seed)
        self.page = self.dice.choice((1, 2, 4))
        self.cache, self.sink = open_cache(
            page=self.page, window=window, full=800, swa=600, eviction=eviction
        )
        self.longest = longest
        self.rows: list[list[int]] = []
        self.leases: list[Lease] = []

    def row(self) -> list[int]:
        """Some of an earlier row, or nothing, and then something new; whole pages."""
        base = self.dice.choice(self.rows) if self.rows and self.dice.random() < 0.8 else []
        kept = self.dice.randrange(len(base) + 1)
        new = (self.dice.randrange(3) for _ in range(self.dice.randrange(1, self.longest)))
        row = [*base[:kept], *new]
        return [*row, *[7] * (-len(row) % self.page)]

    def lock(self) -> None:
        """Somebody reads a row, half of the time without its SWA."""
        if len(self.leases) < 3 and self.rows:
            self.leases.append(self.cache.acquire(self.row()))
            if self.dice.random() < 0.5:
                self.cache.release_swa(self.leases[-1])

    def unlock(self) -> None:
        """One of them is done."""
        if self.leases:
            self.cache.release(self.leases.pop(self.dice.randrange(len(self.leases))))
