"""A workload of full size, thinned out for a small model.

Keeping every n-th token of each prompt keeps what matters: one that began with another still does, and
those that parted part at the same place, n times earlier. Windows, pages and pools shrink by the same factor.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kvledger.tools.workload.spec import Workload, WorkRequest

VOCABULARY = 256
"""Token ids of the small models; enough that two random texts part within a page or two."""


@dataclass(frozen=True, slots=True)
class ThinnedWorkload:
    """Every `keep`-th token of a workload, folded into a vocabulary; time shrinks by `hurry`."""

    full: Workload
    keep: int
    hurry: int
    vocabulary: int

    def __len__(self) -> int:
        return len(self.full)

    def __iter__(self) -> Iterator[WorkRequest]:
        for request in self.full:
            # Thinned as one row: the next turn of a conversation repeats both.
            row = np.concatenate([request.prompt, request.output])[:: self.keep] % np.int32(self.vocabulary)
            row.flags.writeable = False
            prompt, output = np.split(row, [-(-len(request.prompt) // self.keep)])
            yield replace(
                request,
                arrival_ms=request.arrival_ms // self.hurry,
                prompt=prompt,
                output=output,
                abort_at=None if request.abort_at is None else -(-request.abort_at // self.keep),
            )
