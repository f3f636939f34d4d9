"""Requests as rows of units: what oracle and simulated orders of eviction serve in place of a cache.

A unit is a page, named by a digest chained from the namespace on, so equal names mean equal prefixes. Where
pages are smaller than `UNIT_TOKENS`, whole units of so many tokens stand for them: what that misses is less
than one unit a request.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from kvledger.tools.workload import WorkRequest

UNIT_TOKENS = 64
"""Digests of single tokens would cost more than serving the requests does."""

DIGEST_BYTES = 16

Units = npt.NDArray[np.int64]
"""Numbers of the units of a row, in order; equal numbers in two rows mean equal prefixes."""


class Row(BaseModel):
    """One request in units, which hold its prompt and output; the first `reusable` of them may be matched."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    prompt_tokens: int
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
                prompt_tokens=len(request.prompt),
                units=found,
                reusable=max(0, len(request.prompt) - 1) // unit,
                extra=0 if len(tokens) == whole * unit else 1,
            )
        )
    return rows
