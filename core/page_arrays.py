"""Questions about arrays of pages, asked in the way that costs least.

Most rows are short: there a call costs more than the work in it, and finding where the smallest entry stands
takes a third of the time of reducing an array to it. Few rows are long, but they are mostly runs.
"""

from typing import Any, Final

import numpy.typing as npt

from kvledger.core.events import Pages

RUN_PAGES: Final = 512
"""Fewer pages than this are looked up one by one: to find that they are a run would cost more."""

Places = Any
"""An index of a table that has an entry for each page: a slice, or page numbers."""


def lowest(array: npt.NDArray[Any]) -> Any:
    """The smallest of at least one entry. O(n)."""
    return array[array.argmin()]


def highest(array: npt.NDArray[Any]) -> Any:
    """The largest of at least one entry. O(n)."""
    return array[array.argmax()]


def ascending(pages: Pages) -> bool:
    """Whether at least two pages stand in ascending order, none of them twice. O(n)."""
    falls = pages[1:] <= pages[:-1]
    return not falls[falls.argmax()]


def places(pages: Pages) -> Places:
    """Where pages stand in the tables: a slice for a long run, else the pages themselves. O(n).

    What is indexed by a slice takes a tenth of the time.
    """
    n = len(pages)
    if n < RUN_PAGES:
        return pages
    first: int = pages.item(0)
    if pages.item(n - 1) - first != n - 1 or not ascending(pages):
        return pages
    return slice(first, first + n)
