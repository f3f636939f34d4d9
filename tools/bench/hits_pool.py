"""A pool of units that serves rows in any order of eviction: the terms on which orders are compared.

A request keeps all its units while it runs; the oldest ends before the next begins, and earlier where there
is no room. One that does not fit alone is passed over. Units are evicted one by one, the deepest of a row
first where the order has no other reason; what lies past a gap is no match, but is taken over by a row that
computes it anew. An SWA window is never missing.
"""

import heapq
from abc import abstractmethod
from collections import deque
from collections.abc import Container, Sequence
from typing import Any, Protocol

from kvledger.tools.bench.hits_rows import Row


class Order(Protocol):
    """Which unit goes next. Knows what is resident; the pool tells it which units run."""

    def use(self, request: int, units: Sequence[int]) -> None:
        """Row number `request` is admitted: its units, in order, resident already or from now on."""

    def rest(self, units: Sequence[tuple[int, int]]) -> None:
        """Nobody runs these units any more: (place in the row, unit), places rising."""

    def victim(self, running: Container[int]) -> int | None:
        """Let go of one unit that does not run and return it; None where all run."""


class RankedOrder(Order):
    """An order in which the unit of the lowest rank goes next, of equal ones the deepest. O(log) a unit."""

    def __init__(self) -> None:
        self.ranks: dict[int, Any] = {}  # of resident units
        self._idle: list[tuple[Any, int, int]] = []  # (rank, -place, unit); entries of other ranks are void

    @abstractmethod
    def use(self, request: int, units: Sequence[int]) -> None:
        """Give each unit of the row its rank."""

    def rest(self, units: Sequence[tuple[int, int]]) -> None:
        """Enter the units into the queue."""
        for place, unit in units:
            heapq.heappush(self._idle, (self.ranks[unit], -place, unit))

    def victim(self, running: Container[int]) -> int | None:
        """The unit of the lowest rank."""
        while self._idle:
            rank, _, unit = heapq.heappop(self._idle)
            if unit not in running and self.ranks.get(unit) == rank:
                del self.ranks[unit]
                return unit
        return None


def served(rows: Sequence[Row], *, capacity: int, concurrency: int, order: Order) -> int:
    """Units found by the rows in a pool of `capacity` units. O(units * cost of the order)."""
    resident: set[int] = set()
    running: dict[int, int] = {}  # resident units of running requests: of how many
    active: deque[int] = deque()
    extra = hits = 0

    def end_oldest() -> None:
        nonlocal extra
        oldest = rows[active.popleft()]
        extra -= oldest.extra
        at_rest = []
        for place, unit in enumerate(oldest.units.tolist()):
            running[unit] -= 1
            if not running[unit]:
                del running[unit]
                at_rest.append((place, unit))
        order.rest(at_rest)

    for number, row in enumerate(rows):
        while len(active) >= concurrency:
            end_oldest()
        units = row.units.tolist()
        if len(units) + row.extra > capacity:
            continue
        found = 0
        while found < row.reusable and units[found] in resident:
            found += 1
        missing = row.extra
        for unit in units:
            if unit in resident:
                running[unit] = running.get(unit, 0) + 1
            else:
                missing += 1
        while len(resident) + extra + missing > capacity:
            gone = order.victim(running)
            if gone is None:
                end_oldest()
            else:
                resident.remove(gone)
        hits += found
        extra += row.extra
        for unit in units:
            if unit not in resident:
                resident.add(unit)
                running[unit] = 1
        order.use(number, units)
        active.append(number)
    return hits
