"""What differs between two states of one cache: nodes, locks, requests and pools.

Both states are replayed ones; nothing here knows how they came about. Pages are compared, not their order of
allocation; recency is left out, because almost every operation changes it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.journal.state import Lease, Node, Request, State

Id = TypeVar("Id")


@dataclass(frozen=True, slots=True)
class Change:
    """One field that has another value afterwards."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Parts(Generic[Id]):
    """By id: what came, what went, and what is there before and after with other values."""

    added: tuple[Id, ...]
    removed: tuple[Id, ...]
    changed: Mapping[Id, tuple[Change, ...]]


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs. `pools` names pages of a place, as in "full.free"."""

    nodes: Parts[NodeId]
    leases: Parts[LeaseId]
    requests: Parts[RequestId]
    pools: tuple[Change, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        parts = (self.nodes, self.leases, self.requests)
        return not self.pools and not any(part.added or part.removed or part.changed for part in parts)


def difference(before: State, after: State) -> Difference:
    """What is not in `after` as it was in `before`, two states of one cache. Cost: O(both states)."""
    pools = []
    for name, then, now in zip(("full", "swa"), before.places(), after.places(), strict=True):
        for place in ("total", "free", "deferred", "tree", "held"):
            values = (getattr(then, place), getattr(now, place))
            if values[0] != values[1]:
                pools.append(Change(f"{name}.{place}", *values))
    return Difference(
        nodes=_parts(before.nodes, after.nodes, _node),
        leases=_parts(before.leases, after.leases, _lease),
        requests=_parts(before.requests, after.requests, _request),
        pools=tuple(pools),
    )


def _parts(
    before: Mapping[Id, Any], after: Mapping[Id, Any], facts: Callable[[Any], dict[str, Any]]
) -> Parts[Id]:
    changed = {}
    for id, then in before.items():
        now = after.get(id)
        if now is None:
            continue
        old, new = facts(then), facts(now)
        changes = tuple(Change(name, old[name], new[name]) for name in old if old[name] != new[name])
        if changes:
            changed[id] = changes
    return Parts(
        added=tuple(id for id in after if id not in before),
        removed=tuple(id for id in before if id not in after),
        changed=changed,
    )


def _node(node: Node) -> dict[str, Any]:
    return {
        "parent": None if node.parent is None else node.parent.id,
        "start": node.start,
        "end": node.end,
        "tombstone": node.swa is None,
        "full_lock": node.full_lock,
        "swa_lock": node.swa_lock,
        "full_pages": tuple(node.full.tolist()),
        "swa_pages": None if node.swa is None else tuple(node.swa.tolist()),
    }


def _lease(lease: Lease) -> dict[str, Any]:
    return {
        "node": None if lease.node is None else lease.node.id,
        "length": lease.length,
        "swa_held": lease.swa_held,
    }


def _request(request: Request) -> dict[str, Any]:
    return {"lease": request.lease, "epoch": request.epoch, "row_pages": tuple(request.row.tolist())}
