"""Page arrays as bytes: int32 little-endian, either value by value or as runs, whichever is shorter.

A run is a pair (start, length) that stands for start, start + 1, ..., start + length - 1. Allocators hand
out neighbouring pages, so most arrays are one or two runs, whatever their length. Ties go to the plain
form: it is the cheaper one to read. The layout is told in docs/format.md, "Stored events".

Packing works on a whole batch at once: numpy's price is per call, and a journal has many short arrays. The
few of a small batch are cheaper one by one.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import Pages

MAX_ELEMENTS = 2**26
"""Longest array that is written or read: a damaged run must not be able to ask for all memory."""

LAST_PAGE = 2**31 - 1
"""Values are int32."""

VALUE_BYTES = 4
RUN_BYTES = 8
ONE_RUN = struct.Struct("<ii").unpack_from
ONE_VALUE = struct.Struct("<i").unpack_from
EACH_RUN = struct.Struct("<ii").iter_unpack
STORED = np.dtype("<i4")
PAGES = np.dtype(np.int32)
AS_STORED = PAGES == STORED
"""Whether the stored bytes are an array of this machine's as they stand: on most machines they are."""

FEW_RUNS = 16
"""Up to so many runs are put together one by one."""

FEW_ARRAYS = 16
"""Up to so many arrays are packed one by one."""

LONG_ARRAY = 1_024
"""Arrays of so many values are compared by numpy, shorter ones as bytes, which means two copies."""

NO_RUN = 2
"""So few values take no more bytes than one run of them does."""

MOST_RUNS = 63
"""An array of more runs is packed with the whole batch: one by one they take longer than that pass."""

PACK_RUN = struct.Struct("<ii").pack
PACK_RUNS = [struct.Struct(f"<{2 * runs}i").pack for runs in range(MOST_RUNS + 1)]

COUNTED_PAGES = 2**18
"""Pages below this are cut out of one array that counts: a megabyte, and most pools are smaller."""

COUNTED: Pages = np.arange(COUNTED_PAGES, dtype=PAGES)
COUNTED.setflags(write=False)
"""Any run of pages is a slice of it, read-only, that takes no memory of its own."""


PackedArray = tuple[int, int, bytes]
"""One array in its stored form: elements, runs (0 for the plain form), and its bytes."""


class PackedArrays(NamedTuple):
    """Several arrays in their stored form, one after the other in `data`.

    Array i has `elements[i]` values and `runs[i]` runs, 0 for the plain form; its bytes are those from
    `ends[i]` to `ends[i + 1]`.
    """

    elements: list[int]
    runs: list[int]
    ends: list[int]
    data: bytes


NOTHING_PACKED = PackedArrays([], [], [0], b"")


def pack_arrays(arrays: Sequence[Pages]) -> list[PackedArray]:
    """Pack `arrays`, each for itself; errors and cost as `pack_together`."""
    elements, runs, ends, data = pack_together(arrays)
    return [
        (size, count, data[begin:end])
        for size, count, (begin, end) in zip(elements, runs, pairwise(ends), strict=True)
    ]


def pack_together(arrays: Sequence[Pages]) -> PackedArrays:
    """Pack `arrays`, each int32[n], into one piece. Other signed integers are taken too, the general way.

    Raises JournalError for an array that is not one-dimensional and integer, too long, or out of int32.
    Cost: O(sum of n) in numpy; for many arrays some forty calls, whatever their number.
    """
    if not arrays:
        return NOTHING_PACKED
    if len(arrays) <= FEW_ARRAYS:
        each = [packed for array in arrays if (packed := _pack_alone(array)) is not None]
        if len(each) == len(arrays):
            return _one_after_the_other(each)
    return _pack_in_one_pass(arrays)


def _one_after_the_other(each: Sequence[PackedArray]) -> PackedArrays:
    elements, runs, pieces = zip(*each, strict=True)
    ends = [0, *accumulate(map(len, pieces))]
    return PackedArrays(list(elements), list(runs), ends, b"".join(pieces))


def _pack_alone(array: Pages) -> PackedArray | None:
    """One array in its stored form; None for one that only `pack_together` has an answer for."""
    if type(array) is not np.ndarray or array.ndim != 1 or array.dtype != PAGES:
        return None
    count = len(array)
    if count <= NO_RUN:
        return count, 0, _stored(array)
    first, last = array.item(0), array.item(-1)
    if (
        last - first == count - 1
        and 0 <= first <= last < COUNTED_PAGES
        and _same(array, COUNTED[first : last + 1])
    ):
        return count, 1, PACK_RUN(first, count)
    if count > MAX_ELEMENTS:
        return None
    # The step from the last int32 to the first wraps round to 1: such a run ends past LAST_PAGE, so the loop
    # below leaves the array to the whole pass. On the way to another process it continues a run
    # (apart/packed.py).
    ends = ((array[1:] - array[:-1] != 1).nonzero()[0] + 1).tolist()
    runs = len(ends) + 1
    if runs * RUN_BYTES >= count * VALUE_BYTES:
        return count, 0, _stored(array)
    if runs > MOST_RUNS:
        return None
    begin, value_at = 0, array.item
    pairs: list[int] = []
    for end in (*ends, count):
        start, length = value_at(begin), end - begin
        begin = end
        pairs += (start, length)
        if not 0 <= start <= LAST_PAGE - length + 1:
            return None
    return count, runs, PACK_RUNS[runs](*pairs)


def _stored(array: Pages) -> bytes:
    return (array if AS_STORED else array.astype(STORED)).tobytes()


def _same(one: Pages, other: Pages) -> bool:
    """Whether two arrays of the same length, of one entry or more, are equal."""
    if len(one) < LONG_ARRAY:
        return one.tobytes() == other.tobytes()
    return bool((one == other).all())


