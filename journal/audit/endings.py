"""well-formed and lock-order: why something ended is the same in every event that tells of it.

The frees of a request that closes or is retracted carry that cause; what a reset ends says so, and a
reset follows in the same transaction; a call that a reset made meaningless names an older generation.
"""

from kvledger.core.events import (
    CacheReset,
    CallIgnored,
    Cause,
    LockReleased,
    NodeDeleted,
    Pages,
    PagesFreed,
    Pool,
    PrefixInserted,
    RequestClosed,
    RequestRowChanged,
    SwaTombstoned,
)
from kvledger.core.ids import LeaseId, NodeId, RequestId, Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Lease, Node, Request

CLOSINGS = (Cause.FINISH, Cause.ABORT, Cause.RESET)
LAST_FREES = (*CLOSINGS, Cause.RETRACT)
OF_REQUESTS = (Cause.WINDOW, Cause.DUPLICATE, *LAST_FREES)
OF_CALLERS = (Cause.CALLER, Cause.DUPLICATE, Cause.WINDOW)
OF_NODES = (Cause.CAPACITY, Cause.CASCADE, Cause.RESET)
"""Tuples, for a member of an enum is compared in less time than it is hashed."""

CUTS_KEPT = 65_536
"""Leases and requests ended by resets that are remembered, newest first, so that memory stays bounded."""

CALLS = {"release": False, "release_swa": False, "finish": True, "abort": True}
"""Calls that a reset can make meaningless, and whether a request (else a lease) is what they are about."""


