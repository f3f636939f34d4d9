"""credit: an eviction frees what it was asked for, and takes along the tombstones it leaves childless."""

from kvledger.core.events import Cause, Evicted, NodeDeleted
from kvledger.core.ids import NodeId
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.effects import REUSABLE
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Node


class Evictions(Check):
    """Follows the cascade from leaf to root. A look at the whole tree only where too little was freed."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._childless: NodeId | None = None
        self.before = {NodeDeleted: self._before_deleted, Evicted: self._evicted}

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        cascades = event.cause is Cause.CASCADE
        if cascades is not (self._childless == node.id):
            self.findings.add(
                "credit",
                f"a node is deleted with cause {event.cause}; the tombstone that the last eviction left "
                f"childless is {self._childless}",
                node=node.id,
                pages=node.full,
            )
        self._childless = None
        above = node.parent
        if (
            event.cause in REUSABLE
            and above is not None
            and len(above.children) == 1
            and above.swa is None
            and above.full_lock == 0
        ):
            self._childless = above.id

    def _evicted(self, event: Evicted, subject: None) -> None:
        self._cascaded()
        page = self.state.page_size
        if min(event.asked_full, event.asked_swa) < 0 or event.asked_full % page or event.asked_swa % page:
            self.findings.add(
                "credit",
                f"an eviction is asked for {event.asked_full} Full and {event.asked_swa} SWA tokens: each is "
                "a multiple of the page size, 0 or more",
            )
        short_of_full = event.counted_full < event.asked_full
        short_of_swa = event.counted_swa < event.asked_swa
        if not short_of_full and not short_of_swa:
            return
        for node in self.state.nodes.values():
            if (short_of_full and node.full_lock < 1) or (
                short_of_swa and node.swa is not None and node.swa_lock < 1
            ):
                self.findings.add(
                    "credit",
                    f"an eviction freed {event.counted_full} Full and {event.counted_swa} SWA tokens of "
                    f"{event.asked_full} and {event.asked_swa}, although more could be evicted",
                    node=node.id,
                    pages=node.full,
                )
                return

    def _cascaded(self) -> None:
        if self._childless is not None:
            self.findings.add(
                "credit", "an eviction left an unlocked tombstone childless", node=self._childless
            )
        self._childless = None

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """An eviction whose summary is missing is the business of `Credit`."""
        self._cascaded()
