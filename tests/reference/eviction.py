"""Which nodes an eviction takes, worked out the slow way from the rules.

Takes the nodes as the cache shows them (`nodes()`) and applies the rules of recency one victim at a
time, looking at every node each time. It decides nothing about stamps: it reads them.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvledger.core import NodeView


@dataclass
class Twig:
    """One node, as far as eviction looks at it; sizes are tokens."""

    id: int
    parent: int | None
    start: int
    end: int
    first_slot: int
    live: bool
    full_lock: int
    swa_lock: int
    stamp: int
    children: set[int] = field(default_factory=set)

    @property
    def tokens(self) -> int:
        return self.end - self.start


@dataclass
class Evictions:
    """What went, in order, and how much of each pool that freed."""

    deleted: list[int] = field(default_factory=list)
    tombstoned: list[int] = field(default_factory=list)
    full_tokens: int = 0
    swa_tokens: int = 0


def twigs(views: Iterable[NodeView]) -> dict[int, Twig]:
    """The nodes by id, with their children filled in."""
    found = {
        int(view.id): Twig(
            id=int(view.id),
            parent=None if view.parent is None else int(view.parent),
            start=view.start,
            end=view.start + len(view.full_slots),
            first_slot=int(view.full_slots[0]),
            live=view.swa_slots is not None,
            full_lock=view.full_lock,
            swa_lock=view.swa_lock,
            stamp=view.last_access,
        )
        for view in views
    }
    for twig in found.values():
        if twig.parent is not None:
            found[twig.parent].children.add(twig.id)
    return found


def inside_a_window(tree: dict[int, Twig], twig: Twig, window: int) -> bool:
    """A leaf or branching node at or below ends less than W tokens past the node's end."""
    waiting = [twig]
    while waiting:
        below = waiting.pop()
        if len(below.children) != 1 and below.end - twig.end < window:
            return True
        waiting.extend(tree[child] for child in below.children)
    return False


def evictions(
    views: Iterable[NodeView], *, full_tokens: int, swa_tokens: int, window: int
) -> tuple[Evictions, dict[int, Twig]]:
    """Evict until at least that much of each pool is freed, or nothing is left that may go."""
    tree = twigs(views)
    gone = Evictions()

    def order(twig: Twig) -> tuple[int, int, int]:
        return (twig.stamp, twig.start, twig.first_slot)

    def delete(twig: Twig) -> None:
        gone.deleted.append(twig.id)
        gone.full_tokens += twig.tokens
        gone.swa_tokens += twig.tokens if twig.live else 0
        del tree[twig.id]
        if twig.parent is None:
            return
        parent = tree[twig.parent]
        parent.children.remove(twig.id)
        if parent.children:
            return
        parent.stamp = max(parent.stamp, twig.stamp)
        if not parent.live and not parent.full_lock:
            delete(parent)

    while gone.full_tokens < full_tokens:
        leaves = [twig for twig in tree.values() if not twig.children and not twig.full_lock]
        if not leaves:
            break
        delete(min(leaves, key=order))
    while gone.swa_tokens < swa_tokens:
        nodes = [twig for twig in tree.values() if twig.live and not twig.swa_lock]
        if not nodes:
            break
        victim = min(nodes, key=lambda twig: (inside_a_window(tree, twig, window), *order(twig)))
        if victim.children or victim.full_lock:
            victim.live = False
            gone.tombstoned.append(victim.id)
            gone.swa_tokens += victim.tokens
        else:
            delete(victim)
    return gone, tree
