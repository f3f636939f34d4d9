"""What one seed is about: the sizes and policies of cache, journal and store, and what prompts look like.

All of it follows from the seed alone. Pools are a few pages, so that there is never enough room.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from kvledger.core import CacheConfig
from kvledger.tools.torture.sim.dice import Dice

Tokens = tuple[int, ...]

PAGE_SIZES = (1, 1, 2, 2, 4, 4, 8, 16, 64)
PAGE_SIZES_WITH_HISTORY = (1, 2, 4, 4, 64, 256)
"""Of "lru-2", which remembers prefixes of whole 512 tokens: prompts of a few pages should have some."""

NAMESPACES = ("", "", "", "x", "tenant-b")
MOST_HEAD_PAGES = 8


@dataclass(frozen=True)
class Setting:
    """One seed's world. Sizes of pools are pages, `window` is tokens, limits of the queue are events."""

    seed: int
    page: int
    window: int
    full_pages: int
    swa_pages: int
    locked_recovery: Literal["remap", "skip"]
    eviction: Literal["lru", "lru-2"]
    memory: Literal["own", "foreign", "foreign at once"]
    tokens: Literal["full", "hash", "none"]
    durability: Literal["background", "step", "commit"]
    on_failure: Literal["halt", "degrade"]
    queue_limit: int
    batch_events: int
    checkpoint_every: int
    walk_every: int
    calm: bool
    """Whether no fault at all is injected."""
    heads: tuple[Tokens, ...]

    @classmethod
    def drawn(cls, seed: int) -> "Setting":
        """The setting of a seed."""
        dice = Dice(seed, 1)
        orders: tuple[Literal["lru", "lru-2"], ...] = ("lru", "lru", "lru-2")
        eviction = dice.choose(orders)
        page = dice.choose(PAGE_SIZES if eviction == "lru" else PAGE_SIZES_WITH_HISTORY)
        windows = (1, max(1, page - 1), page, page + 1, 2 * page, 3 * page - 1 if page > 1 else 4, 40 * page)
        full = 3 + dice.below(10) if dice.one_in(3) else 8 + dice.below(40)
        most = min(MOST_HEAD_PAGES, full)
        return cls(
            seed=seed,
            page=page,
            window=windows[min(dice.below(20), dice.below(7))],
            full_pages=full,
            swa_pages=max(2, full // 3) + dice.below(full),
            locked_recovery=dice.choose(("remap", "remap", "skip")),
            eviction=eviction,
            memory=dice.choose(("own", "own", "foreign", "foreign at once")),
            tokens=dice.choose(("full", "full", "hash", "none")),
            durability=dice.choose((*("background", "step") * 5, "commit")),
            on_failure=dice.choose(("halt", "degrade")),
            queue_limit=dice.choose((16, 128, 512, 4096, 4096)),
            batch_events=dice.choose((8, 32, 128, 512, 4096, 4096)),
            checkpoint_every=dice.choose((0, 25, 200, 1000)),
            walk_every=25,
            calm=dice.one_in(6),
            heads=tuple(_head(dice, page, 1 + dice.below(most)) for _ in range(1 + dice.below(3))),
        )

    @property
    def config(self) -> CacheConfig:
        """The cache's configuration."""
        return CacheConfig(
            page_size=self.page,
            sliding_window=self.window,
            full_tokens=self.full_pages * self.page,
            swa_tokens=self.swa_pages * self.page,
            locked_recovery=self.locked_recovery,
            eviction=self.eviction,
        )

    @property
    def recording(self) -> dict[str, Any]:
        """How the journal is recorded: arguments of `Journal.record`."""
        return {
            "durability": self.durability,
            "tokens": self.tokens,
            "key": b"sixteen bytes or more" if self.tokens == "hash" else None,
            "queue_limit": self.queue_limit,
            "on_failure": self.on_failure,
            "checkpoint_every": self.checkpoint_every,
        }

    def prompt(self, dice: Dice) -> tuple[str, Tokens]:
        """A namespace and some tokens: mostly some of a head that others have too, then something of its own.

        Now and then shorter than a page, or longer than the pool.
        """
        namespace = dice.choose(NAMESPACES)
        head = dice.choose(self.heads)
        pages = dice.below(len(head) // self.page + 1)
        row = list(head[: pages * self.page])
        more = dice.choose((0, 1, 1, 2, 3, 5))
        if dice.one_in(40):
            more = self.full_pages + 1
        for _ in range(more):
            row += page_of(dice.below(3), self.page)
        row += [9] * (dice.below(3) * (self.page - 1) // 2)
        return namespace, tuple(row) or (7,)

    def told(self) -> str:
        """The setting in a few words."""
        parts = [
            f"page {self.page}, window {self.window}, {self.full_pages} Full and {self.swa_pages} SWA pages",
            f"{self.eviction}, {self.locked_recovery}, memory {self.memory}, tokens {self.tokens}",
            f"durability {self.durability}, {self.on_failure}, queue {self.queue_limit}, "
            f"batches {self.batch_events}, checkpoints {self.checkpoint_every or 'off'}",
        ]
        return "; ".join(parts)


def in_runs(tokens: Iterable[int]) -> str:
    """Tokens to be read: `0*16 2` for sixteen zeros and a two."""
    runs = ((token, sum(1 for _ in run)) for token, run in groupby(tokens))
    return "[" + " ".join(f"{token}*{times}" if times > 1 else str(token) for token, times in runs) + "]"


def page_of(kind: int, page: int) -> Tokens:
    """A page of one of three kinds, the third unlike the second in its last token only."""
    return (*[min(kind, 1)] * (page - 1), kind)


def _head(dice: Dice, page: int, pages: int) -> Tokens:
    return tuple(token for _ in range(pages) for token in page_of(dice.below(3), page))
