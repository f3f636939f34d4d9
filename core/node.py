"""A node of the radix tree: an edge with its tokens, its pages and its counts.

Positions are tokens. `key` is the node's own tokens, packed; children hang under their first page.
A root stands for each namespace that has nodes: id 0, no tokens, no pages, never locked.
"""

from typing import Final, NamedTuple

from kvledger.core.errors import InvariantViolation
from kvledger.core.events import Origin, Pages
from kvledger.core.ids import NodeId
from kvledger.core.inputs import TOKEN_BYTES

ROOT_ID: Final = NodeId(0)


class Checksums(NamedTuple):
    """What `references` has worked out about the prefixes that end in a node, for the extent it had then.

    `crc` is of everything up to its end; `anchors` name the prefixes of whole units that end in it, `anchor`
    the last such at or before its end.
    """

    start: int
    end: int
    crc: int
    anchor: int
    anchors: tuple[int, ...]


class Node:
    """Mutable state of one node. `changes/` writes to it, and the order of eviction to its marks."""

    __slots__ = (
        "asked_at",
        "checksums",
        "children",
        "end",
        "ends_row",
        "full",
        "full_lock",
        "full_origin",
        "full_queued",
        "id",
        "kept_order",
        "key",
        "namespace",
        "offered",
        "parent",
        "rank",
        "stamp",
        "start",
        "swa",
        "swa_inside",
        "swa_lock",
        "swa_origin",
        "swa_queued",
    )

    def __init__(
        self,
        id: NodeId,
        parent: "Node | None",
        namespace: str,
        *,
        key: bytes,
        start: int,
        full: Pages,
        swa: Pages | None,
        stamp: int,
        full_origin: Origin | None = None,
        swa_origin: Origin | None = None,
    ) -> None:
        self.id = id
        self.parent = parent
        self.namespace = namespace
        self.key = key
        self.start = start
        self.end = start + len(key) // TOKEN_BYTES
        self.full = full
        self.swa = swa
        self.stamp = stamp
        self.full_origin = full_origin
        self.swa_origin = swa_origin
        self.full_lock = 0
        self.swa_lock = 0
        self.children: dict[bytes, Node] = {}
        self.full_queued = -1  # stamp of the entry in the recency queue, -1 for none
        self.swa_queued = -1
        self.offered = False  # it waits to be entered in the recency queues
        self.swa_inside = False  # that entry has been set aside as inside a window
        # Marks of `retention` and `references`: no more canonical, and unused with eviction "lru".
        self.rank = -1  # when its prefix was asked for before last, -1 for never
        self.asked_at = -1  # when that was worked out
        self.ends_row = False  # a row that was published ended here
        self.kept_order = -1  # its place among what lies inside
        self.checksums: Checksums | None = None

    @property
    def is_root(self) -> bool:
        """True for the node that stands for a namespace."""
        return self.parent is None

    def __lt__(self, other: "Node") -> bool:
        """Tie-break of queue entries of one and the same node; the order has no meaning."""
        return self.id < other.id

    def __repr__(self) -> str:
        kind = "tombstone" if self.swa is None else "live"
        return f"<Node {self.id} [{self.start}, {self.end}) {kind} {self.full_lock}/{self.swa_lock}>"


def parent_of(node: Node) -> Node:
    """The parent of a node that has one: every node but a root."""
    if node.parent is None:
        raise InvariantViolation([("tree", f"{node!r} has no parent")])
    return node.parent


def parent_id(node: Node) -> NodeId | None:
    """Id of the parent, None directly under the namespace."""
    parent = node.parent
    return None if parent is None or parent.parent is None else parent.id


def only_child(node: Node) -> Node | None:
    """The one way on from a node, None where there is none or several."""
    if len(node.children) != 1:
        return None
    (child,) = node.children.values()
    return child


def mixed(node: Node) -> bool:
    """True where Full and SWA of a node come from different forwards."""
    return node.swa is not None and node.full_origin != node.swa_origin
