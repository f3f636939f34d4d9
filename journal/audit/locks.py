"""locked-full, locked-swa and tombstone-unlocked: every lock followed from end to end.

Two nets, one inside the other. At each event that rebinds or frees pages, the node's lock counts say
at once whether somebody was reading them. And each lease remembers the page arrays of its path when
it was made; when it ends they are compared, position by position, with what the path holds then,
whatever any event in between said about itself.
"""

import operator
from dataclasses import dataclass

import numpy as np

from kvledger.core.events import (
    CacheReset,
    LockAcquired,
    LockReleased,
    MappingSet,
    NodeDeleted,
    Pages,
    SwaLockReleased,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import LeaseId, NodeId, Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.audit.verdict import LockCut
from kvledger.journal.records import StoredTransaction
from kvledger.journal.same_pages import joined, same_in_pieces
from kvledger.journal.state import Lease, Node

LOCKS_CUT_NAMED = 100
"""Locks cut by resets that the verdict names; the rest is counted."""

HOLDERS_NAMED = 8
"""Holders of a violated lock that a finding names."""


@dataclass(slots=True)
class _Followed:
    """The path of a lease when it was made, deepest node first, and whether a finding told its end."""

    full: list[Pages]
    swa: list[Pages]
    full_broken: bool = False
    swa_broken: bool = False


class Locks(Check):
    """Follows every lease; the other checks ask it who holds a node."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.cut: list[LockCut] = []
        self._cut_now: list[LockCut] = []
        self._was_reset = False
        self._followed: dict[LeaseId, _Followed] = {}
        self._full_before: Pages | None = None
        self.before = {
            LockReleased: self._before_released,
            SwaLockReleased: self._before_swa_released,
            NodeDeleted: self._before_deleted,
            SwaTombstoned: self._before_tombstoned,
            SwaRecovered: self._before_recovered,
            MappingSet: self._before_mapping_set,
            CacheReset: self._before_reset,
        }
        self.after = {
            LockAcquired: self._after_acquired,
            SwaRecovered: self._after_recovered,
        }

    # Following a lease.

    def resume(self) -> None:
        """Locks that were held at the checkpoint are followed from there on."""
        for lease in self.state.leases.values():
            full: list[Pages] = []
            swa: list[Pages] = []
            node = lease.node
            while node is not None:
                full.append(node.full)
                if lease.swa_held and node.start >= lease.swa_from and node.swa is not None:
                    swa.append(node.swa)
                node = node.parent
            self._follow(lease.id, full, swa, length=lease.length)

    def _after_acquired(self, event: LockAcquired, node: Node | None) -> None:
        full: list[Pages] = []
        swa: list[Pages] = []
        swa_from = event.swa_from
        while node is not None:
            full.append(node.full)
            if node.start >= swa_from:
                if node.swa is None:
                    self.findings.add(
                        "tombstone-unlocked",
                        f"lease {event.lease} puts an SWA lock on a tombstone",
                        request=event.request_id,
                        node=node.id,
                        pages=node.full,
                    )
                else:
                    swa.append(node.swa)
            node = node.parent
        self._follow(event.lease, full, swa, length=event.length)

    def _follow(self, lease: LeaseId, full: list[Pages], swa: list[Pages], *, length: int) -> None:
        self._followed[lease] = _Followed(full, swa)
        self.counts["locks_followed"] += 1
        self.counts["pages_followed"] += length // self.state.page_size

    def _before_released(self, event: LockReleased, lease: Lease) -> None:
        if event.by_reset:
            self._cut_now.append(
                LockCut(
                    seq=self.findings.seq or 0, lease=lease.id, request=lease.request_id, length=lease.length
                )
            )
        self._compare(lease, swa=lease.swa_held)
        del self._followed[lease.id]

    def _before_reset(self, event: CacheReset, subject: None) -> None:
        self._was_reset = True

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """A lock was cut by a reset only where there was one."""
        if self._was_reset:
            self.counts["locks_cut_by_reset"] += len(self._cut_now)
            self.cut += self._cut_now[: LOCKS_CUT_NAMED - len(self.cut)]
        self._cut_now.clear()
        self._was_reset = False

    def _before_swa_released(self, event: SwaLockReleased, lease: Lease) -> None:
        self._compare(lease, swa=True)
        self._followed[lease.id].swa.clear()

    def _compare(self, lease: Lease, *, swa: bool) -> None:
        followed = self._followed[lease.id]
        full: list[Pages] = []
        windows: list[Pages] = []
        node = lease.node
        while node is not None:
            full.append(node.full)
            reaches = swa and node.start >= lease.swa_from
            if node.full_lock < 1 or (reaches and not 1 <= node.swa_lock <= node.full_lock):
                self.findings.add(
                    "lock-order",
                    f"node {node.id} has Full lock {node.full_lock} and SWA lock {node.swa_lock} "
                    f"while lease {lease.id} is on it",
                    request=lease.request_id,
                    node=node.id,
                )
            if reaches and node.swa is not None:
                windows.append(node.swa)
            node = node.parent
        if not followed.full_broken and not _same(followed.full, full):
            self._changed("locked-full", "Full", lease, followed.full, full)
        if swa and not followed.swa_broken and not _same(followed.swa, windows):
            self._changed("locked-swa", "SWA", lease, followed.swa, windows)

    def _changed(
        self, invariant: str, pool: str, lease: Lease, locked: list[Pages], found: list[Pages]
    ) -> None:
        # Both were gathered from the deepest node up.
        then, now = joined(locked[::-1]), joined(found[::-1])
        shorter = min(len(then), len(now))
        lost = then[len(then) - shorter :] != now[len(now) - shorter :]
        pages = then[len(then) - shorter :][lost] if shorter == len(then) else then
        self.findings.add(
            invariant,
            f"between lock and unlock of lease {lease.id} the {pool} pages of its path changed",
            request=lease.request_id,
            holders=[_who(lease)],
            node=None if lease.node is None else lease.node.id,
            pages=pages,
        )

    # What may not happen to a locked node.

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        if node.full_lock > 0:
            self.violated_full(node, node.full, f"a locked node was deleted (cause {event.cause})")
        if node.swa_lock > 0:
            self.violated_swa(node, node.swa, f"a node under SWA lock was deleted (cause {event.cause})")

    def _before_tombstoned(self, event: SwaTombstoned, node: Node) -> None:
        if node.swa_lock > 0:
            self.violated_swa(node, node.swa, f"SWA pages under lock were freed (cause {event.cause})")
            self.findings.add(
                "tombstone-unlocked",
                f"the node becomes a tombstone with an SWA lock of {node.swa_lock}",
                node=node.id,
                holders=self._names(self.holders(node, swa=True)),
                pages=node.full,
            )

    def _before_recovered(self, event: SwaRecovered, node: Node) -> None:
        self.counts["recoveries"] += 1
        self.counts["recoveries_under_lock"] += node.full_lock > 0
        self._full_before = node.full

    def _after_recovered(self, event: SwaRecovered, node: Node) -> None:
        before = self._full_before
        if node.full_lock > 0 and before is not None and node.full is not before:
            changed = before[before != node.full]
            if len(changed):
                self.violated_full(
                    node, changed, f"Full pages under lock were replaced by a recovery ({event.mode})"
                )

    def _before_mapping_set(self, event: MappingSet, subject: None) -> None:
        for node in self.nodes_of(event.full_pages):
            if node.swa_lock > 0:
                self.violated_swa(node, node.swa, "the mapping of pages under SWA lock was set anew")

    def violated_full(self, node: Node, pages: Pages, sentence: str) -> None:
        """Report `pages` of `node` under `locked-full`; its leases are not reported again when they end."""
        leases = self.holders(node, swa=False)
        for lease in leases:
            self._followed[lease.id].full_broken = True
        self._report("locked-full", node, leases, pages, sentence)

    def violated_swa(self, node: Node, pages: Pages | None, sentence: str) -> None:
        """The same for `locked-swa`."""
        leases = self.holders(node, swa=True)
        for lease in leases:
            self._followed[lease.id].swa_broken = True
        self._report("locked-swa", node, leases, pages, sentence)

    def report(
        self, invariant: str, node: Node, pages: Pages, sentence: str, *, seq: Seq | None = None
    ) -> None:
        """Report `pages` of `node` under `invariant`, with whoever holds its Full lock."""
        self._report(invariant, node, self.holders(node, swa=False), pages, sentence, seq=seq)

    def _report(
        self,
        invariant: str,
        node: Node,
        leases: list[Lease],
        pages: Pages | None,
        sentence: str,
        *,
        seq: Seq | None = None,
    ) -> None:
        requests = [lease.request_id for lease in leases if lease.request_id is not None]
        self.findings.add(
            invariant,
            sentence,
            request=requests[0] if requests else None,
            holders=self._names(leases),
            node=node.id,
            pages=pages,
            seq=seq,
        )

    def nodes_of(self, pages: Pages) -> list[Node]:
        """The tree nodes that `pages` are bound to. Cost O(len(pages))."""
        at = self.state.full_at.take(pages, mode="clip")
        ids = [NodeId(int(place) - 1) for place in np.unique(at[at > 0])]
        return [self.state.nodes[node_id] for node_id in ids if node_id in self.state.nodes]

    def holders(self, node: Node, *, swa: bool) -> list[Lease]:
        """Leases whose path (or, with `swa`, whose SWA reach) covers `node`, by id. Cost O(all paths)."""
        found = []
        for lease in self.state.leases.values():
            if swa and not (lease.swa_held and node.start >= lease.swa_from):
                continue
            at = lease.node
            while at is not None and at is not node:
                at = at.parent
            if at is not None:
                found.append(lease)
        return sorted(found, key=lambda lease: lease.id)

    def _names(self, leases: list[Lease]) -> list[str]:
        names = [_who(lease) for lease in leases]
        if len(names) > HOLDERS_NAMED:
            names[HOLDERS_NAMED:] = [f"{len(names) - HOLDERS_NAMED} more"]
        return names

    def end(self) -> None:
        """Locks still held are followed to the end of the journal."""
        self.counts["locks_open_at_end"] = len(self.state.leases)
        for lease in self.state.leases.values():
            self._compare(lease, swa=lease.swa_held)


def _who(lease: Lease) -> str:
    return f"lease {lease.id}" if lease.request_id is None else lease.request_id


def _same(locked: list[Pages], found: list[Pages]) -> bool:
    if len(locked) == len(found) and all(map(operator.is_, locked, found)):
        return True
    return same_in_pieces(locked[::-1], found[::-1])
