"""How many prompt tokens could have been reused at all: what hit ratios are held against.

Two references that no cache reaches. *Unlimited*: nothing is ever evicted. *Oracle*: a Full pool of the given
size that knows all requests to come and lets go of the page that is needed last (Belady's rule), on the terms
of `hits_pool`. Neither shares code with the cache.
"""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict

from kvledger.tools.bench.hits_pool import RankedOrder, served
from kvledger.tools.bench.hits_rows import Row, unit_tokens

NEVER = 2**62
"""Later than any request."""


class Bounds(BaseModel):
    """Prompt tokens that could be reused, of `prompt_tokens` in all."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int
    unlimited_tokens: int
    oracle_tokens: int


def unlimited(rows: Iterable[Row]) -> int:
    """Units found in a cache without limits: those that an earlier row has already. O(units)."""
    seen: set[int] = set()
    hits = 0
    for row in rows:
        for number in row.units[: row.reusable].tolist():
            if number not in seen:
                break
            hits += 1
        seen.update(row.units.tolist())
    return hits


def next_uses(rows: Sequence[Row]) -> list[list[int]]:
    """For each unit of each row the next request that may reuse it, NEVER for none. O(units)."""
    upcoming: dict[int, int] = {}
    found: list[list[int]] = [[] for _ in rows]
    for index in range(len(rows) - 1, -1, -1):
        row = rows[index]
        numbers = row.units.tolist()
        found[index] = [upcoming.get(number, NEVER) for number in numbers]
        for number in numbers[: row.reusable]:
            upcoming[number] = index
    return found


class Belady(RankedOrder):
    """The unit that is needed last goes next."""

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._uses = next_uses(rows)

    def use(self, request: int, units: Sequence[int]) -> None:
        """Rank the row by the next uses of its units."""
        for unit, use in zip(units, self._uses[request], strict=True):
            self.ranks[unit] = -use


def oracle(rows: Sequence[Row], *, capacity: int, concurrency: int) -> int:
    """Units found in a pool of `capacity` units that knows the future. O(units * log(units))."""
    return served(rows, capacity=capacity, concurrency=concurrency, order=Belady(rows))


def bounds(rows: Sequence[Row], *, page_size: int, full_tokens: int, concurrency: int) -> Bounds:
    """Both references for one workload, in rows of `page_size`. Cost: some seconds for a million units."""
    unit = unit_tokens(page_size)
    return Bounds(
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        unlimited_tokens=unlimited(rows) * unit,
        oracle_tokens=oracle(rows, capacity=full_tokens // unit, concurrency=concurrency) * unit,
    )
