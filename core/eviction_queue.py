"""Entries of nodes in the order in which they would go: the lowest comes first.

One heap over a whole tree is as deep as the tree is large, and each level of it lies elsewhere in memory.
Here entries whose orders are neighbours share a small heap, and only the numbers of those are in a large one:
what is entered and taken out costs about the same beside a thousand nodes and beside a million, because most
orders in use are stamps that were given one after the other.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final

Entry = Any
"""A tuple (order, start, first Full page, node id). It names the node: no entry keeps one alive that is gone.

Type checkers are not told: compiled, a tuple of known types is made anew each time it is passed.
"""

BUCKET_BITS: Final = 7
"""Orders that agree above these bits share a heap. A node takes a few stamps while it stands in the tree, so
that makes some dozens of entries."""


class EvictionQueue:
    """A set of entries that tells its lowest. An entry may stand twice."""

    __slots__ = ("_buckets", "_count", "_lowest", "_numbers")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._numbers: list[int] = []  # each that has entries, and some that have none any more
        self._buckets: dict[int, list[Entry]] = {}
        self._lowest: list[Entry] = []  # that of the lowest number, or an empty list until that is known
        self._count = 0
        for entry in entries:
            self.push(entry)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        """All of them, in no order."""
        return chain.from_iterable(self._buckets.values())

    def push(self, entry: Entry) -> None:
        """Add an entry. O(log of the entries beside it), for the first one O(log n)."""
        order: int = entry[0]
        number = order >> BUCKET_BITS
        bucket = self._buckets.get(number)
        if bucket is None:
            # The number first: an interrupt may leave one without entries, never entries nobody finds. And it
            # may leave the count too high, never too low.
            self._lowest = []
            heapq.heappush(self._numbers, number)
            self._buckets[number] = bucket = []
        self._count += 1
        heapq.heappush(bucket, entry)

    def first(self) -> Entry | None:
        """The lowest entry, which stays; None for an empty queue. O(1), amortised."""
        lowest = self._lowest
        if lowest:
            return lowest[0]
        numbers = self._numbers
        while numbers:
            bucket = self._buckets.get(numbers[0])
            if bucket:
                self._lowest = bucket
                return bucket[0]
            self._buckets.pop(numbers[0], None)
            heapq.heappop(numbers)
        return None

    def drop_first(self) -> None:
        """Take out the lowest entry, which `first` has just told. O(log of the entries beside it)."""
        heapq.heappop(self._lowest)
        self._count -= 1
