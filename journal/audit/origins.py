"""well-formed: epochs are never used twice, and KV says truly which forward it comes from.

A request has the epoch it was opened or resumed with, a raw insert a new one of its own. What an insert
brings has the inserter as its origin; Full pages that a recovery keeps under a lock keep theirs.
"""

from typing import Any

from kvledger.core.events import (
    NodeCreated,
    Origin,
    PrefixInserted,
    RecoveryMode,
    RequestOpened,
    RequestRowChanged,
    SwaRecovered,
)
from kvledger.core.ids import NodeId
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Node, Request


class Origins(Check):
    """Compares the origins of an insert with its summary. Cost: one comparison a node."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._last = 0
        self._brought: list[tuple[NodeId, Origin]] = []
        self.before = {
            NodeCreated: self._before_created,
            SwaRecovered: self._before_recovered,
            PrefixInserted: self._inserted,
            RequestOpened: self._before_opened,
            RequestRowChanged: self._before_row_changed,
        }

    def resume(self) -> None:
        """No epoch that the state names is given again. Cost O(nodes)."""
        known = [request.epoch for request in self.state.requests.values()]
        for node in self.state.nodes.values():
            known.append(node.full_origin.epoch)
            if node.swa_origin is not None:
                known.append(node.swa_origin.epoch)
        self._last = max(known, default=0)

    def _before_created(self, event: NodeCreated, parent: object) -> None:
        self._brought.append((event.node, event.full_origin))
        expected = None if event.swa_pages is None else event.full_origin
        if _pair(event.swa_origin) != _pair(expected):
            self._add("a new node's SWA comes from another forward than its Full", event.node)

    def _before_recovered(self, event: SwaRecovered, node: Node) -> None:
        self._brought.append((node.id, event.swa_origin))
        keeps = event.mode is RecoveryMode.KEEP_LOCKED_FULL
        if _pair(event.full_origin) != _pair(node.full_origin if keeps else event.swa_origin):
            self._add(f"a recovery ({event.mode}) tells a wrong origin of the Full pages", node.id)
        if keeps and (node.full_lock < 1 or self.state.locked_recovery != "remap"):
            self._add(
                f"Full pages were kept by a recovery under {node.full_lock} locks and the policy "
                f"{self.state.locked_recovery!r}",
                node.id,
            )

    def _inserted(self, event: PrefixInserted, subject: None) -> None:
        brought, self._brought = self._brought, []
        if not brought:
            return
        request = None if event.request_id is None else self.state.requests.get(event.request_id)
        if event.request_id is None:
            epoch = brought[0][1].epoch
            self._is_new(epoch, "a raw insert")
        elif request is None:
            return
        else:
            epoch = request.epoch
        for node, origin in brought:
            if _pair(origin) != (event.request_id, epoch):
                self._add(
                    f"the node's origin is {_pair(origin)}, and it was filled by {event.request_id!r} in "
                    f"epoch {epoch}",
                    node,
                )

    def _before_opened(self, event: RequestOpened, lease: object) -> None:
        self._is_new(event.epoch, f"request {event.request_id!r}")

    def _before_row_changed(self, event: RequestRowChanged, request: Request) -> None:
        if request.lease is None and event.lease is not None:
            self._is_new(event.epoch, f"request {request.id!r}")
        elif event.epoch != request.epoch:
            self.findings.add(
                "well-formed",
                f"the row of a request of epoch {request.epoch} changes in epoch {event.epoch}",
                request=request.id,
            )

    def _is_new(self, epoch: int, whose: str) -> None:
        if epoch <= self._last:
            self.findings.add("well-formed", f"{whose} has epoch {epoch}, and {self._last} was used before")
        self._last = max(self._last, epoch)

    def _add(self, sentence: str, node: NodeId) -> None:
        self.findings.add("well-formed", sentence, node=node)

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Epochs of undone events are not given again."""
        self._brought.clear()
        stored: Any
        for stored in transaction.events:
            if stored.undone:
                self._last = max(self._last, _epoch(stored.event))


def _epoch(event: Any) -> int:
    match event:
        case RequestOpened() | RequestRowChanged():
            return event.epoch
        case NodeCreated():
            return event.full_origin.epoch
        case SwaRecovered():
            return event.swa_origin.epoch
        case _:
            return 0


def _pair(origin: Origin | None) -> tuple[str | None, int] | None:
    return None if origin is None else (origin.request_id, origin.epoch)
