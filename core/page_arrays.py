"""Arrays of pages, and lists of them: how they are looked up, cut and joined, at least cost.

Most rows are short; the few long ones are mostly runs.
"""

from typing import Any, Final

import numpy as np

from kvledger.core.errors import ForeignSlots
from kvledger.core.events import Pages, WidePages
from kvledger.core.free_pages import EMPTY
from kvledger.core.row_passes import all_set, copied_part, is_run, joined

RUN_PAGES: Final = 512
"""Fewer pages than this are looked up one by one: to find that they are a run costs more, interpreted."""

VIEW_SPARES: Final = 15
"""A view of an array keeps at most one entry alive for so many of its own."""

PageIndex = slice | Pages
"""An index of a table that has an entry for each page: a slice, or page numbers."""


# Indexes.


def page_index(pages: Pages) -> PageIndex:
    """The index of pages in a table: a slice for a long run, else the pages themselves. O(n).

    Indexing by a slice takes a third to a fifth of the time; finding out costs about one look-up.
    """
    n = len(pages)
    if n < RUN_PAGES or not is_run(pages):
        return pages
    first: int = pages.item(0)
    return slice(first, first + n)


# Parts and wholes.


def present(swa: Pages) -> Pages:
    """The entries that name a page: the array itself where all do. O(n)."""
    return swa if all_set(swa) else swa[swa != 0]


def part_of(pages: Pages, first: int, end: int) -> Pages:
    """`pages[first:end]` of a read-only array, read-only; a copy unless it is nearly all of it. O(n).

    A view keeps all of the array alive.
    """
    count = end - first
    if count == len(pages):
        return pages
    whole = pages if pages.base is None else pages.base
    if count * (VIEW_SPARES + 1) >= len(whole) * VIEW_SPARES:
        return pages[first:end]
    return copied_part(pages, first, end)


def concatenate(chunks: list[Pages]) -> Pages:
    """One array of all chunks; the chunk itself where only one has pages. O(pages)."""
    chunks = [chunk for chunk in chunks if len(chunk)]
    if not chunks:
        return EMPTY
    return chunks[0] if len(chunks) == 1 else joined(chunks)


def join(chunks: list[Pages], fresh: Pages) -> Pages:
    """One array of all, read-only from here on. O(pages)."""
    out = fresh if not chunks else concatenate([*chunks, fresh])
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


# Wide and narrow.


def widened(pages: Pages) -> WidePages:
    """Pages for whoever multiplies them: a copy. O(n)."""
    return pages.astype(np.int64)


def narrowed(pages: Any) -> Pages:
    """Page numbers of any integers as the cache keeps them. ForeignSlots for one that is in no pool. O(n)."""
    given = np.asarray(pages)
    if given.dtype == np.int32:
        return given
    own: Pages = given.astype(np.int32)
    wrong = (own != given) | (own < 0)
    if wrong.any():
        raise ForeignSlots(f"page {given[wrong][0]} is in no pool")
    return own
