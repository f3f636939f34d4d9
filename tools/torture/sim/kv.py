"""The KV of a simulation: one number a slot, which says what tokens it was computed for.

Numbers are the prefix codes of the synthetic KV (kvledger.tools.kv.synthetic), in two arrays in place of
tensors, so that a slot that was replaced, freed or handed to another writer shows when it is read.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvledger.tools.kv.synthetic import Codes, prefix_codes
from kvledger.tools.torture.sim.finding import Finding

Slots = npt.NDArray[np.int64]


def codes_of(namespace: str, tokens: Sequence[int]) -> Codes:
    """What each position of a row holds. O(tokens)."""
    return prefix_codes(namespace, np.array(tokens, dtype=np.int32))


class SimulatedKV:
    """What lies in each Full and SWA slot."""

    def __init__(self, *, page: int, full_pages: int, swa_pages: int) -> None:
        self.full = np.zeros((full_pages + 1) * page, dtype=np.uint64)
        self.swa = np.zeros((swa_pages + 1) * page, dtype=np.uint64)

    def write(self, codes: Codes, full: Slots, swa: Slots) -> None:
        """A forward pass computed these positions; an SWA slot of 0 is none."""
        self.full[full] = codes
        there = swa > 0
        self.swa[swa[there]] = codes[there]

    def check_full(self, codes: Codes, full: Slots, who: str) -> None:
        """Whoever reads these Full slots finds what its tokens call for."""
        self._check(self.full, codes, full, f"{who} reads wrong Full KV")

    def check_swa(self, codes: Codes, swa: Slots, who: str) -> None:
        """The same for SWA slots, all of which must be there."""
        if len(swa) and not swa.all():
            raise Finding(
                "kv", f"{who} has no SWA slot for the position {int(np.argmin(swa != 0))} of {len(swa)}"
            )
        self._check(self.swa, codes, swa, f"{who} reads wrong SWA KV")

    def _check(self, kept: Codes, codes: Codes, slots: Slots, what: str) -> None:
        wrong = np.flatnonzero(kept[slots] != codes)
        if len(wrong):
            raise Finding("kv", f"{what} in slot {int(slots[wrong[0]])} and {len(wrong) - 1} more")
