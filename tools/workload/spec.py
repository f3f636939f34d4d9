"""One request as a client sends it.

The output is part of it: no model runs here, so what "the model" will say is known beforehand, and two
runs of one workload are equal token for token.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import InvalidArgument

Tokens = npt.NDArray[np.int32]
"""int32[n] token ids."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkRequest:
    """A request: when it arrives, what it asks and what will be generated for it.

    `prompt` and `output` are int32 arrays, the prompt not empty. `arrival_ms` counts from the start of the
    workload. `abort_at`: the client leaves once that many tokens of prompt and output are computed (0: as
    soon as it was admitted); None: it stays to the end.
    """

    request_id: str
    arrival_ms: int
    prompt: Tokens
    output: Tokens
    namespace: str = ""
    abort_at: int | None = None


MAX_REQUESTS = 1_000_000
"""Most requests of one run: about an hour on one core, and a journal of some ten gigabytes."""


class Workload(Protocol):
    """Requests in order of arrival. Iterating again gives the same ones."""

    def __len__(self) -> int:
        """How many there are."""

    def __iter__(self) -> Iterator[WorkRequest]:
        """From the first to arrive on."""


@dataclass(frozen=True, slots=True)
class LazyWorkload:
    """A workload whose requests are made when they are asked for: a long run never holds all its tokens."""

    requests: int
    make: Callable[[], Iterator[WorkRequest]]

    def __len__(self) -> int:
        return self.requests

    def __iter__(self) -> Iterator[WorkRequest]:
        return self.make()


def check_requests(requests: int) -> None:
    """Refuse a number of requests that no run can have, with InvalidArgument."""
    if not 1 <= requests <= MAX_REQUESTS:
        raise InvalidArgument(f"a run has 1 to {MAX_REQUESTS:,} requests, {requests} asked")
