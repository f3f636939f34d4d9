"""recency: stamps rise in the order of the journal, and leaves hand theirs on as docs/events.md says.

The cache's clock goes back when a stretch is undone, so only stamps of live events are compared.
"""

from itertools import pairwise

from kvledger.core.events import NodeCreated, NodeDeleted, NodeTouched, SwaRecovered
from kvledger.core.ids import NodeId
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.state import Node


class Recency(Check):
    """Keeps the largest stamp that was given. Each event costs the nodes it names."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._last = 0
        self.before = {
            NodeCreated: self._before_stamped,
            SwaRecovered: self._before_stamped,
            NodeTouched: self._before_touched,
            NodeDeleted: self._before_deleted,
        }

    def resume(self) -> None:
        """No stamp of the tree is given again; those of deleted nodes are not known."""
        self._last = max((node.stamp for node in self.state.nodes.values()), default=0)

    def _before_stamped(self, event: NodeCreated | SwaRecovered, subject: object) -> None:
        self._rises(event.stamp, 1, event.node)

    def _before_touched(self, event: NodeTouched, nodes: list[Node]) -> None:
        if not nodes:
            self.findings.add("recency", "a touch names no node")
            return
        for above, node in pairwise(nodes):
            if node.parent is not above:
                self.findings.add(
                    "recency",
                    f"a touch names node {node.id} after node {above.id}, which is not its parent",
                    node=node.id,
                )
                break
        self._rises(event.first_stamp, len(nodes), nodes[0].id)

    def _rises(self, stamp: int, count: int, node: NodeId) -> None:
        if stamp <= self._last:
            self.findings.add(
                "recency",
                f"stamp {stamp} is given although {self._last} was given before",
                node=node,
            )
        self._last = max(self._last, stamp + count - 1)

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        parent = node.parent
        hands_on = parent is not None and len(parent.children) == 1 and node.stamp > parent.stamp
        expected = node.stamp if hands_on else None
        if event.parent_stamp != expected:
            self.findings.add(
                "recency",
                f"the parent of a deleted node takes over stamp {event.parent_stamp}; right is {expected}",
                node=node.id,
            )
