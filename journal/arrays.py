"""Page arrays as bytes: int32 little-endian, either value by value or as runs, whichever is shorter.

A run is a pair (start, length) that stands for start, start + 1, ..., start + length - 1. Allocators hand
out neighbouring pages, so most arrays are one or two runs, whatever their length. Ties go to the plain
form: it is the cheaper one to read. The layout is told in docs/format.md, "Stored events".

Packing works on a whole batch at once: numpy's price is per call, and a journal has many short arrays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import Pages

MAX_ELEMENTS = 2**26
"""Longest array that is written or read: a damaged run must not be able to ask for all memory."""

VALUE_BYTES = 4
RUN_BYTES = 8


PackedArray = tuple[int, int, bytes]
"""One array in its stored form: elements, runs (0 for the plain form), and its bytes."""


def pack_arrays(arrays: Sequence[Pages]) -> list[PackedArray]:
    """Pack `arrays`, each int64[n] of values within int32, in one vectorised pass.

    Raises JournalError for an array that is not one-dimensional and integer, too long, or out of int32.
    Cost: O(sum of n) in numpy, a few slices per array.
    """
    if not arrays:
        return []
    for array in arrays:
        if type(array) is not np.ndarray or array.ndim != 1 or array.dtype.kind != "i":
            raise JournalError(f"an event holds {array!r} where a one-dimensional integer array belongs")
    values: npt.NDArray[np.int64] = np.concatenate(arrays)
    narrow = values.astype("<i4")
    if not np.array_equal(narrow, values):
        raise JournalError(f"an event names a page outside int32: {values[narrow != values][0]}")
    sizes = [array.size for array in arrays]
    if max(sizes) > MAX_ELEMENTS:
        raise JournalError(f"an event holds an array of {max(sizes)} pages, more than {MAX_ELEMENTS}")
    offsets = np.concatenate(([0], np.cumsum(sizes)))

    begins_run = np.ones(values.size, dtype=bool)
    begins_run[1:] = values[1:] != values[:-1] + 1
    begins_run[offsets[:-1][offsets[:-1] < values.size]] = True
    run_offsets = np.flatnonzero(begins_run)
    runs = np.empty((run_offsets.size, 2), dtype="<i4")
    runs[:, 0] = narrow[run_offsets]
    runs[:, 1] = np.diff(run_offsets, append=values.size)

    plain_bytes = narrow.tobytes()
    run_bytes = runs.tobytes()
    first_values = offsets.tolist()
    first_runs = np.searchsorted(run_offsets, offsets).tolist()
    packed: list[PackedArray] = []
    for i, elements in enumerate(sizes):
        count = first_runs[i + 1] - first_runs[i]
        if count * RUN_BYTES < elements * VALUE_BYTES:
            begin = first_runs[i] * RUN_BYTES
            packed.append((elements, count, run_bytes[begin : begin + count * RUN_BYTES]))
        else:
            begin = first_values[i] * VALUE_BYTES
            packed.append((elements, 0, plain_bytes[begin : begin + elements * VALUE_BYTES]))
    return packed


def packed_size(entry: Any) -> int:
    """Bytes that an array with the directory entry `[elements, runs]` takes in the blob.

    Raises JournalFormatError for an entry that no array has.
    """
    if (
        type(entry) is not list
        or len(entry) != 2
        or type(entry[0]) is not int
        or type(entry[1]) is not int
        or not 0 <= entry[0] <= MAX_ELEMENTS
        or not 0 <= entry[1] <= entry[0]
    ):
        raise JournalFormatError(f"{entry!r} describes no array: [elements, runs] was expected")
    return entry[1] * RUN_BYTES if entry[1] else entry[0] * VALUE_BYTES


def unpack_array(entry: list[int], data: bytes, offset: int) -> Pages:
    """Read the array that `entry`, as accepted by `packed_size`, describes at `offset` of `data`.

    Returns a read-only int64[elements]. Raises JournalFormatError when runs and elements disagree.
    """
    elements, runs = entry
    if not runs:
        values = np.frombuffer(data, dtype="<i4", count=elements, offset=offset).astype(np.int64)
    else:
        pairs = np.frombuffer(data, dtype="<i4", count=runs * 2, offset=offset).astype(np.int64)
        starts, lengths = pairs[::2], pairs[1::2]
        if int(lengths.min()) < 1 or int(lengths.sum()) != elements:
            raise JournalFormatError(f"{elements} elements are stored as runs of lengths {lengths.tolist()}")
        if runs == 1:
            start = int(starts[0])
            values = np.arange(start, start + elements, dtype=np.int64)
        else:
            before = np.cumsum(lengths) - lengths
            values = np.repeat(starts - before, lengths) + np.arange(elements, dtype=np.int64)
    values.setflags(write=False)
    return values
