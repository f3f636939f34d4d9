"""Which node goes next: two queues over logical stamps.

Entries order by (stamp, start, first Full page). Queues are lazy heaps: an entry is never moved, only
found outdated when it comes up. A node has at most one current entry per queue (`full_queued`,
`swa_queued` hold its stamp); entries of locked nodes are dropped when they come up and offered again on
unlock. What is offered waits in a list until somebody asks who goes next, so a node that is touched,
locked and unlocked many times between two evictions is queued once.

Full: unlocked leaves. SWA: live nodes without SWA lock, those *outside* every window first. A node is
inside when the next leaf or branching node at or below it ends less than W tokens past its own end.
The class is evaluated when an entry comes up; an inside entry is set aside in a second heap, and
`reconsider` puts it back when the tree below it changed so that it may have come to lie outside.
"""

import heapq

from kvledger.core.ids import NodeId
from kvledger.core.node import Node

Entry = tuple[int, int, int, Node]

COMPACT_FLOOR = 1024
"""Lists and heaps shorter than this are never rebuilt."""


class Recency:
    """Queues of evictable nodes; not canonical state: they can be rebuilt from the tree, `nodes`."""

    __slots__ = ("_full", "_inside", "_nodes", "_offered", "_swa", "_window")

    def __init__(self, window: int, nodes: dict[NodeId, Node]) -> None:
        self._window = window
        self._nodes = nodes
        self._offered: list[Node] = []
        self._full: list[Entry] = []
        self._swa: list[Entry] = []
        self._inside: list[Entry] = []

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
        node.full_queued = -1
        node.swa_queued = -1
        self.offer(node)

    def reconsider(self, node: Node) -> None:
        """Put inside entries of `node` and the chain above it back, at most one window up.

        Called when `node` got its first child or is left with one. O(window / page size).
        """
        bottom = node.end
        current = node
        while current.parent is not None and bottom - current.end < self._window:
            if current.swa_inside and current.swa_queued == current.stamp:
                current.swa_queued = -1
                self.offer(current)
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
        while queue:
            stamp, start, _, node = queue[0]
            if node.full_queued == stamp and node.start == start:
                if not node.children and not node.full_lock:
                    return node
                node.full_queued = -1
            heapq.heappop(queue)
        return None

    def next_swa(self) -> Node | None:
        """The next node to give up its SWA: outside every window first, then inside."""
        if self._offered:
            self._queue_offered()
        queue = self._swa
        while queue:
            entry = queue[0]
            node = entry[3]
            if self._current_swa(entry):
                if node.swa is None or node.swa_lock:
                    node.swa_queued = -1
                elif self._is_inside(node):
                    node.swa_inside = True
                    heapq.heappush(self._inside, entry)
                else:
                    return node
            heapq.heappop(queue)
        queue = self._inside
        while queue:
            node = queue[0][3]
            if self._current_swa(queue[0]) and node.swa_inside:
                if node.swa is not None and not node.swa_lock:
                    return node
                node.swa_queued = -1
                node.swa_inside = False
            heapq.heappop(queue)
        return None

    def _queue_offered(self) -> None:
        """Enter what was offered wherever it is evictable now and has no current entry. O(log n) each."""
        nodes, push = self._nodes, heapq.heappush
        for node in self._offered:
            node.offered = False
            if nodes.get(node.id) is not node:
                continue
            stamp = node.stamp
            if not node.children and not node.full_lock and node.full_queued != stamp:
                node.full_queued = stamp
                push(self._full, (stamp, node.start, int(node.full[0]), node))
            if node.swa is not None and not node.swa_lock and node.swa_queued != stamp:
                node.swa_queued = stamp
                node.swa_inside = False
                push(self._swa, (stamp, node.start, int(node.full[0]), node))
        self._offered.clear()
        most = COMPACT_FLOOR + 4 * len(nodes)
        if len(self._full) > most:
            self._full = [e for e in self._full if self._current_full(e)]
            heapq.heapify(self._full)
        if len(self._swa) + len(self._inside) > most:
            self._swa = [e for e in self._swa if self._current_swa(e)]
            heapq.heapify(self._swa)
            self._inside = [e for e in self._inside if self._current_swa(e) and e[3].swa_inside]
            heapq.heapify(self._inside)

    def _is_inside(self, node: Node) -> bool:
        """True when a leaf or branching node at or below ends less than W tokens past the node."""
        limit = node.end + self._window
        current = node
        while len(current.children) == 1:
            (current,) = current.children.values()
            if current.end >= limit:
                return False
        return True

    @staticmethod
    def _current_full(entry: Entry) -> bool:
        stamp, start, _, node = entry
        return node.full_queued == stamp and node.start == start

    @staticmethod
    def _current_swa(entry: Entry) -> bool:
        stamp, start, _, node = entry
        return node.swa_queued == stamp and node.start == start
