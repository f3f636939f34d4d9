"""Leases: which are held, and which of them lock a node or a token position."""

from collections.abc import Iterable, Sequence

from kvledger.api.projection import LeaseBirths, Standing
from kvledger.api.schemas.requests import LeasesOut
from kvledger.api.schemas.tree import HolderOut
from kvledger.api.told.events import told_text
from kvledger.core.ids import LeaseId, NodeId
from kvledger.journal.state import Lease, Node, State


def leases_of(
    standing: Standing,
    *,
    births: LeaseBirths,
    node: Node | None,
    request: str | None,
    after: int | None,
    limit: int,
) -> tuple[LeasesOut, int | None]:
    """Leases held, oldest first, after lease `after`; and the last one shown where there are more.

    With `node` those whose locked path has it, with `request` those of it. Cost: O(leases) and a few look-ups
    for each one shown.
    """
    held: Iterable[Lease] = standing.state.leases.values() if node is None else locking(standing, node)
    wanted = sorted(
        (lease for lease in held if request is None or lease.request_id == request),
        key=lambda lease: lease.id,
    )
    left = [lease for lease in wanted if after is None or lease.id > after]
    shown = left[:limit]
    answer = LeasesOut(
        at=standing.at, items=holders_of(shown, births=births, upto_seq=standing.at.seq), total=len(wanted)
    )
    return answer, shown[-1].id if len(left) > limit else None


def holders_of(leases: Sequence[Lease], *, births: LeaseBirths, upto_seq: int) -> tuple[HolderOut, ...]:
    """Leases as answers tell them, with the seq and time at which each began."""
    began = births.of([lease.id for lease in leases], upto_seq=upto_seq)
    return tuple(
        HolderOut(
            lease=lease.id,
            request=None if lease.request_id is None else told_text(lease.request_id),
            node=None if lease.node is None else lease.node.id,
            length=lease.length,
            swa_from=lease.swa_from,
            swa_held=lease.swa_held,
            since_seq=birth.seq,
            since_us=birth.time_us,
            transaction=birth.transaction,
        )
        for lease, birth in zip(leases, began, strict=True)
    )


def locking(standing: Standing, node: Node) -> list[Lease]:
    """The leases whose locked path has `node`, oldest first. Cost: O(locked nodes below it)."""
    by_node: dict[NodeId, list[Lease]] = standing.derive("leases", lambda: _by_node(standing.state))
    found: list[Lease] = []
    pending = [node]
    while pending:
        one = pending.pop()
        if not one.full_lock:
            continue
        found += by_node.get(one.id, ())
        pending += one.children.values()
    return sorted(found, key=lambda lease: lease.id)


def locks_position(lease: Lease, position: int, *, swa: bool) -> bool:
    """Whether a lease on a path reaches this token of it, in the pool asked for."""
    if swa:
        return lease.swa_held and lease.swa_from <= position < lease.length
    return position < lease.length


def lease_named(state: State, lease: LeaseId | None) -> Lease | None:
    """The lease with this id, if it is held."""
    return None if lease is None else state.leases.get(lease)


def _by_node(state: State) -> dict[NodeId, list[Lease]]:
    by_node: dict[NodeId, list[Lease]] = {}
    for lease in state.leases.values():
        if lease.node is not None:
            by_node.setdefault(lease.node.id, []).append(lease)
    return by_node
