"""What is asked of arrays of pages and slots, and done to tables by them: each in one pass.

Beside this file stands one in C of the same name (row_passes.c). Where the core is compiled (hatch_build.py),
Python finds that one instead: it answers the same without the arrays in between, which is most of what these
take. A test holds both to the same answers. Nothing here knows what a page is for.

`Pages` are contiguous int32[n], slots int64[n]; a table has an entry for each page: int64, int32 or int8,
contiguous. An index of a table is such pages, or a slice without a step for a run of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core.events import Pages

_Table = npt.NDArray[Any]
_Index = slice | Pages
_Slots = npt.NDArray[np.int64]


# Questions.


def all_set(pages: Pages) -> bool:
    """Whether no entry is 0; true for none. O(n)."""
    return bool((pages != 0).all())


def any_set(pages: Pages) -> bool:
    """Whether some entry is not 0; false for none. O(n)."""
    return bool((pages != 0).any())


def is_ascending(pages: Pages) -> bool:
    """Whether each page is above the one before it. O(n)."""
    if len(pages) < 2:
        return True
    falls = pages[1:] <= pages[:-1]
    return not falls[falls.argmax()]


def is_run(pages: Pages) -> bool:
    """Whether each page follows the one before it; true for none. O(n)."""
    n = len(pages)
    return n < 2 or (pages.item(n - 1) - pages.item(0) == n - 1 and is_ascending(pages))


# Tables.


def all_equal_at(table: _Table, at: _Index, value: int) -> bool:
    """Whether the entries of an int32 table at an index are all `value`; true for none. IndexError; O(n)."""
    found = table[_as_numpy_looks_up(at)]
    return not len(found) or bool((found == value).all())


def entries_at(table: _Table, at: _Index) -> Pages:
    """The entries of an int32 table at an index: int32[n] of its own. IndexError; O(n)."""
    found: Pages = table[at].copy() if type(at) is slice else table[_as_numpy_looks_up(at)]
    return found


def put_at(table: _Table, at: _Index, value: int | Pages) -> None:
    """Set the entries at an index to one value or, of int64 and int32, to one each. IndexError; O(n).

    Where something is raised nothing was set.
    """
    table[_as_numpy_looks_up(at)] = value


def _as_numpy_looks_up(at: _Index) -> slice | npt.NDArray[np.intp]:
    """The index as intp. Of any other numpy makes that itself, which takes longer than to look few up."""
    return at if isinstance(at, slice) else at.astype(np.intp)


# Parts and wholes.


def copied_part(pages: Pages, first: int, end: int) -> Pages:
    """`pages[first:end]`, which lie within it, as a read-only array of its own. O(end - first)."""
    part = pages[first:end].copy()
    part.setflags(write=False)
    return part


def joined(chunks: list[Pages]) -> Pages:
    """One array of all entries of at least one chunk. O(n)."""
    return np.concatenate(chunks)


# Slots.


def pages_of(slots: _Slots, page_size: int, slot_limit: int) -> Pages | None:
    """The pages that slots name, whole ones of consecutive slots in [page_size, slot_limit); else None. O(n).

    Their number is a multiple of `page_size`, and `slot_limit` at most 2**31 * page_size. A read-only array.
    """
    found = slots if page_size == 1 else slots[::page_size] // page_size
    if len(found) and (found.min() < 1 or int(found.max()) * page_size >= slot_limit):
        return None
    pages = found.astype(np.int32)
    if page_size > 1 and not np.array_equal(slots, slots_of(pages, page_size)):
        return None
    pages.setflags(write=False)
    return pages


def slots_of(pages: Pages, page_size: int) -> _Slots:
    """The slots of pages, in order: int64[n * page_size], an array of its own. O(n)."""
    firsts = pages.astype(np.int64)
    if page_size == 1:
        return firsts
    slots: _Slots = (firsts[:, None] * page_size + np.arange(page_size, dtype=np.int64)).reshape(-1)
    return slots
