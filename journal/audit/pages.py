"""conservation and mapping: every page moves from the one place it is in to one other place.

The fold keeps one place for each page, so a page cannot be in two; what can be wrong is an event
that takes a page from where it is not. Pages that turn out to be a locked node's are passed on to
`Locks`, pages that an undone event had handed out to `Rollbacks`.
"""

import numpy as np

from kvledger.core.events import (
    MappingSet,
    NodeCreated,
    NodeDeleted,
    Pages,
    PagesAllocated,
    PagesFreed,
    Pool,
    RecoveryMode,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import NodeId
from kvledger.journal.arrays import PAGES
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.audit.locks import Locks
from kvledger.journal.audit.rollbacks import Rollbacks
from kvledger.journal.effects import real_pages
from kvledger.journal.places import CALLER, DEFERRED, FREE, OUTSIDE
from kvledger.journal.same_pages import all_free, all_read, reads, same
from kvledger.journal.state import Node, Request

FIRST_TICKETS = 1024
"""Positions for which the numbers used to find repeated pages exist from the start; they double."""

PLACES_NAMED = 8
"""Different places that one finding about misplaced pages names."""


class PageMoves(Check):
    """Checks where pages come from, and that mapping and events agree about peers."""

    def __init__(self, context: Context, *, locks: Locks, rollbacks: Rollbacks) -> None:
        super().__init__(context)
        self._locks = locks
        self._rollbacks = rollbacks
        self._ticket = np.zeros(max(self.state.full_pages, self.state.swa_pages) + 2, PAGES)
        self._positions = np.arange(FIRST_TICKETS, dtype=PAGES)
        self._unmapped_now: Pages = np.empty(0, PAGES)
        self.before = {
            PagesAllocated: self._before_allocated,
            PagesFreed: self._before_freed,
            NodeCreated: self._before_created,
            NodeDeleted: self._before_deleted,
            SwaTombstoned: self._before_tombstoned,
            SwaRecovered: self._before_recovered,
            MappingSet: self._before_mapping_set,
        }
        self.after = {MappingSet: self._after_mapping_set}

    def _before_allocated(self, event: PagesAllocated, request: Request | None) -> None:
        full, swa = event.full_pages, real_pages(event.swa_pages)
        self.counts["pages_moved"] += len(full)
        if request is None and event.row_start is not None:
            self.findings.add(
                "well-formed", "pages of the caller continue a row, and the caller has none", pages=full
            )
        self._rollbacks.allocated(full)
        index = self.state.index
        full_at = self.state.full_at
        if not all_free(full_at, index(full)):
            self._misplaced(full[full_at[full] != FREE], "was handed out although it is not free")
        swa_at = self.state.swa_at
        if not all_free(swa_at, index(swa)):
            self._misplaced_swa(swa[swa_at[swa] != FREE], "was handed out although it is not free")
        self._once(full, "Full")
        self._once(swa, "SWA")

    def _before_freed(self, event: PagesFreed, request: Request | None) -> None:
        full = event.full_pages
        self.counts["pages_moved"] += len(full)
        owner = CALLER if request is None else request.code
        at = self.state.full_at
        if not all_read(at, self.state.index(full), owner):
            stays = event.pool is Pool.SWA
            what = "lost its SWA peer" if stays else "was freed"
            strange = full[at[full] != owner]
            self._misplaced(strange, f"{what} although {_name(request)} does not hold it", full_stays=stays)
        self._once(full, "Full")
        self._peers(full, event.swa_pages, "freed")
        self._sides(event)

    def _sides(self, event: PagesFreed) -> None:
        """The pool of a free is the sides that its pages had."""
        full, swa, pool = event.full_pages, event.swa_pages, event.pool
        peers = np.count_nonzero(swa)
        if pool is Pool.FULL and peers:
            sentence, wrong = "pages freed on the Full side alone have an SWA peer", full[swa != 0]
        elif pool is Pool.SWA and peers != len(swa):
            sentence, wrong = "pages freed on the SWA side alone have no SWA peer", full[swa == 0]
        elif pool is Pool.BOTH and not peers:
            sentence, wrong = "pages freed on both sides have no SWA peer", full
        else:
            return
        self.findings.add("conservation", sentence, request=event.owner, pages=wrong)

    def _before_created(self, event: NodeCreated, parent: Node | None) -> None:
        full = event.full_pages
        self.counts["pages_moved"] += len(full)
        self._held_by_one(full, event.node, "became the tree's")
        self._once(full, "Full")
        if event.swa_pages is None:
            self._unmapped(full, event.node, "entered the tree as a tombstone")
        else:
            self._peers(full, event.swa_pages, "brought into the tree", node=event.node)
            self._all_real(event.swa_pages, full, event.node)

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        self.counts["pages_moved"] += len(node.full)
        self._own(node, event.full_pages)
        if event.swa_pages is not None:
            self._own_swa(node, event.swa_pages)

    def _before_tombstoned(self, event: SwaTombstoned, node: Node) -> None:
        self.counts["pages_moved"] += len(node.full)
        self.counts["tombstones"] += 1
        self._own(node, event.full_pages)
        self._own_swa(node, event.swa_pages)

    def _before_recovered(self, event: SwaRecovered, node: Node) -> None:
        incoming = event.incoming_full
        self.counts["pages_moved"] += 2 * len(incoming)
        self._own(node, event.node_full)
        keeps = event.mode is RecoveryMode.KEEP_LOCKED_FULL
        self._held_by_one(incoming, node.id, "was freed" if keeps else "became the tree's")
        self._once(incoming, "Full")
        self._peers(incoming, event.swa_pages, "brought by a recovery", node=node.id)
        self._all_real(event.swa_pages, incoming, node.id)
        self._unmapped(event.node_full, node.id, "was recovered")

    def _before_mapping_set(self, event: MappingSet, subject: None) -> None:
        at = self.state.full_at.take(event.full_pages, mode="clip")
        if np.count_nonzero(at > CALLER):
            self.findings.add(
                "mapping",
                "the mapping of pages that nobody holds was set",
                pages=event.full_pages[at > CALLER],
            )
        self._once(event.full_pages, "Full")
        swa = real_pages(event.swa_pages)
        self._once(swa, "SWA")
        beside = self.state.swa_at.take(swa, mode="clip")
        foreign = swa[(beside <= 0) | ~np.isin(beside, event.full_pages)]
        if len(foreign):
            self.findings.add(
                "mapping", "the mapping was set to SWA pages that belong elsewhere", pages=foreign
            )
        self._unmapped_now = self.state.mapping.take(event.full_pages, mode="clip")

    def _after_mapping_set(self, event: MappingSet, subject: None) -> None:
        lost = np.setdiff1d(real_pages(self._unmapped_now), event.swa_pages)
        if len(lost):
            self.findings.add(
                "conservation", "SWA pages are in no place after the mapping was set anew", pages=lost
            )

    # Where pages must come from.

    def _held_by_one(self, pages: Pages, node: NodeId, what: str) -> None:
        owner = self.state.full_at.item(pages.item(0))
        if owner > CALLER or not all_read(self.state.full_at, self.state.index(pages), owner):
            at = self.state.full_at[pages]
            wrong = at > CALLER
            if wrong.any():
                self._misplaced(pages[wrong], f"{what} although nobody holds it")
            else:
                self.findings.add(
                    "conservation",
                    f"pages of more than one owner {what}",
                    node=node,
                    pages=pages[at != owner],
                )

    def _own(self, node: Node, pages: Pages) -> None:
        if not same(node.full, pages):
            wrong = pages[node.full != pages]
            self.findings.add(
                "conservation",
                f"the event names Full pages that are not bound to node {node.id}",
                node=node.id,
                pages=wrong,
            )
            self._report_locked(wrong, f"was taken by an event about node {node.id}", but=node)

    def _own_swa(self, node: Node, pages: Pages) -> None:
        if node.swa is not None and not same(node.swa, pages):
            self.findings.add(
                "mapping",
                f"the event names SWA pages that do not stand beside node {node.id}",
                node=node.id,
                pages=pages[node.swa != pages],
            )
            self._report_locked_swa(pages[node.swa != pages], f"was taken by an event about node {node.id}")

    def _misplaced(self, pages: Pages, what: str, *, full_stays: bool = False) -> None:
        at = self.state.full_at.take(pages, mode="clip")
        states = sorted({self._where(int(place)) for place in np.unique(at)[:PLACES_NAMED]})
        self.findings.add("conservation", f"a Full page {what}; it is {' or '.join(states)}", pages=pages)
        if not full_stays:
            self._report_locked(pages, what)
        # Whoever takes a Full page takes the SWA page that is read through it.
        self._report_locked_swa(real_pages(self.state.mapping.take(pages, mode="clip")), what)
        self._rollbacks.misplaced(pages[at == FREE])

    def _misplaced_swa(self, pages: Pages, what: str) -> None:
        at = self.state.swa_at.take(pages, mode="clip")
        where = "waiting for the end of the transaction" if (at == DEFERRED).all() else "beside a Full page"
        self.findings.add("conservation", f"an SWA page {what}; it is {where}", pages=pages)
        self._report_locked_swa(pages, what)

    def _report_locked(self, pages: Pages, what: str, *, but: Node | None = None) -> None:
        for node in self._locks.nodes_of(pages):
            if node.full_lock > 0 and node is not but:
                mine = pages[np.isin(pages, node.full)]
                self._locks.violated_full(node, mine, f"a Full page under lock {what}")

    def _report_locked_swa(self, pages: Pages, what: str) -> None:
        beside = self.state.swa_at.take(pages, mode="clip")
        for node in self._locks.nodes_of(beside[beside > 0]):
            if node.swa_lock > 0 and node.swa is not None:
                mine = pages[np.isin(pages, node.swa)]
                self._locks.violated_swa(node, mine, f"an SWA page under lock {what}")

    def _where(self, place: int) -> str:
        if place > 0:
            return f"bound to node {place - 1}"
        if place == FREE:
            return "free"
        if place == DEFERRED:
            return "waiting for the end of the transaction"
        if place == CALLER:
            return "held by the caller"
        if place == OUTSIDE:
            return "no page of the pool"
        for request in self.state.requests.values():
            if request.code == place:
                return f"held by request {request.id!r}"
        return "held by a request that is closed"

    # What must stand beside them.

    def _peers(self, full: Pages, swa: Pages, what: str, *, node: NodeId | None = None) -> None:
        if not reads(self.state.mapping, self.state.index(full), swa):
            wrong = self.state.mapping[full] != swa
            self.findings.add(
                "mapping",
                f"pages {what} stand beside other SWA pages than the event says",
                node=node,
                pages=full[wrong],
            )
            named = real_pages(swa[wrong])
            self._report_locked_swa(named, f"was {what} with a Full page it does not stand beside")

    def _unmapped(self, full: Pages, node: NodeId, what: str) -> None:
        if not all_free(self.state.mapping, self.state.index(full)):
            self.findings.add(
                "mapping",
                f"a page {what} although it maps to an SWA page",
                node=node,
                pages=full[self.state.mapping[full] != 0],
            )

    def _all_real(self, swa: Pages, full: Pages, node: NodeId) -> None:
        if np.count_nonzero(swa) != len(swa):
            self.findings.add(
                "mapping", "a live node has Full pages without an SWA peer", node=node, pages=full[swa == 0]
            )

    def _once(self, pages: Pages, pool: str) -> None:
        count = len(pages)
        if count < 2:
            return
        if count > len(self._positions):
            self._positions = np.arange(2 * count, dtype=PAGES)
        positions = self._positions[:count]
        ticket, index = self._ticket, self.state.index(pages)
        ticket[index] = positions
        if not same(ticket[index], positions):
            later = ticket[index] != positions
            self.findings.add("conservation", f"one event names a {pool} page twice", pages=pages[later])


def _name(request: Request | None) -> str:
    return "the caller" if request is None else f"request {request.id!r}"
