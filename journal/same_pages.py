"""Whether page arrays hold the same, asked of their bytes.

Most arrays of an event are short, and nearly all are right. Comparing two of them with numpy takes three
calls and half a microsecond; their bytes are there and compared in a tenth of that, and long ones at the
speed of memory. One page, the most frequent number of all, is read without any array. What is asked here is
only answered: whoever is told no finds out with numpy what differs.

A table is read at an *index*: pages as numpy's own integers, which it makes of any others at every single
look-up, for several times the price of looking up (`State.index`). Tables have entries of different widths.
"""

from collections.abc import Sequence
from struct import Struct

import numpy as np
import numpy.typing as npt

from kvledger.core.events import Pages
from kvledger.journal.arrays import PAGES
from kvledger.journal.places import DEFERRED, FREE

Index = npt.NDArray[np.intp] | Pages
"""Pages as numpy looks up with them; a single page as it is."""

Table = npt.NDArray[np.int64] | npt.NDArray[np.int32]
"""One entry a page: places, or a mapping."""

_packed = {8: Struct("=q").pack, 4: Struct("=i").pack}
_FREE = {width: packed(FREE) for width, packed in _packed.items()}
_DEFERRED = {width: packed(DEFERRED) for width, packed in _packed.items()}


def same(left: Pages, right: Pages) -> bool:
    """Whether two arrays hold the same values in the same order."""
    # Other bytes may still be the same values: nobody is to be accused because of a width.
    same_bytes = left.dtype == right.dtype and left.tobytes() == right.tobytes()
    return same_bytes or np.array_equal(left, right)


def same_in_pieces(left: Sequence[Pages], right: Sequence[Pages]) -> bool:
    """The same of what two rows of arrays amount to, one after the other, wherever they are cut."""
    if all([piece.dtype == PAGES for piece in (*left, *right)]):
        return b"".join([one.tobytes() for one in left]) == b"".join([one.tobytes() for one in right])
    return np.array_equal(joined(left), joined(right))


def joined(pieces: Sequence[Pages]) -> Pages:
    """One array of all of them, in order."""
    return np.concatenate(pieces) if pieces else np.empty(0, PAGES)


def all_read(table: Table, pages: Index, place: int) -> bool:
    """Whether `table` reads `place` for each of `pages`, which are of its pool."""
    count = len(pages)
    if count == 1:
        return table.item(pages.item()) == place
    return table[pages].tobytes() == _packed[table.itemsize](place) * count


def all_free(table: Table, pages: Index) -> bool:
    """The same for `FREE`, which in a mapping is "no peer"."""
    count = len(pages)
    if count == 1:
        return table.item(pages.item()) == FREE
    return table[pages].tobytes() == _FREE[table.itemsize] * count


def all_deferred(table: Table, pages: Index) -> bool:
    """The same for `DEFERRED`. Who asks has a way of its own for one page."""
    return table[pages].tobytes() == _DEFERRED[table.itemsize] * len(pages)


def reads(mapping: Pages, pages: Index, values: Pages) -> bool:
    """Whether `mapping` reads `values`, one for each of `pages`, which are of its pool."""
    if len(pages) == 1:
        return mapping.item(pages.item()) == values.item()
    return same(mapping[pages], values)
