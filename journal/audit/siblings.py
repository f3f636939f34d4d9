"""well-formed: no two children of one node begin with the same page of tokens, or a match could not choose.

Tokens are known where the journal keeps them; under the policies "hash" and "none" there is nothing here
to compare.
"""

from kvledger.core.events import NodeCreated, NodeDeleted, NodeSplit
from kvledger.core.ids import NodeId
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.state import Node
from kvledger.journal.tokens import TOKEN_BYTES

Place = tuple[NodeId | str, bytes]
"""Under a node, or directly under a namespace: the first page of tokens of a child."""


class Siblings(Check):
    """Keeps the first page of tokens of every node. Memory follows the tree, an event costs one page."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._page_bytes = self.state.page_size * TOKEN_BYTES
        self._at: dict[Place, NodeId] = {}
        if self.state.token_policy != "full":
            return
        self.before = {NodeDeleted: self._before_deleted, NodeSplit: self._before_split}
        self.after = {NodeCreated: self._after_created, NodeSplit: self._after_split}

    def resume(self) -> None:
        """Enter every node. Cost O(nodes)."""
        if self.state.token_policy == "full":
            for node in self.state.nodes.values():
                self._enter(node)

    def _place(self, node: Node) -> Place:
        parent = node.namespace if node.parent is None else node.parent.id
        return parent, node.tokens[: self._page_bytes]

    def _enter(self, node: Node) -> None:
        twin = self._at.setdefault(self._place(node), node.id)
        if twin != node.id:
            self.findings.add(
                "well-formed",
                f"node {node.id} begins with the same page of tokens as its sibling, node {twin}",
                node=node.id,
                pages=node.full[:1],
            )

    def _leave(self, node: Node) -> None:
        place = self._place(node)
        if self._at.get(place) == node.id:
            del self._at[place]

    def _after_created(self, event: NodeCreated, parent: Node | None) -> None:
        self._enter(self.state.nodes[event.node])

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        self._leave(node)

    def _before_split(self, event: NodeSplit, node: Node) -> None:
        head = node.tokens[: (event.at - node.start) * TOKEN_BYTES]
        if event.head_tokens and event.head_tokens != head:
            self.findings.add(
                "well-formed",
                f"a split gives its head other tokens than node {node.id} has there",
                node=node.id,
            )
        self._leave(node)

    def _after_split(self, event: NodeSplit, node: Node) -> None:
        self._enter(self.state.nodes[event.head])
        self._enter(node)
