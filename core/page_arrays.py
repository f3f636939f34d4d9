"""Arrays of pages, and lists of them: what is asked of them, and how they are cut and joined, at least cost.

Most rows are short: there a call costs more than the work in it, and finding where the smallest entry stands
takes less than half the time of `.all()`; the longer the row, the less that gains. Few rows are long, but
they are mostly runs.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvledger.core.events import Pages
from kvledger.core.free_pages import EMPTY

RUN_PAGES: Final = 512
"""Fewer pages than this are looked up one by one: to find that they are a run would cost more."""

VIEW_SPARES: Final = 15
"""A view of an array keeps at most one entry alive for so many of its own."""

PageIndex = slice | Pages
"""An index of a table that has an entry for each page: a slice, or page numbers."""


# Questions.


def lowest(array: npt.NDArray[Any]) -> Any:
    """The smallest of at least one entry. O(n)."""
    return array[array.argmin()]


def highest(array: npt.NDArray[Any]) -> Any:
    """The largest of at least one entry. O(n)."""
    return array[array.argmax()]


def all_present(swa: Pages) -> bool:
    """Whether every entry names a page; true for no entries. O(n)."""
    return not len(swa) or bool(lowest(swa))


def any_present(swa: Pages) -> bool:
    """Whether some entry names a page; false for no entries. O(n)."""
    return len(swa) > 0 and bool(highest(swa))


def ascending(pages: Pages) -> bool:
    """Whether at least two pages stand in ascending order, none of them twice. O(n)."""
    falls = pages[1:] <= pages[:-1]
    return not falls[falls.argmax()]


def page_index(pages: Pages) -> PageIndex:
    """The index of pages in a table: a slice for a long run, else the pages themselves. O(n).

    Indexing by a slice takes a third to a fifth of the time; finding out costs about one look-up.
    """
    n = len(pages)
    if n < RUN_PAGES:
        return pages
    first: int = pages.item(0)
    if pages.item(n - 1) - first != n - 1 or not ascending(pages):
        return pages
    return slice(first, first + n)


# Parts and wholes.


def present(swa: Pages) -> Pages:
    """The entries that name a page: the array itself where all do. O(n)."""
    return swa if all_present(swa) else swa[swa != 0]


def part_of(pages: Pages, first: int, end: int) -> Pages:
    """`pages[first:end]` of a read-only array, read-only; a copy unless it is nearly all of it. O(n).

    A view keeps all of the array alive.
    """
    if end - first == len(pages):
        return pages
    part = pages[first:end]
    whole = pages if pages.base is None else pages.base
    if len(part) * (VIEW_SPARES + 1) >= len(whole) * VIEW_SPARES:
        return part
    part = part.copy()
    part.setflags(write=False)
    return part


def concatenate(chunks: list[Pages]) -> Pages:
    """One array of all chunks; the chunk itself where only one has pages. O(pages)."""
    chunks = [chunk for chunk in chunks if len(chunk)]
    if not chunks:
        return EMPTY
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def join(chunks: list[Pages], fresh: Pages) -> Pages:
    """One array of all, read-only from here on. O(pages)."""
    out = fresh if not chunks else np.concatenate([*chunks, fresh]) if len(fresh) else concatenate(chunks)
    out.setflags(write=False)
    return out


def consume(chunks: list[Pages], wanted: int) -> tuple[list[Pages], list[Pages], int]:
    """Take `wanted` pages off the end of a list of chunks: taken, a list of the rest, missing. O(chunks)."""
    if not wanted or not chunks:
        return [], chunks, wanted
    left = list(chunks)
    taken: list[Pages] = []
    while wanted and left:
        chunk = left.pop()
        if len(chunk) > wanted:
            left.append(chunk[wanted:])
            chunk = chunk[:wanted]
        taken.append(chunk)
        wanted -= len(chunk)
    return taken, left, wanted
