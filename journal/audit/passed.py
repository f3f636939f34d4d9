"""insert-match and recency: what an insert finds on its way is healed where it can be, and counts as used.

The nodes that an insert passes are known from its deepest one up: the one it created, recovered or touched
last, or, where a lock follows, the one that is locked. Where it freed incoming pages with their SWA as
duplicates there must be a live node: a tombstone would have taken that SWA over, unless the policy "skip"
spares one under lock. An insert that no lock follows touches what lies in its last window, as a lock would.
"""

from dataclasses import dataclass, field

import numpy as np

from kvledger.core.events import (
    Cause,
    LockAcquired,
    NodeCreated,
    NodeSplit,
    NodeTouched,
    PagesFreed,
    Pool,
    PrefixInserted,
    PrefixMatched,
    SwaRecovered,
)
from kvledger.core.ids import NodeId, Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Node, Request


@dataclass(slots=True)
class _Way:
    """An insert so far: pages it took, (first, end) of those freed with SWA, and the nodes it named."""

    pages: int = 0
    duplicates: list[tuple[int, int]] = field(default_factory=list)
    named: set[NodeId] = field(default_factory=set)
    deepest: Node | None = None

    def name(self, node: Node) -> None:
        """The insert created, recovered or touched `node`."""
        self.named.add(node.id)
        self.deepest = node


@dataclass(slots=True)
class _Doubt:
    """An insert that is right only where a lock follows it, on the nodes that it did not name."""

    seq: Seq
    event: PrefixInserted
    way: _Way
    node: NodeId | None
    sentence: str


class Passed(Check):
    """Follows each insert's way. Cost: the nodes in its own part and in its last window."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._way = _Way()
        self._doubt: _Doubt | None = None
        self._matched = False
        self.before = {PagesFreed: self._before_freed}
        self.after = {
            NodeCreated: self._after_created,
            SwaRecovered: self._after_recovered,
            NodeTouched: self._after_touched,
            NodeSplit: self._after_split,
            PrefixInserted: self._after_inserted,
            PrefixMatched: self._after_matched,
            LockAcquired: self._after_locked,
        }

    def _before_freed(self, event: PagesFreed, request: Request | None) -> None:
        if event.cause is Cause.DUPLICATE and event.pool is not Pool.SWA:
            way = self._way
            end = way.pages + len(event.full_pages)
            if event.pool is Pool.BOTH:
                # Those without SWA lie before the frontier, in front of all others.
                without = len(event.swa_pages) - int(np.count_nonzero(event.swa_pages))
                way.duplicates.append((way.pages + without, end))
            way.pages = end

    def _after_created(self, event: NodeCreated, parent: Node | None) -> None:
        self._way.pages += len(event.full_pages)
        self._way.name(self.state.nodes[event.node])

    def _after_recovered(self, event: SwaRecovered, node: Node) -> None:
        self._way.pages += len(event.incoming_full)
        self._way.name(node)

    def _after_touched(self, event: NodeTouched, nodes: list[Node]) -> None:
        for node in nodes:
            self._way.name(node)

    def _after_split(self, event: NodeSplit, node: Node) -> None:
        # Its head was made on the way, and has the stamp that the whole node had.
        self._way.named.add(event.head)

    def _after_inserted(self, event: PrefixInserted, subject: None) -> None:
        self._settle()
        way, self._way = self._way, _Way()
        self._healed(event, way, way.deepest)
        missed = self._not_touched(event, way)
        if missed is not None:
            self._doubt = _Doubt(self.findings.seq or Seq(0), event, way, *missed)

    def _not_touched(self, event: PrefixInserted, way: _Way) -> tuple[NodeId | None, str] | None:
        """A node in the last window of the insert that it did not name, and what to say of it."""
        if event.length <= event.protected_len:
            return None
        node = way.deepest
        if node is None or node.end < event.length:
            return None, f"an insert of {event.length} tokens does not touch the last node on its way"
        window = event.length - self.state.window_span
        while node is not None and node.end > window:
            if node.id not in way.named:
                return (
                    node.id,
                    f"an insert of {event.length} tokens does not touch node {node.id} in its window",
                )
            node = node.parent
        return None

    def _healed(
        self, event: PrefixInserted, way: _Way, node: Node | None, *, locked_at: Seq | None = None
    ) -> None:
        """Where SWA was freed as a duplicate the path that ends with `node` is live.

        `locked_at`: the seq of the insert, where the path is looked at under the lock that followed it. That
        lock spares no tombstone, and from the deepest node up the path was looked at before.
        """
        spares = self.state.locked_recovery == "skip"
        own_locks = 0 if locked_at is None else 1
        until = None if locked_at is None else way.deepest
        page, base = self.state.page_size, event.protected_len
        while way.duplicates and node is not None and node is not until and node.end > base:
            if node.swa is None and not (spares and node.full_lock > own_locks):
                for first, end in way.duplicates:
                    if base + first * page < node.end and base + end * page > node.start:
                        self.findings.add(
                            "insert-match",
                            f"an insert passes the tombstone node {node.id} and frees the SWA that it lacks",
                            request=event.request_id,
                            node=node.id,
                            pages=node.full,
                            seq=locked_at,
                        )
                        break
            node = node.parent

    def _after_matched(self, event: PrefixMatched, node: Node | None) -> None:
        doubt = self._doubt
        self._matched = doubt is not None and doubt.event.request_id == event.request_id

    def _after_locked(self, event: LockAcquired, node: Node | None) -> None:
        doubt = self._doubt
        if doubt is not None and self._matched:
            self._doubt = None
            self._healed(doubt.event, doubt.way, node, locked_at=doubt.seq)
        # What a lock touches is not on an insert's way.
        self._way = _Way()

    def _settle(self) -> None:
        """No lock followed: what was in doubt is a finding."""
        doubt, self._doubt = self._doubt, None
        self._matched = False
        if doubt is not None:
            self.findings.add(
                "recency", doubt.sentence, request=doubt.event.request_id, node=doubt.node, seq=doubt.seq
            )

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """No lock follows any more."""
        self._settle()
        self._way = _Way()
