"""Who was asked for before: the reference history of LRU-2, a memory of prefixes that outlives their pages.

LRU-K (O'Neil, O'Neil and Weikum, 1993) lets go first of that whose K-th last reference lies farthest back;
with K = 2 long prompts that nobody repeats cannot drive out what is asked for time and again. Its history has
to be longer than pages live, or no prefix would ever be seen twice.

Every `ANCHOR_TOKENS` tokens of a path stand for the prefix that ends there, named by a checksum of all its
tokens and its namespace. An entry keeps when its prefix was asked for last, and when before that. It is the
memory of a heuristic: not canonical, never in an event; a collision of checksums costs a wrong guess at most.

Time is the number of pages that rows brought, so an idle cache does not age. References less than a
correlated period apart are one: a request matches, publishes and matches again.
"""

import zlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from kvledger.core.inputs import TOKEN_BYTES
from kvledger.core.node import Checksums, Node, parent_of

ANCHOR_TOKENS: Final = 512
"""Finer costs more memory and time for each request, coarser tells parting requests apart later."""

MEMORY_POOLS: Final = 8
"""The memory covers as many tokens as this many Full pools; an entry takes some 200 bytes."""

LEAST_ENTRIES: Final = 1_024
"""Of the smallest memory."""

CORRELATED_SHARE: Final = 8
"""References within this fraction of a Full pool's worth of new pages are one."""

MOST_CONTINUATIONS: Final = 2
"""A row that parts where more than this many parted before uses a shared head, it is not its next turn."""

NEVER: Final = -1
"""Rank of a prefix that was not asked for before."""


class Entry:
    """When a prefix was asked for last and before that, and how many new prefixes have continued it."""

    __slots__ = ("before", "continuations", "last")

    def __init__(self, last: int, before: int) -> None:
        self.last = last
        self.before = before
        self.continuations = 0


class References:
    """When each remembered prefix was asked for. `now` counts pages."""

    __slots__ = ("_correlated", "_entries", "_limit", "now")

    def __init__(self, full_pages: int, page_size: int) -> None:
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self._limit = max(LEAST_ENTRIES, MEMORY_POOLS * full_pages * page_size // ANCHOR_TOKENS)
        self._correlated = full_pages // CORRELATED_SHARE
        self.now = 0

    def __len__(self) -> int:
        """How many prefixes are remembered."""
        return len(self._entries)

    def forget(self) -> None:
        """Remember nothing."""
        self._entries.clear()
        self.now = 0

    def refer(self, path: Sequence[Node], first: int, end: int) -> list[Node]:
        """The prefixes that end in (first, end] on `path` are asked for; the nodes whose rank that changes.

        `path`: at least one node, in order from the root's side. O(anchors passed + new tokens).
        """
        entries, now = self._entries, self.now
        changed: list[Node] = []
        above = parent_of(path[0])
        previous, rank = checksums(above).anchor, above.rank
        for node in path:
            marks = checksums(node)
            if node.asked_at == now and node.end <= end:
                previous, rank = marks.anchor, node.rank
                continue
            position = node.start // ANCHOR_TOKENS * ANCHOR_TOKENS
            for anchor in marks.anchors:
                position += ANCHOR_TOKENS
                if position > end:
                    break
                if position > first:
                    rank = self._asked(anchor, previous)
                else:
                    entry = entries.get(anchor)
                    if entry is not None:
                        rank = entry.before
                previous = anchor
            if first < node.end <= end:
                node.asked_at = now
                if node.rank != rank:
                    node.rank = rank
                    changed.append(node)
        return changed

    def _asked(self, anchor: int, previous: int) -> int:
        """Note one reference; returns when the prefix was asked for before.

        A new prefix that continues one takes over when that one was asked for before: the next turn of a
        conversation is worth what the conversation is worth.
        """
        entries = self._entries
        entry = entries.get(anchor)
        if entry is None:
            before = NEVER
            continued = entries.get(previous)
            if continued is not None:
                continued.continuations += 1
                if continued.continuations <= MOST_CONTINUATIONS:
                    before = continued.before
            entries[anchor] = Entry(self.now, before)
            if len(entries) > self._limit:
                entries.popitem(last=False)
            return before
        entries.move_to_end(anchor)
        if self.now - entry.last > self._correlated:
            entry.before = entry.last
            entry.last = self.now
        return entry.before


def checksums(node: Node) -> Checksums:
    """Those of a node, and of all above it. O(tokens of nodes that have none for their extent yet)."""
    missing: list[Node] = []
    current: Node | None = node
    known: Checksums | None = None
    while current is not None:
        known = current.checksums
        if known is not None and known.start == current.start and known.end == current.end:
            break
        known = None
        missing.append(current)
        current = current.parent
    while missing:
        current = missing.pop()
        known = _root(current) if known is None else _continued(current, known)
        current.checksums = known
    return _root(node) if known is None else known


def _root(node: Node) -> Checksums:
    """Namespaces are told apart from the first token on."""
    return Checksums(0, 0, zlib.crc32(node.namespace.encode("utf-8", "surrogatepass")), 0, ())


def _continued(node: Node, above: Checksums) -> Checksums:
    """The tokens of a node after those of its parent."""
    key = memoryview(node.key)
    crc, anchor, done = above.crc, above.anchor, node.start
    anchors: list[int] = []
    for number in range(node.start // ANCHOR_TOKENS + 1, node.end // ANCHOR_TOKENS + 1):
        at = number * ANCHOR_TOKENS
        crc = zlib.crc32(key[(done - node.start) * TOKEN_BYTES : (at - node.start) * TOKEN_BYTES], crc)
        anchor = number << 32 | crc
        anchors.append(anchor)
        done = at
    crc = zlib.crc32(key[(done - node.start) * TOKEN_BYTES :], crc)
    return Checksums(node.start, node.end, crc, anchor, tuple(anchors))