class Endings(Check):
    """Compares causes within a transaction. Each event costs a look at its cause."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._frees: dict[RequestId, set[Cause]] = {}
        self._published: set[RequestId] = set()
        self._behind_window: Seq | None = None
        self._cuts: dict[tuple[str, LeaseId | RequestId | None, int], None] = {}
        self._all_cuts_known = True
        self._by_reset: Seq | None = None
        self._otherwise: tuple[Seq | None, str] | None = None
        self._was_reset = False
        self.before = {
            PagesFreed: self._before_freed,
            NodeDeleted: self._before_deleted,
            SwaTombstoned: self._before_tombstoned,
            LockReleased: self._before_released,
            PrefixInserted: self._inserted,
            RequestClosed: self._before_closed,
            RequestRowChanged: self._before_row_changed,
            CacheReset: self._before_reset,
            CallIgnored: self._ignored,
        }

    def resume(self) -> None:
        """What earlier resets ended is not known."""
        self._all_cuts_known = False

    def _before_freed(self, event: PagesFreed, request: Request | None) -> None:
        possible = OF_CALLERS if request is None else OF_REQUESTS
        swa_alone = event.pool is Pool.SWA
        if event.cause not in possible or (
            event.cause is not Cause.CALLER and swa_alone is not (event.cause is Cause.WINDOW)
        ):
            whose = "the caller" if request is None else "a request"
            self._add(
                f"pages of {whose} are freed in {event.pool} with cause {event.cause}",
                request=event.owner,
                pages=event.full_pages,
            )
        if request is None and event.cause is Cause.WINDOW:
            self._behind_window = self.findings.seq
        if request is not None and event.cause in LAST_FREES:
            self._frees.setdefault(request.id, set()).add(event.cause)
        self._note(event.cause is Cause.RESET, "pages are freed")

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        if event.cause not in OF_NODES:
            self._add(f"a node is deleted with cause {event.cause}", node=node.id, pages=node.full)
        self._note(event.cause is Cause.RESET, "a node is deleted")

    def _before_tombstoned(self, event: SwaTombstoned, node: Node) -> None:
        if event.cause is not Cause.CAPACITY:
            self._add(f"a node loses its SWA with cause {event.cause}", node=node.id, pages=node.full)
        self._note(False, "a node loses its SWA")

    def _before_released(self, event: LockReleased, lease: Lease) -> None:
        self._note(event.by_reset, "a lock is released")
        if event.by_reset and lease.request_id is None:
            self._remember("lease", lease.id)

    def _inserted(self, event: PrefixInserted, subject: None) -> None:
        if event.request_id is not None:
            self._published.add(event.request_id)
        else:
            self._behind_window = None
        self._note(False, "an insert")

    def _before_closed(self, event: RequestClosed, request: Request) -> None:
        self._note(event.reason is Cause.RESET, "a request closes")
        if event.reason is Cause.RESET:
            self._remember("request", request.id)
        if event.reason not in CLOSINGS:
            self._add(f"a request closes with reason {event.reason}", request=request.id)
        if event.reason is not Cause.FINISH and request.id in self._published:
            self._add(f"a request publishes and then closes with reason {event.reason}", request=request.id)
        self._freed_with(request.id, event.reason)

    def _before_row_changed(self, event: RequestRowChanged, request: Request) -> None:
        self._published.discard(request.id)
        self._freed_with(request.id, Cause.RETRACT if event.lease is None else None)

    def _freed_with(self, request: RequestId, cause: Cause | None) -> None:
        causes = self._frees.pop(request, None)
        if causes and causes - {cause}:
            self._add(
                f"the request ends with {cause}, but its pages are freed with {', '.join(sorted(causes))}",
                request=request,
            )

    def _note(self, by_reset: bool, what: str) -> None:
        if by_reset:
            self._by_reset = self._by_reset or self.findings.seq
        elif self._otherwise is None:
            self._otherwise = (self.findings.seq, what)

    def _before_reset(self, event: CacheReset, subject: None) -> None:
        self._was_reset = True

    def _ignored(self, event: CallIgnored, subject: None) -> None:
        of_request = CALLS.get(event.call)
        names = (event.lease is not None, event.request_id is not None)
        if of_request is None or names != (not of_request, of_request):
            self._add(
                f"a call {event.call!r} on lease {event.lease} and request {event.request_id!r} was ignored",
                request=event.request_id,
            )
        if not 0 <= event.generation < self.state.generation:
            self._add(
                f"a call of generation {event.generation} was ignored in generation {self.state.generation}",
                request=event.request_id,
            )
        cut = ("lease", event.lease) if event.request_id is None else ("request", event.request_id)
        if self._all_cuts_known and (*cut, event.generation) not in self._cuts:
            self.findings.add(
                "lock-order",
                f"a call on {cut[0]} {cut[1]}, generation {event.generation}, was ignored; no reset ended it",
                request=event.request_id,
            )

    def _remember(self, kind: str, name: LeaseId | RequestId) -> None:
        self._cuts[kind, name, self.state.generation] = None
        if len(self._cuts) > CUTS_KEPT:
            del self._cuts[next(iter(self._cuts))]
            self._all_cuts_known = False

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Whoever says "reset" was in one, and nothing else happens in one."""
        if self._was_reset:
            if self._otherwise is not None:
                seq, what = self._otherwise
                self.findings.add("lock-order", f"{what} in a reset, but not by it", seq=seq)
        elif self._by_reset is not None:
            self.findings.add(
                "lock-order", "an event tells of a reset that is not in its transaction", seq=self._by_reset
            )
        for request, causes in self._frees.items():
            self._add(
                f"pages are freed with {', '.join(sorted(causes))}, but the request goes on", request=request
            )
        if self._behind_window is not None:
            self.findings.add(
                "well-formed",
                "the caller's SWA left the window, but of no insert",
                seq=self._behind_window,
            )
        self._behind_window = None
        self._frees.clear()
        self._published.clear()
        self._by_reset = self._otherwise = None
        self._was_reset = False

    def _add(
        self,
        sentence: str,
        *,
        request: RequestId | None = None,
        node: NodeId | None = None,
        pages: Pages | None = None,
    ) -> None:
        self.findings.add("well-formed", sentence, request=request, node=node, pages=pages)
