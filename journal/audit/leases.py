"""lock-order: receipts are used once and by their holder, and the leases of each request balance."""

from kvledger.core.events import (
    LockAcquired,
    LockReleased,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    SwaLockReleased,
)
from kvledger.core.ids import LeaseId, RequestId
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Lease, Node, Request


class LeaseBalance(Check):
    """Keeps which leases each request holds. Lock counts themselves are compared in `Locks`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._of_request: dict[RequestId, set[LeaseId]] = {}
        # In the order of the events, so that findings are told in the same one every time.
        self._touched: dict[RequestId, None] = {}
        self.before = {
            LockReleased: self._before_released,
            SwaLockReleased: self._check_receipt,
            RequestClosed: self._before_closed,
        }
        self.after = {
            LockAcquired: self._after_acquired,
            RequestOpened: self._after_request,
            RequestRowChanged: self._after_request,
        }

    def resume(self) -> None:
        """Each request holds what the leases say."""
        for lease in self.state.leases.values():
            if lease.request_id is not None:
                self._of_request.setdefault(lease.request_id, set()).add(lease.id)

    def _after_acquired(self, event: LockAcquired, node: Node | None) -> None:
        if event.generation != self.state.generation:
            self.findings.add(
                "lock-order",
                f"a lock of generation {event.generation} is taken in generation {self.state.generation}",
                request=event.request_id,
                node=event.node,
            )
        if event.request_id is not None:
            self._of_request.setdefault(event.request_id, set()).add(event.lease)
            self._touched[event.request_id] = None

    def _before_released(self, event: LockReleased, lease: Lease) -> None:
        self._check_receipt(event, lease)
        if event.swa_was_held != lease.swa_held:
            self.findings.add(
                "lock-order",
                f"lease {lease.id} is released as if its SWA half were "
                f"{'still held' if event.swa_was_held else 'given up'}, which is not so",
                request=lease.request_id,
            )
        if lease.request_id is None:
            return
        self._touched[lease.request_id] = None
        leases = self._of_request[lease.request_id]
        leases.discard(lease.id)
        if not leases:
            del self._of_request[lease.request_id]

    def _check_receipt(self, event: LockReleased | SwaLockReleased, lease: Lease) -> None:
        locked = None if lease.node is None else lease.node.id
        if event.node != locked or event.request_id != lease.request_id:
            self.findings.add(
                "lock-order",
                f"lease {lease.id} locks node {locked} for {lease.request_id!r}; "
                f"it is released on node {event.node} for {event.request_id!r}",
                request=lease.request_id,
                node=locked,
            )

    def _before_closed(self, event: RequestClosed, request: Request) -> None:
        leases = self._of_request.get(request.id)
        if leases:
            self.findings.add(
                "lock-order",
                f"the request closes although it still holds lease {_listed(leases)}",
                request=request.id,
            )

    def _after_request(self, event: RequestOpened | RequestRowChanged, subject: object) -> None:
        self._touched[event.request_id] = None
        lease = None if event.lease is None else self.state.leases[event.lease]
        if lease is not None and lease.request_id != event.request_id:
            self.findings.add(
                "lock-order",
                f"the request stands on lease {lease.id}, which is not its own",
                request=event.request_id,
                node=None if lease.node is None else lease.node.id,
            )

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Each request that was touched holds the one lease its row names, or none while it waits."""
        for request_id in self._touched:
            request = self.state.requests.get(request_id)
            if request is None:
                continue
            leases = self._of_request.get(request_id, set())
            expected = set() if request.lease is None else {request.lease}
            if leases != expected:
                self.findings.add(
                    "lock-order",
                    f"the request's row names lease {_listed(expected)}, but it holds {_listed(leases)}",
                    request=request_id,
                )
        self._touched.clear()


def _listed(leases: set[LeaseId]) -> str:
    return ", ".join(map(str, sorted(leases))) if leases else "none"
