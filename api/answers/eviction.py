"""What eviction would take next, played through on a copy of what it looks at; the state stays as it is.

Full takes the unlocked leaf used least recently, its SWA with it. SWA takes the live node without SWA lock
used least recently, nodes outside every window before nodes inside one; unlocked leaves among them are
deleted, all others become tombstones. Whenever a leaf goes, unlocked tombstones above it that are left
childless go too, and a parent that becomes a leaf takes over a later stamp (DESIGN §5). Written after that
page, not after the cache.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Literal

from kvledger.api.answers.pools import evictable_tokens
from kvledger.api.projection import Standing
from kvledger.api.schemas.common import PoolName
from kvledger.api.schemas.pools import EvictionCandidate, EvictionOut
from kvledger.core.ids import NodeId
from kvledger.journal.state import Node, State

Action = Literal["delete_leaf", "tombstone"]
Rank = tuple[int, int, int]
"""Stamp, start and first Full page: the order of recency."""


def eviction_of(standing: Standing, pool: PoolName, *, limit: int) -> EvictionOut:
    """The next `limit` nodes that eviction of one pool would take. Cost: O(nodes + limit * log nodes)."""
    play = _Play(standing.state)
    order = play.full() if pool == "full" else play.swa()
    candidates = tuple(islice(order, limit))
    evictable = evictable_tokens(standing, pool)
    return EvictionOut(
        at=standing.at,
        pool=pool,
        candidates=candidates,
        evictable_tokens=evictable,
        sentence=_sentence(standing.state, pool, evictable, some=bool(candidates)),
    )


def _sentence(state: State, pool: PoolName, evictable: int, *, some: bool) -> str:
    """How much could be taken, or why nothing can be."""
    if some:
        return f"{evictable:,} tokens of this pool could be evicted"
    if not state.nodes:
        return "nothing can be evicted: the tree is empty, and what requests and callers hold is theirs"
    if pool == "full":
        # A lock reaches up to the root, so that a node below which all is locked is locked itself.
        return f"nothing can be evicted: Full is locked in every node ({len(state.nodes):,})"
    live = sum(node.swa is not None for node in state.nodes.values())
    if not live:
        return f"nothing can be evicted: no node ({len(state.nodes):,}) has SWA"
    return f"nothing can be evicted: SWA is locked in every node that has any ({live:,})"


class _Play:
    """The tree as it becomes while nodes are taken: how many children are left, stamps, what is gone."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._children = {node.id: len(node.children) for node in state.nodes.values()}
        self._stamps: dict[NodeId, int] = {}
        self._gone: set[NodeId] = set()
        self._dead: set[NodeId] = set()
        self._inside: dict[NodeId, Rank] = {}
        self._queue: list[tuple[Rank, NodeId]] = []
        self._inner: list[tuple[Rank, NodeId]] = []
        self._last_above: Node | None = None

    def full(self) -> Iterator[EvictionCandidate]:
        """Candidates for room in the Full pool."""
        self._queue = [
            (self._rank(node), node.id)
            for node in self._state.nodes.values()
            if not node.children and not node.full_lock
        ]
        heapq.heapify(self._queue)
        while self._queue:
            rank, node_id = heapq.heappop(self._queue)
            node = self._state.nodes[node_id]
            if node_id in self._gone or rank != self._rank(node):
                continue
            for gone in self._take_leaf(node):
                yield self._candidate(gone, "delete_leaf", None)
            above = self._last_above
            if above is not None and not self._children[above.id] and not above.full_lock:
                heapq.heappush(self._queue, (self._rank(above), above.id))

    def swa(self) -> Iterator[EvictionCandidate]:
        """Candidates for room in the SWA pool."""
        self._queue = [
            (self._rank(node), node.id) for node in self._state.nodes.values() if self._offers_swa(node)
        ]
        heapq.heapify(self._queue)
        while True:
            found = self._next_swa()
            if found is None:
                return
            node, outside = found
            if self._children[node.id] or node.full_lock:
                yield self._candidate(node, "tombstone", outside)
                self._dead.add(node.id)
                continue
            for gone in self._take_leaf(node):
                yield self._candidate(gone, "delete_leaf", outside)
            self._look_again_above(self._last_above)

    def _next_swa(self) -> tuple[Node, bool] | None:
        """The next node and whether it is outside every window; those inside wait until there is no other."""
        while self._queue:
            rank, node_id = heapq.heappop(self._queue)
            node = self._state.nodes[node_id]
            if not self._offers_swa(node) or rank != self._rank(node):
                continue
            if not self._is_inside(node):
                return node, True
            self._inside[node_id] = rank
            heapq.heappush(self._inner, (rank, node_id))
        while self._inner:
            rank, node_id = heapq.heappop(self._inner)
            node = self._state.nodes[node_id]
            if (
                self._inside.pop(node_id, None) == rank
                and self._offers_swa(node)
                and rank == self._rank(node)
            ):
                return node, False
        return None

    def _look_again_above(self, node: Node | None) -> None:
        """Below `node` something went: nodes at most a window above it may be outside now."""
        if node is None:
            return
        if not self._children[node.id] and self._offers_swa(node):
            # It may have taken over a later stamp.
            heapq.heappush(self._queue, (self._rank(node), node.id))
        bottom = node.end
        one: Node | None = node
        while one is not None and bottom - one.end < self._state.window:
            rank = self._inside.pop(one.id, None)
            if rank is not None:
                heapq.heappush(self._queue, (self._rank(one), one.id))
            one = one.parent

    def _is_inside(self, node: Node) -> bool:
        """Whether a leaf or a branching node at or below it ends less than a window past its end."""
        limit = node.end + self._state.window
        one = node
        while self._children[one.id] == 1:
            one = next(child for child in one.children.values() if child.id not in self._gone)
            if one.end >= limit:
                return False
        return True

    def _offers_swa(self, node: Node) -> bool:
        return (
            node.swa is not None
            and not node.swa_lock
            and node.id not in self._gone
            and node.id not in self._dead
        )

    def _take_leaf(self, node: Node) -> list[Node]:
        """Delete a leaf and the unlocked tombstones above it that this leaves childless; these, in order."""
        taken = [node]
        self._delete(node)
        above = node.parent
        while (
            above is not None
            and not self._children[above.id]
            and self._is_dead(above)
            and not above.full_lock
        ):
            taken.append(above)
            self._delete(above)
            above = above.parent
        self._last_above = above
        return taken

    def _is_dead(self, node: Node) -> bool:
        return node.swa is None or node.id in self._dead

    def _delete(self, node: Node) -> None:
        self._gone.add(node.id)
        parent = node.parent
        if parent is None:
            return
        self._children[parent.id] -= 1
        if not self._children[parent.id] and self._stamp(node) > self._stamp(parent):
            self._stamps[parent.id] = self._stamp(node)

    def _stamp(self, node: Node) -> int:
        return self._stamps.get(node.id, node.stamp)

    def _rank(self, node: Node) -> Rank:
        return self._stamp(node), node.start, int(node.full[0])

    def _candidate(self, node: Node, action: Action, outside: bool | None) -> EvictionCandidate:
        tokens = node.end - node.start
        live = not self._is_dead(node)
        return EvictionCandidate(
            node=node.id,
            stamp=self._stamp(node),
            start=node.start,
            end=node.end,
            action=action,
            full_tokens=tokens if action == "delete_leaf" else 0,
            swa_tokens=tokens if live else 0,
            outside_windows=outside,
        )
