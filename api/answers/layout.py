"""Where each node is drawn: every leaf has a row, and a node spans the rows of the leaves below it.

Siblings stand in the order of the oldest node id below each of them: ids are never reused and a split leaves
the old id below the new one, so a picture keeps its order while the tree grows, splits and shrinks around it.
Namespaces stand in the order of their names.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvledger.core.ids import NodeId
from kvledger.journal.state import Node, State


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a node stands: rows [row, row + rows), `depth` nodes above it, `below` nodes under it in all."""

    node: Node
    row: int
    rows: int
    depth: int
    below: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The spots of some trees, parents before children and rows rising.

    `row_starts[i]` is the row of `spots[i]`; `tokens` is what all nodes hold together, `end` the largest end.
    """

    spots: Sequence[Spot]
    row_starts: Sequence[int]
    by_id: dict[NodeId, Spot]
    rows: int
    tokens: int
    end: int

    def within(self, first_row: int, rows: int) -> list[Spot]:
        """The spots that have a row in [first_row, first_row + rows), parents before children.

        Cost: O(nodes found + depth).
        """
        first = bisect_left(self.row_starts, first_row)
        end = bisect_left(self.row_starts, first_row + rows)
        if first == len(self.spots) or rows < 1:
            return []
        # Those that begin above and reach in are the ancestors of whoever begins at the first row.
        above: list[Spot] = []
        node = self.spots[first].node.parent
        while node is not None and node.id in self.by_id:
            above.append(self.by_id[node.id])
            node = node.parent
        above.reverse()
        return [*above, *self.spots[first:end]]


def layout_of(groups: Iterable[Iterable[Node]]) -> Layout:
    """Lay out groups of trees, one under the other. Cost: O(nodes), a few microseconds each."""
    order = [list(group) for group in groups]
    nodes = _parents_first(order)
    oldest: dict[NodeId, int] = {}
    rows: dict[NodeId, int] = {}
    below: dict[NodeId, int] = {}
    for node in reversed(nodes):
        children = node.children
        if children:
            oldest[node.id] = min(node.id, min([oldest[child] for child in children]))
            rows[node.id] = sum([rows[child] for child in children])
            below[node.id] = sum([below[child] for child in children]) + len(children)
        else:
            oldest[node.id], rows[node.id], below[node.id] = node.id, 1, 0

    def youngest_first(siblings: Iterable[Node]) -> list[Node]:
        return sorted(siblings, key=lambda node: oldest[node.id], reverse=True)

    spots: list[Spot] = []
    row = tokens = end = 0
    pending = [(top, 0) for group in reversed(order) for top in youngest_first(group)]
    while pending:
        node, depth = pending.pop()
        spots.append(Spot(node, row, rows[node.id], depth, below[node.id]))
        tokens += node.end - node.start
        end = max(end, node.end)
        if node.children:
            pending += [(child, depth + 1) for child in youngest_first(node.children.values())]
        else:
            row += 1
    return Layout(
        spots=spots,
        row_starts=[spot.row for spot in spots],
        by_id={spot.node.id: spot for spot in spots},
        rows=row,
        tokens=tokens,
        end=end,
    )


def whole_layout(state: State) -> Layout:
    """The layout of every namespace. Cost: O(nodes)."""
    return layout_of(state.roots[namespace].values() for namespace in sorted(state.roots))


def _parents_first(groups: Iterable[Iterable[Node]]) -> list[Node]:
    order: list[Node] = []
    pending = [node for group in groups for node in group]
    while pending:
        node = pending.pop()
        order.append(node)
        pending += node.children.values()
    return order