def _pack_in_one_pass(arrays: Sequence[Pages]) -> PackedArrays:
    for array in arrays:
        if type(array) is not np.ndarray or array.ndim != 1 or array.dtype.kind != "i":
            raise JournalError(f"an event holds {array!r} where a one-dimensional integer array belongs")
    given: npt.NDArray[Any] = np.concatenate(arrays)
    values: Pages = given.astype(PAGES, copy=False)
    if given.dtype != PAGES and not np.array_equal(values, given):
        raise JournalError(f"an event names a page outside int32: {given[values != given][0]}")
    sizes = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
    longest = int(sizes.max())
    if longest > MAX_ELEMENTS:
        raise JournalError(f"an event holds an array of {longest} pages, more than {MAX_ELEMENTS}")
    firsts = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum(sizes, out=firsts[1:])

    begins_run = np.empty(values.size, dtype=bool)
    begins_run[1:] = values[1:] - values[:-1] != 1
    if values.size and int(values.max()) == LAST_PAGE:
        # The step from the last int32 to the first wraps round to 1 and is none.
        begins_run[1:][values[:-1] == LAST_PAGE] = True
    begins_run[firsts[:-1][sizes > 0]] = True
    run_begins = np.flatnonzero(begins_run)
    first_runs = np.searchsorted(run_begins, firsts)
    counts = np.diff(first_runs)
    as_runs = counts * RUN_BYTES < sizes * VALUE_BYTES

    # Each array takes a stretch of int32 words: its values, or two words for each of its runs.
    words = np.where(as_runs, counts * (RUN_BYTES // VALUE_BYTES), sizes)
    ends = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum(words, out=ends[1:])
    stored = np.empty(int(ends[-1]), dtype=STORED)
    shift = ends[:-1] - firsts[:-1]
    plain = np.flatnonzero(np.repeat(~as_runs, sizes))
    stored[plain + np.repeat(shift, sizes)[plain]] = values[plain]
    if as_runs.any():
        lengths = np.diff(run_begins, append=values.size)
        chosen = np.flatnonzero(np.repeat(as_runs, counts))
        places = 2 * chosen + np.repeat(ends[:-1] - 2 * first_runs[:-1], counts)[chosen]
        stored[places] = values[run_begins[chosen]]
        stored[places + 1] = lengths[chosen]

    runs = np.where(as_runs, counts, 0)
    return PackedArrays(sizes.tolist(), runs.tolist(), (ends * VALUE_BYTES).tolist(), stored.tobytes())


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


def quick_array(elements: int, runs: int, data: bytes, offset: int) -> tuple[Pages | None, int]:
    """`unpack_array` of `[elements, runs]`, and where its bytes end; None for what is refused.

    Most arrays are one run or a few values, and for those numpy's ways cost more than what they do.
    """
    if not 0 <= runs <= elements <= MAX_ELEMENTS:
        return None, offset
    end = offset + (runs * RUN_BYTES if runs else elements * VALUE_BYTES)
    if end > len(data):
        return None, offset
    if not runs:
        if not elements:
            return COUNTED[:0], end
        return _plain(data[offset:end]), end
    if runs == 1:
        start, length = ONE_RUN(data, offset)
        if length == elements and 0 <= start <= COUNTED_PAGES - length:
            return COUNTED[start : start + length], end
    elif runs <= FEW_RUNS:
        pieces = [
            COUNTED[start : start + length]
            for start, length in EACH_RUN(data[offset:end])
            if length > 0 and 0 <= start <= COUNTED_PAGES - length
        ]
        if len(pieces) == runs:
            values = np.concatenate(pieces)
            values.setflags(write=False)
            return (values if len(values) == elements else None), end
    return unpack_array([elements, runs], data, offset), end


def unpack_array(entry: list[int], data: bytes, offset: int) -> Pages:
    """Read the array that `entry`, as accepted by `packed_size`, describes at `offset` of `data`.

    Returns a read-only int32[elements]. Raises JournalFormatError when runs and elements disagree.
    """
    elements, runs = entry
    if not runs:
        return _plain(data[offset : offset + elements * VALUE_BYTES])
    if runs == 1:
        # Most arrays are one run, and for one run numpy's ways cost more than what they do.
        start, length = ONE_RUN(data, offset)
        if length < 1 or length != elements:
            raise JournalFormatError(f"{elements} elements are stored as runs of lengths {[length]}")
        _check_last(start + elements - 1)
        values = np.arange(start, start + elements, dtype=PAGES)
    else:
        # Wide, for a run that was never stored may end past int32.
        pairs = np.frombuffer(data, STORED, runs * 2, offset).astype(np.int64)
        starts, lengths = pairs[::2], pairs[1::2]
        if int(lengths.min()) < 1 or int(lengths.sum()) != elements:
            raise JournalFormatError(f"{elements} elements are stored as runs of lengths {lengths.tolist()}")
        _check_last(int((starts + lengths).max()) - 1)
        before = np.cumsum(lengths) - lengths
        counted = np.arange(elements, dtype=np.int64)
        counted += np.repeat(starts - before, lengths)
        values = counted.astype(PAGES)
    values.setflags(write=False)
    return values


def _plain(values: bytes) -> Pages:
    """Plain values, read-only: a copy of its own, which is aligned and keeps nothing else of the blob."""
    array: Pages = np.frombuffer(values, STORED)
    if AS_STORED:
        return array
    array = array.astype(PAGES)
    array.setflags(write=False)
    return array


def _check_last(page: int) -> None:
    """Raise JournalFormatError for a run that ends past int32: none was ever stored."""
    if page > LAST_PAGE:
        raise JournalFormatError(f"a run of pages ends at {page}, past int32")
