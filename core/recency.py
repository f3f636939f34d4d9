"""Which node goes next: two queues over logical stamps.

Entries order by (stamp, start, first Full page). Queues are lazy: an entry is never moved, only
found outdated when it comes up. What is current of a node has one stamp per queue (`full_queued`,
`swa_queued`), and equal entries may stand twice; entries of locked nodes are dropped when they come up
and offered again on unlock. What is offered waits in a list until somebody asks who goes next, so a node
that is touched, locked and unlocked many times between two evictions is queued once.

Full: unlocked leaves. SWA: live nodes without SWA lock, those *outside* every window first. A node is
inside when the next leaf or branching node at or below it ends less than W tokens past its own end.
The class is evaluated when an entry comes up; an inside entry is set aside in a second queue, and
`reconsider` puts it back when the tree below it changed so that it may have come to lie outside.

Entries are made before the marks that say so: an interrupt in between leaves one too many, never one too few.
"""

from kvledger.core.eviction_queue import Entry, EvictionQueue
from kvledger.core.ids import NodeId
from kvledger.core.node import Node

COMPACT_FLOOR = 1024
"""Lists and queues shorter than this are never rebuilt."""


class Recency:
    """Queues of evictable nodes; not canonical state: they can be rebuilt from the tree, `nodes`."""

    __slots__ = ("_full", "_inside", "_nodes", "_offered", "_swa", "_window")

    def __init__(self, window: int, nodes: dict[NodeId, Node]) -> None:
        self._window = window
        self._nodes = nodes
        self._offered: list[Node] = []
        self._full = EvictionQueue()
        self._swa = EvictionQueue()
        self._inside = EvictionQueue()

    def offer(self, node: Node) -> None:
        """Note that the node may have become evictable, or is so with another stamp. O(1), amortised."""
        if not node.offered:
            node.offered = True
            offered = self._offered
            offered.append(node)
            if len(offered) > COMPACT_FLOOR and len(offered) > 2 * len(self._nodes):
                self._queue_offered()

    def renew(self, node: Node) -> None:
        """Like `offer` for a node whose start or first page changed: its old entries are void."""
        self.offer(node)
        node.full_queued = -1
        node.swa_queued = -1

    def reconsider(self, node: Node) -> None:
        """Put inside entries of `node` and the chain above it back, at most one window up.

        Called when `node` got its first child or is left with one. O(window / page size).
        """
        bottom = node.end
        current = node
        while current.parent is not None and bottom - current.end < self._window:
            if current.swa_inside and current.swa_queued == current.stamp:
                self.offer(current)
                current.swa_queued = -1
            current = current.parent
            if len(current.children) > 1:
                break

    def parted(self, node: Node) -> None:
        """`node` got its second child: a window before its end was kept already, so no class changes here."""

    def next_full(self) -> Node | None:
        """The unlocked leaf used least recently. It stays first until it is gone or locked."""
        if self._offered:
            self._queue_offered()
        queue = self._full
        while (entry := queue.first()) is not None:
            node = self._current_full(entry)
            if node is not None:
                if not node.children and not node.full_lock:
                    return node
                node.full_queued = -1
            queue.drop_first()
        return None

    def next_swa(self) -> Node | None:
        """The next node to give up its SWA: outside every window first, then inside."""
        if self._offered:
            self._queue_offered()
        queue = self._swa
        while (entry := queue.first()) is not None:
            node = self._current_swa(entry)
            if node is not None:
                if node.swa is None or node.swa_lock:
                    node.swa_queued = -1
                elif self._is_inside(node):
                    self._inside.push(entry)
                    node.swa_inside = True
                else:
                    return node
            queue.drop_first()
        return self._next_inside()

    def _next_inside(self) -> Node | None:
        """The first of those that were set aside."""
        queue = self._inside
        while (entry := queue.first()) is not None:
            node = self._current_inside(entry)
            if node is not None:
                if node.swa is not None and not node.swa_lock:
                    return node
                node.swa_queued = -1
                node.swa_inside = False
            queue.drop_first()
        return None

    def drop_outdated(self) -> None:
        """Take out outdated entries that come first.

        Each queue does so when it is asked, but one whose pool is never short is not, and would grow until
        all of it is made anew. O(1), amortised.
        """
        while (entry := self._full.first()) is not None and self._current_full(entry) is None:
            self._full.drop_first()
        while (entry := self._swa.first()) is not None and self._current_swa(entry) is None:
            self._swa.drop_first()
        while (entry := self._inside.first()) is not None and self._current_inside(entry) is None:
            self._inside.drop_first()

    def _queue_offered(self) -> None:
        """Enter what was offered wherever it is evictable now and has no current entry."""
        nodes = self._nodes
        for node in self._offered:
            if nodes.get(node.id) is not node:
                continue
            stamp = node.stamp
            if not node.children and not node.full_lock and node.full_queued != stamp:
                self._full.push((stamp, node.start, node.full.item(0), node.id))
                node.full_queued = stamp
            if node.swa is not None and not node.swa_lock and node.swa_queued != stamp:
                self._swa.push((stamp, node.start, node.full.item(0), node.id))
                node.swa_inside = False
                node.swa_queued = stamp
        self._offers_entered()

    def _offers_entered(self) -> None:
        """Nobody waits any more. Queues that are mostly outdated are made anew."""
        # The marks first: an interrupt may leave a node waiting twice, never one that is marked and does not.
        for node in self._offered:
            node.offered = False
        self._offered = []
        most = COMPACT_FLOOR + 4 * len(self._nodes)
        if len(self._full) > most:
            self._full = EvictionQueue(e for e in self._full if self._current_full(e) is not None)
        if len(self._swa) + len(self._inside) > most:
            self._swa = EvictionQueue(e for e in self._swa if self._current_swa(e) is not None)
            self._inside = EvictionQueue(e for e in self._inside if self._current_inside(e) is not None)

    def _is_inside(self, node: Node) -> bool:
        """True when a leaf or branching node at or below ends less than W tokens past the node."""
        limit = node.end + self._window
        current = node
        while len(current.children) == 1:
            (current,) = current.children.values()
            if current.end >= limit:
                return False
        return True

    # The node that an entry is current for, None for an outdated one.

    def _current_full(self, entry: Entry) -> Node | None:
        node = self._nodes.get(entry[3])
        stamp: int = entry[0]
        start: int = entry[1]
        return node if node is not None and node.full_queued == stamp and node.start == start else None

    def _current_swa(self, entry: Entry) -> Node | None:
        node = self._nodes.get(entry[3])
        stamp: int = entry[0]
        start: int = entry[1]
        return node if node is not None and node.swa_queued == stamp and node.start == start else None

    def _current_inside(self, entry: Entry) -> Node | None:
        node = self._current_swa(entry)
        return node if node is not None and node.swa_inside else None
