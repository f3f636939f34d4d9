"""Orders of eviction that the cache does not have, and two that it has, on the terms of the oracle.

All of this is simulated: no tree, no windows, a pool short of Full pages alone (`hits_pool`). It answers
which order would find how much if nothing else counted. So compare these figures with each other, not with
those of a cache, which also has windows to keep.

*LRU*: by the last request that had the unit. *LRU-2*: by the last but one (O'Neil, O'Neil and Weikum, 1993);
units that only one had go first. *S3-FIFO* (Yang and others, SOSP 2023): a new unit enters a small queue of a
tenth of the pool. At its end it goes on into the main queue if it was asked for `PROMOTED_AT` times since;
else it is evicted, and only its name is kept, among as many as the main queue has places. What is named when
it comes back enters the main queue at once. At the end of that a unit goes round again, once for each time
that it was asked for, three at most.

How much is remembered of what was evicted counts as much as the order does, so both are tried with the names
of one pool, as S3-FIFO is defined, and of eight, as the cache's own LRU-2 has them.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Container, Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from kvledger.tools.bench.hits_pool import Order, RankedOrder, served
from kvledger.tools.bench.hits_rows import Row, unit_tokens

HISTORY_POOLS: Final = 8
"""Pools of units that are remembered, as in the cache's own history; in the names of orders it is "long"."""

SMALL_SHARE: Final = 10
"""The small queue is one part in so many of the pool."""

PROMOTED_AT: Final = 2
"""Uses, after the first, that lead from the small queue into the main one."""

MOST_COUNTED: Final = 3
"""Two bits."""

NEVER_BEFORE: Final = -1


class SimulatedFigure(BaseModel):
    """What one simulated order finds, over all prompt tokens and over the references."""

    model_config = ConfigDict(frozen=True)

    order: str
    hit_tokens: int
    hit_ratio: float
    share_of_oracle: float
    share_of_unlimited: float


class Lru(RankedOrder):
    """The unit that was used longest ago goes next."""

    def use(self, request: int, units: Sequence[int]) -> None:
        """Rank the row as the newest."""
        for unit in units:
            self.ranks[unit] = request


class Lru2(RankedOrder):
    """The unit whose last use but one is longest ago goes next; first those that have none, oldest first.

    `names`: how many units have their last use remembered, resident or not.
    """

    def __init__(self, names: int) -> None:
        super().__init__()
        self._history: OrderedDict[int, int] = OrderedDict()  # the last use of each unit, oldest first
        self._most = names

    def use(self, request: int, units: Sequence[int]) -> None:
        """Rank the row by the uses before this one."""
        history = self._history
        for unit in units:
            self.ranks[unit] = (history.pop(unit, NEVER_BEFORE), request)
            history[unit] = request
        while len(history) > self._most:
            history.popitem(last=False)


class S3Fifo(Order):
    """Two queues and a list of names. A unit that runs is passed over and keeps its place at the old end.

    `names`: how many are kept, None for as many as the main queue has places.
    """

    def __init__(self, capacity: int, *, names: int | None = None) -> None:
        self._small_most = max(1, capacity // SMALL_SHARE)
        self._names_most = max(1, capacity - self._small_most) if names is None else names
        self._small: deque[int] = deque()  # the oldest is on the left
        self._main: deque[int] = deque()
        self._aside: dict[int, deque[int]] = {}  # running units that were passed over, and their queues
        self._small_units: set[int] = set()
        self._asked: dict[int, int] = {}  # of resident units: uses since they entered, MOST_COUNTED at most
        self._names: OrderedDict[int, None] = OrderedDict()  # the oldest first

    def use(self, request: int, units: Sequence[int]) -> None:
        """Count the uses of what is resident; the rest enters, the deepest first."""
        for unit in reversed(units):
            if unit in self._asked:
                self._asked[unit] = min(self._asked[unit] + 1, MOST_COUNTED)
                continue
            self._asked[unit] = 0
            if unit in self._names:
                del self._names[unit]
                self._main.append(unit)
            else:
                self._small.append(unit)
                self._small_units.add(unit)

    def rest(self, units: Sequence[tuple[int, int]]) -> None:
        """Put those that were passed over back, the deepest to the end."""
        for _, unit in units:
            queue = self._aside.pop(unit, None)
            if queue is not None:
                queue.appendleft(unit)

    def victim(self, running: Container[int]) -> int | None:
        """From the small queue while it has its tenth, else the main one; from the other where all run."""
        while True:
            if len(self._small_units) >= self._small_most:
                queues = (self._small, self._main)
            else:
                queues = (self._main, self._small)
            queue = next((queue for queue in queues if self._skip(queue, running)), None)
            if queue is None:
                return None
            unit = queue.popleft()
            if self._stays(unit):
                continue
            del self._asked[unit]
            return unit

    def _skip(self, queue: deque[int], running: Container[int]) -> bool:
        """Set those that run aside, and say if anything else is in the queue."""
        while queue and queue[0] in running:
            unit = queue.popleft()
            self._aside[unit] = queue
        return bool(queue)

    def _stays(self, unit: int) -> bool:
        """Whether a unit at the end of its queue enters the main one, again or for the first time."""
        asked = self._asked[unit]
        if unit not in self._small_units:
            if asked:
                self._asked[unit] = asked - 1
                self._main.append(unit)
            return asked > 0
        self._small_units.remove(unit)
        if asked >= PROMOTED_AT:
            self._asked[unit] = 0
            self._main.append(unit)
            return True
        self._names[unit] = None
        if len(self._names) > self._names_most:
            self._names.popitem(last=False)
        return False


ORDERS: dict[str, Callable[[int], Order]] = {
    "lru": lambda capacity: Lru(),
    "lru-2": lambda capacity: Lru2(capacity),
    "s3-fifo": lambda capacity: S3Fifo(capacity),
    "lru-2, long": lambda capacity: Lru2(HISTORY_POOLS * capacity),
    "s3-fifo, long": lambda capacity: S3Fifo(capacity, names=HISTORY_POOLS * capacity),
}
"""The orders, each made for a pool of so many units."""


def simulated(rows: Sequence[Row], name: str, *, page_size: int, full_tokens: int, concurrency: int) -> int:
    """Prompt tokens found in the order of that name, in a Full pool. Cost: about that of the oracle."""
    unit = unit_tokens(page_size)
    capacity = full_tokens // unit
    return served(rows, capacity=capacity, concurrency=concurrency, order=ORDERS[name](capacity)) * unit
