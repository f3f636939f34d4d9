"""Which nodes an eviction takes under "lru-2", worked out the slow way from what the cache has learned.

Reads the marks of the nodes and the margin as they are, and applies the rules one victim at a time, looking
at every node each time. How the marks came about is not its business: `tests/unit/test_core_references.py`
and `tests/unit/test_core_retention.py` say that.
"""

from dataclasses import dataclass, field, replace

from kvledger.core import HybridCache
from tests.reference.eviction import Twig, twigs


@dataclass(frozen=True)
class Mark:
    """What was learned about a node."""

    rank: int
    ends_row: bool


@dataclass(frozen=True)
class Learned:
    """All that orders eviction beside the tree."""

    margin: int
    counts: tuple[int, ...]
    marks: dict[int, Mark]
    history: tuple[tuple[int, int, int, int], ...]
    now: int


def learned(cache: HybridCache) -> Learned:
    """What a cache has learned: all of it must be as before where a transaction was undone."""
    state = cache._state
    retention = state.retention
    assert retention is not None
    references = retention.references
    return Learned(
        margin=retention.margin.tokens,
        counts=tuple(retention.margin._counts),
        marks={int(node.id): Mark(node.rank, node.ends_row) for node in state.nodes.values()},
        history=tuple((key, e.last, e.before, e.continuations) for key, e in references._entries.items()),
        now=references.now,
    )


@dataclass(frozen=True)
class Span:
    """Tokens [start, end) of a node as it was before the eviction."""

    node: int
    start: int
    end: int


@dataclass
class Taken:
    """What went, how much of each pool that freed, and how many nodes were cut.

    `order` has the kind of event and the first Full page of each.
    """

    deleted: list[Span]
    tombstoned: list[Span]
    order: list[tuple[str, int]] = field(default_factory=list)
    full_tokens: int = 0
    swa_tokens: int = 0
    cuts: int = 0


def taken_by_lru2(cache: HybridCache, *, full_tokens: int, swa_tokens: int, window: int, page: int) -> Taken:
    """Evict until at least that much of each pool is freed, or nothing is left that may go."""
    views = {int(view.id): view for view in cache.nodes()}
    tree = twigs(views.values())
    knows = learned(cache)
    marks = dict(knows.marks)
    origin = {id: id for id in tree}
    taken = Taken([], [])

    def order(twig: Twig) -> tuple[int, int]:
        return (marks[twig.id].rank, twig.stamp)

    def place(twig: Twig) -> tuple[int, int, int, int]:
        return (*order(twig), twig.start, twig.first_slot)

    def kept(twig: Twig) -> tuple[int, Twig]:
        """From where on it is kept, and for the end of which."""
        first, whom, below = twig.end, twig, twig
        while True:
            begin = twig.end
            if not below.children or marks[below.id].ends_row:
                begin = below.end - window - knows.margin
            elif len(below.children) > 1:
                begin = below.end - window
            if begin < twig.end:
                first, whom = min(first, begin), below
            if len(below.children) != 1:
                return max(0, first) // page * page, whom
            below = tree[next(iter(below.children))]

    def delete(twig: Twig) -> None:
        taken.deleted.append(Span(origin[twig.id], twig.start, twig.end))
        taken.order.append(("node_deleted", twig.first_slot // page))
        taken.full_tokens += twig.tokens
        taken.swa_tokens += twig.tokens if twig.live else 0
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

    def slot_at(twig: Twig, at: int) -> int:
        view = views[origin[twig.id]]
        return int(view.full_slots[at - view.start])

    def cut(twig: Twig, at: int) -> Twig:
        """Its head; the tail keeps the node."""
        taken.cuts += 1
        head = replace(twig, id=-taken.cuts, end=at, children={twig.id})
        tree[head.id], marks[head.id], origin[head.id] = (
            head,
            Mark(marks[twig.id].rank, False),
            origin[twig.id],
        )
        if twig.parent is not None:
            tree[twig.parent].children ^= {twig.id, head.id}
        twig.parent, twig.first_slot, twig.start = head.id, slot_at(twig, at), at
        return head

    while taken.full_tokens < full_tokens:
        leaves = [twig for twig in tree.values() if not twig.children and not twig.full_lock]
        if not leaves:
            break
        delete(min(leaves, key=place))
    while taken.swa_tokens < swa_tokens:
        nodes = [twig for twig in tree.values() if twig.live and not twig.swa_lock]
        if not nodes:
            break
        outside = [twig for twig in nodes if kept(twig)[0] > twig.start]
        if outside:
            victim = min(outside, key=place)
            if kept(victim)[0] < victim.end:
                victim = cut(victim, kept(victim)[0])
        else:
            victim = min(nodes, key=lambda twig: (order(kept(twig)[1]), twig.start, twig.first_slot))
        if victim.children or victim.full_lock:
            victim.live = False
            taken.tombstoned.append(Span(origin[victim.id], victim.start, victim.end))
            taken.order.append(("swa_tombstoned", victim.first_slot // page))
            taken.swa_tokens += victim.tokens
        else:
            delete(victim)
    return taken
