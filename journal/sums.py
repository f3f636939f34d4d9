"""Checksums of KV as bytes: uint64 little-endian, one after the other, nothing left out.

They are as good as random, so no shorter form would pay. The layout is told in docs/format.md, "Stored
events".
"""

from typing import Any

import numpy as np

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import Sums
from kvledger.journal.arrays import MAX_ELEMENTS

SUM_BYTES = 8
STORED_SUMS = np.dtype("<u8")


def pack_sums(sums: Any) -> bytes:
    """The bytes of uint64[n]. Raises TypeError for anything else, ValueError for more than `MAX_ELEMENTS`."""
    if type(sums) is not np.ndarray or sums.ndim != 1 or (sums.dtype.kind, sums.dtype.itemsize) != ("u", 8):
        raise TypeError(f"it holds {sums!r} where 64-bit checksums belong")
    if len(sums) > MAX_ELEMENTS:
        raise ValueError(f"it holds {len(sums)} checksums, more than {MAX_ELEMENTS}")
    return sums.astype(STORED_SUMS, copy=False).tobytes()


def sums_size(entry: Any) -> int:
    """How many bytes a directory entry stands for. Raises JournalFormatError for what is no entry."""
    if type(entry) is not int or not 0 <= entry <= MAX_ELEMENTS:
        raise JournalFormatError(f"{entry!r} stands where a number of checksums belongs")
    return entry * SUM_BYTES


def unpack_sums(entry: int, blob: bytes, at: int) -> Sums:
    """The checksums of a sound entry, from byte `at` of a `blob` that has them on: read-only uint64[n]."""
    return np.frombuffer(blob, STORED_SUMS, entry, at).astype(np.uint64, copy=False)


def quick_sums(entry: Any, blob: bytes, at: int) -> tuple[Sums | None, int]:
    """The same with the byte they end at; None where anything is wrong."""
    if type(entry) is not int or not 0 <= entry <= MAX_ELEMENTS or at + entry * SUM_BYTES > len(blob):
        return None, 0
    return unpack_sums(entry, blob, at), at + entry * SUM_BYTES
