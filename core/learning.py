"""What a committed transaction teaches the order of eviction: ranks, ends of rows, and the margin.

All of it is derived from the uses of the transaction after it was handed to the sink, in the order in which
they came. Nothing else writes the marks of nodes that `retention` reads, but a split, whose head begins with
the rank of the node that it is cut from.
"""

from collections.abc import Sequence

from kvledger.core.node import Node, only_child, parent_of
from kvledger.core.references import NEVER
from kvledger.core.retention import Retention
from kvledger.core.uses import Forgotten, Matched, Published, Use


def learn(retention: Retention, uses: Sequence[Use]) -> None:
    """Take in what was used. O(anchors and nodes on each path); all windows where the margin changes."""
    for use in uses:
        if isinstance(use, Forgotten):
            retention.forget()
        elif not retention.holds(use.node):
            continue  # it was evicted before the transaction ended
        elif isinstance(use, Matched):
            _refer(retention, use.node, 0, use.node.end)
        else:
            if use.left is not None:
                _parted(retention, use.left, use.other)
            if use.node.end == use.end:
                _row_ended(retention, use)
            retention.references.now += use.pages
            _refer(retention, use.node, use.base, use.end)


def _refer(retention: Retention, node: Node, first: int, end: int) -> None:
    """The prefixes on the path to `node` that end in (first, end] were asked for: new ranks, new places."""
    path: list[Node] = []
    current = node
    while current.parent is not None and current.end > first:
        path.append(current)
        current = current.parent
    path.reverse()
    if path:
        for changed in retention.references.refer(path, first, end):
            retention.offer(changed)


def _parted(retention: Retention, left: Node, other: Node | None) -> None:
    """A row left the tree at the end of `left`, where `other` was the one way on.

    What is left behind was not asked for again, whatever its row was worth.
    """
    if other is not None:
        if not retention.holds(other):
            return
        while other.parent is not left:
            other = parent_of(other)  # it was split since
    gap = retention.gap(left, other, left.end)
    if gap is None:
        return
    if retention.margin.learn(gap):
        retention.reconsider_all()
    while other is not None:
        other.rank = NEVER
        retention.offer(other)
        other = only_child(other)


def _row_ended(retention: Retention, use: Published) -> None:
    """A row was published up to the end of a node; an end that it went on from at once is none any more."""
    last, node = retention.last_end, use.node
    if last is not None and last is not node and last.end == use.base:
        above = node
        while above.start > use.base:
            above = parent_of(above)
        if above.parent is last:
            last.ends_row = False
            retention.reconsider(last)
    node.ends_row = True
    retention.reconsider(node)
    retention.last_end = node
