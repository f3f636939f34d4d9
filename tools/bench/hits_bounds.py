"""How many prompt tokens could have been reused at all: what hit ratios are held against.

Two references that no cache reaches. *Unlimited*: nothing is ever evicted. *Oracle*: a Full pool of the given
size that knows all requests to come and lets go of the page that is needed last (Belady's rule); it evicts
page by page, and an SWA window is never missing. Neither shares code with the cache.

A page is named by a digest chained from the namespace on, so equal names mean equal prefixes. Where pages are
smaller than `UNIT_TOKENS`, whole units of so many tokens stand for them: what that misses is less than one
unit a request.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from kvledger.tools.workload import WorkRequest

UNIT_TOKENS = 64
"""Digests of single tokens would cost more than serving the requests does."""

DIGEST_BYTES = 16

NEVER = 2**62
"""Later than any request."""

Units = npt.NDArray[np.int64]
"""Numbers of the units of a row, in order; equal numbers in two rows mean equal prefixes."""


class Bounds(BaseModel):
    """Prompt tokens that could be reused, of `prompt_tokens` in all."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int
    unlimited_tokens: int
    oracle_tokens: int


class Row(BaseModel):
    """One request in units: `reusable` of them may be matched, `units` hold its prompt and output."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    units: Units
    reusable: int
    extra: int  # units of the last, partial page, which is never shared


def unit_tokens(page_size: int) -> int:
    """Tokens of the unit that stands for pages of this size: a multiple of it."""
    return page_size * -(-UNIT_TOKENS // page_size)


def rows_of(requests: Iterable[WorkRequest], *, page_size: int) -> list[Row]:
    """Name the units of every request. O(tokens)."""
    unit = unit_tokens(page_size)
    numbers: dict[bytes, int] = {}
    rows: list[Row] = []
    for request in requests:
        tokens = np.concatenate((request.prompt, request.output)).astype(np.int32, copy=False)
        whole = len(tokens) // unit
        data = memoryview(tokens.tobytes())
        size = unit * tokens.itemsize
        chain = blake2b(request.namespace.encode(), digest_size=DIGEST_BYTES).digest()
        found = np.empty(whole, dtype=np.int64)
        for index in range(whole):
            chain = blake2b(
                data[index * size : (index + 1) * size], digest_size=DIGEST_BYTES, key=chain
            ).digest()
            found[index] = numbers.setdefault(chain, len(numbers))
        rows.append(
            Row(
                units=found,
                reusable=max(0, len(request.prompt) - 1) // unit,
                extra=0 if len(tokens) == whole * unit else 1,
            )
        )
    return rows


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


def next_uses(rows: list[Row]) -> list[list[int]]:
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


def oracle(rows: list[Row], *, capacity: int, concurrency: int) -> int:
    """Units found in a pool of `capacity` units that knows the future. O(units * log(units)).

    A request keeps all its units while it runs; the oldest of `concurrency` ends before the next begins, and
    earlier where there is no room. One that does not fit alone is passed over.
    """
    uses = next_uses(rows)
    due: dict[int, int] = {}  # resident units: their next use
    running: dict[int, int] = {}  # resident units of running requests: of how many
    idle: list[tuple[int, int, int]] = []  # (-next use, -place, unit); entries of units in use are void
    active: deque[int] = deque()
    extra = hits = 0

    def end_oldest() -> None:
        nonlocal extra
        oldest = active.popleft()
        extra -= rows[oldest].extra
        for place, number in enumerate(rows[oldest].units.tolist()):
            running[number] -= 1
            if not running[number]:
                del running[number]
                heapq.heappush(idle, (-due[number], -place, number))

    def evict() -> bool:
        while idle:
            use, _, number = heapq.heappop(idle)
            if number not in running and due.get(number) == -use:
                del due[number]
                return True
        return False

    for index, row in enumerate(rows):
        while len(active) >= concurrency:
            end_oldest()
        numbers = row.units.tolist()
        if len(numbers) + row.extra > capacity:
            continue
        found = 0
        while found < row.reusable and numbers[found] in due:
            found += 1
        # What will be read is in use already; what lies past the match may still be there to be taken over.
        missing = row.extra
        for number in numbers:
            if number in due:
                running[number] = running.get(number, 0) + 1
            else:
                missing += 1
        while len(due) + extra + missing > capacity:
            if not evict():
                end_oldest()
        hits += found
        extra += row.extra
        for number, use in zip(numbers, uses[index], strict=True):
            if number not in due:
                running[number] = 1
            due[number] = use
        active.append(index)
    return hits


def bounds(requests: list[WorkRequest], *, page_size: int, full_tokens: int, concurrency: int) -> Bounds:
    """Both references for one workload. Cost: about a second for a million tokens of different pages."""
    unit = unit_tokens(page_size)
    rows = rows_of(requests, page_size=page_size)
    return Bounds(
        prompt_tokens=sum(len(request.prompt) for request in requests),
        unlimited_tokens=unlimited(rows) * unit,
        oracle_tokens=oracle(rows, capacity=full_tokens // unit, concurrency=concurrency) * unit,
    )
