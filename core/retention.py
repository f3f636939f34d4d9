"""Which node goes next with eviction "lru-2": windows before places where a row may be taken up again stay.

The queues are those of `recency`. What differs is their order, and what counts as inside a window.

Order: by the time a prefix was asked for before last (`references`), then by stamp.

Inside: kept are the window and the margin (`margin`) before each end of a published row, and the window
before each branching node. A node that is inside in part only is cut, and what lies before goes as outside.
What lies inside goes by the order of the end it is kept for, so that a shortage takes whole windows instead
of a piece of each.

Both depend on nodes, their marks and the margin alone, never on when somebody asked; entries that a change
could place elsewhere are entered anew (`reconsider`). The marks, the margin and the history change only at
the end of a committed outermost transaction (`learning`): no rollback has to bring them back.
"""

from typing import Final

from kvledger.core.eviction_queue import Entry
from kvledger.core.ids import NodeId
from kvledger.core.margin import Margin
from kvledger.core.node import Node, only_child
from kvledger.core.recency import Recency
from kvledger.core.references import References

STAMP_BITS: Final = 48
"""Of a place in the queues, below the rank."""


class Retention(Recency):
    """Queues of evictable nodes, in an order that keeps what may be asked for again."""

    __slots__ = ("_page", "last_end", "margin", "references")

    def __init__(
        self, window: int, nodes: dict[NodeId, Node], page_size: int, references: References
    ) -> None:
        super().__init__(window, nodes)
        self._page = page_size
        self.references = references
        self.margin = Margin(window, page_size)
        self.last_end: Node | None = None  # of the row that was published last

    def holds(self, node: Node) -> bool:
        """Whether a node is in the tree now."""
        return self._nodes.get(node.id) is node

    def forget(self) -> None:
        """A reset: nothing that was learned before is of use."""
        self.references.forget()
        self.margin = Margin(self._window, self._page)
        self.last_end = None

    def publish_length(self, *, length: int, reached: int, last: Node | None, tokens: int) -> int:
        """Where a row of `tokens` is worth publishing first: a branch point, or a likely parting. O(margin).

        `last` is the node in which Full stops matching at `reached`, past the usable `length`. A row that
        leaves another near its end takes its place: the next will leave this one near its own end.
        """
        if length < reached and (last is None or self.gap(last, only_child(last), reached) is None):
            return reached
        likely = max(0, tokens - self.margin.tokens) // self._page * self._page
        return max(length, likely)

    def gap(self, node: Node, below: Node | None, position: int) -> int | None:
        """Tokens from `position`, in `node` or at its end, to the next end of a published row.

        None if that is farther than a margin may be, or if paths part before it.
        """
        limit = position + self.margin.limit
        current: Node | None = node
        if node.end == position:
            if node.ends_row:
                return 0
            current = below
        while current is not None and current.end <= limit:
            if current.ends_row or not current.children:
                return current.end - position
            current = only_child(current)
        return None

    # The queues.

    def parted(self, node: Node) -> None:
        """`node` got its second child: no margin below it reaches past it any more. O(window)."""
        self.reconsider(node)

    def reconsider(self, node: Node) -> None:
        """Put inside entries of `node` and of what may be kept for it back. O((window + margin) / page)."""
        if node.parent is not None:
            self._put_back(node)
            self._reconsider_above(node)

    def _reconsider_above(self, node: Node) -> None:
        reach = node.end - self._window - self.margin.tokens
        current = node.parent
        while (
            current is not None
            and current.parent is not None
            and current.end > reach
            and len(current.children) == 1
        ):
            self._put_back(current)
            current = current.parent

    def reconsider_all(self) -> None:
        """The margin changed: every window may begin elsewhere. O(entries that lie inside)."""
        for entry in self._inside:
            node = self._current_inside(entry)
            if node is not None:
                self._put_back(node)

    def _put_back(self, node: Node) -> None:
        """Have an entry that was set aside as inside looked at again."""
        if node.swa_inside:
            node.swa_queued = -1
            self._enter_swa(node)
            node.swa_inside = False

    def _enter_swa(self, node: Node) -> None:
        order = _order(node)
        if node.swa is not None and not node.swa_lock and node.swa_queued != order:
            self._swa.push((order, node.start, node.full.item(0), node.id))
            node.swa_inside = False
            node.swa_queued = order

    def _queue_offered(self) -> None:
        """As in `recency`, and what is kept for an end whose order changed is looked at again."""
        nodes = self._nodes
        for node in self._offered:
            if nodes.get(node.id) is not node:
                continue
            order = _order(node)
            if not node.children and not node.full_lock and node.full_queued != order:
                self._full.push((order, node.start, node.full.item(0), node.id))
                node.full_queued = order
            if len(node.children) != 1 or node.ends_row:
                self.reconsider(node)
            self._enter_swa(node)
        self._offers_entered()

    def kept_from(self, node: Node) -> int:
        """Position from which on the SWA of `node` is to be kept: its end or more for nothing of it."""
        return self._kept_for(node)[0]

    def next_swa(self) -> Node | None:
        """The next node to give up its SWA: what lies outside first, then window by window."""
        if self._offered:
            self._queue_offered()
        queue = self._swa
        while (entry := queue.first()) is not None:
            node = self._current_swa(entry)
            if node is not None:
                if node.swa is None or node.swa_lock:
                    node.swa_queued = -1
                else:
                    kept, end = self._kept_for(node)
                    if kept > node.start:
                        return node
                    kept_order = _order(end)
                    self._inside.push((kept_order, entry[1], entry[2], node.id))
                    node.kept_order = kept_order
                    node.swa_inside = True
            queue.drop_first()
        return self._next_inside()

    def _kept_for(self, node: Node) -> tuple[int, Node]:
        """From where on the SWA of `node` is kept, and for the end of which node. O(window + margin)."""
        reach = self._window + self.margin.tokens
        kept, kept_for = node.end, node
        current: Node | None = node
        while current is not None and current.end - reach < node.end:
            begin = node.end
            if not current.children or current.ends_row:
                begin = current.end - reach
            elif len(current.children) > 1:
                begin = current.end - self._window
            if begin < node.end:
                kept_for = current
                kept = min(kept, begin)
            current = only_child(current)
        return max(0, kept) // self._page * self._page, kept_for

    def _current_swa(self, entry: Entry) -> Node | None:
        node = super()._current_swa(entry)
        return node if node is not None and not node.swa_inside else None

    def _current_inside(self, entry: Entry) -> Node | None:
        order, start, _, id = entry
        node = self._nodes.get(id)
        is_so = node is not None and node.swa_inside and node.kept_order == order and node.start == start
        return node if is_so else None


def _order(node: Node) -> int:
    """The place of a node in the queues: by rank, then by stamp."""
    return (node.rank + 1) << STAMP_BITS | node.stamp
