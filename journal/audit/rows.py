"""row-safety: every page in a running request's row is its own or lies on its locked path.

Rows are compared when a transaction ends, for the requests it touched. A row that only grew by pages
allocated to its request is right by construction and is not walked again.
"""

import numpy as np

from kvledger.core.events import (
    LockReleased,
    NodeCreated,
    Pages,
    PagesAllocated,
    PagesFreed,
    Pool,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    SwaRecovered,
)
from kvledger.core.ids import RequestId
from kvledger.journal.arrays import PAGES
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.places import FIRST_REQUEST_CODE
from kvledger.journal.records import StoredTransaction
from kvledger.journal.same_pages import all_read, joined, same, same_in_pieces
from kvledger.journal.state import Request


class RowSafety(Check):
    """Compares rows with paths, and counts what each request holds so that nothing leaks."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        # In the order of the events, so that findings are told in the same one every time.
        self._touched: dict[RequestId, None] = {}
        self._held: dict[int, int] = {}
        self.before = {
            PagesAllocated: self._before_allocated,
            PagesFreed: self._before_freed,
            NodeCreated: self._before_created,
            SwaRecovered: self._before_recovered,
            RequestClosed: self._before_closed,
        }
        self.after = {
            RequestOpened: self._after_opened,
            RequestRowChanged: self._after_changed,
            LockReleased: self._after_released,
        }

    def resume(self) -> None:
        """Each request holds the pages that read its code."""
        at = self.state.full_at
        codes, counts = np.unique(at[at <= FIRST_REQUEST_CODE], return_counts=True)
        self._held = dict(zip(codes.tolist(), counts.tolist(), strict=True))

    def _before_allocated(self, event: PagesAllocated, request: Request | None) -> None:
        if request is not None:
            self._held[request.code] = self._held.get(request.code, 0) + len(event.full_pages)
            if event.row_start != request.row_pages:
                self._touched[request.id] = None

    def _before_freed(self, event: PagesFreed, request: Request | None) -> None:
        if request is not None and event.pool is not Pool.SWA:
            self._held[request.code] = self._held.get(request.code, 0) - len(event.full_pages)
            self._touched[request.id] = None
        elif request is not None:
            self._in_order(event, request)

    def _in_order(self, event: PagesFreed, request: Request) -> None:
        """A request gives SWA back from the front of what is its own, leaves none behind, and keeps a window.

        Its last token stands in the last page of its row at most, and attends to a window before that page.
        """
        lease = None if request.lease is None else self.state.leases.get(request.lease)
        protected = 0 if lease is None else lease.length // self.state.page_size
        own = request.row[protected:]
        mapped = self.state.mapping.take(own, mode="clip") != 0
        first = int(mapped.argmax()) if len(own) else 0
        frontier = protected + first + len(event.full_pages)
        kept = max(0, request.row_pages - 1 - self.state.window_span // self.state.page_size)
        if frontier > kept:
            self.findings.add(
                "row-safety",
                f"SWA is given back before page {frontier} of a row of {request.row_pages}, whose last token "
                f"may attend to page {kept} and all after it",
                request=request.id,
                pages=event.full_pages[kept - frontier :],
            )
        if not same(own[first : first + len(event.full_pages)], event.full_pages):
            self.findings.add(
                "well-formed",
                "SWA is given back out of the order of the row",
                request=request.id,
                pages=event.full_pages,
            )

    def _before_created(self, event: NodeCreated, parent: object) -> None:
        self._taken(event.full_pages)

    def _before_recovered(self, event: SwaRecovered, node: object) -> None:
        self._taken(event.incoming_full)

    def _taken(self, pages: Pages) -> None:
        code = self.state.full_at.item(pages.item(0))
        if code <= FIRST_REQUEST_CODE:
            self._held[code] = self._held.get(code, 0) - len(pages)

    def _before_closed(self, event: RequestClosed, request: Request) -> None:
        held = self._held.pop(request.code, 0)
        if held:
            self.findings.add(
                "row-safety",
                f"the request closes although it still holds {held} pages",
                request=request.id,
                pages=np.flatnonzero(self.state.full_at == request.code).astype(PAGES),
            )

    # A request may be gone by the end of the transaction: what an event says of its row is true at once.

    def _after_opened(self, event: RequestOpened, lease: object) -> None:
        self._compare(self.state.requests[event.request_id])

    def _after_changed(self, event: RequestRowChanged, request: Request) -> None:
        self._compare(request)
        self._touched.pop(request.id, None)

    def _after_released(self, event: LockReleased, lease: object) -> None:
        if event.request_id is not None:
            self._touched[event.request_id] = None

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Compare the row of every request that was touched. Cost O(pages of those rows)."""
        for request_id in self._touched:
            request = self.state.requests.get(request_id)
            if request is not None:
                self._compare(request)
        self._touched.clear()

    def _compare(self, request: Request) -> None:
        state = self.state
        lease = None if request.lease is None else state.leases.get(request.lease)
        row = request.row
        if request.lease is not None and lease is None:
            self.findings.add(
                "row-safety",
                f"the row stands on lease {request.lease}, which is not held",
                request=request.id,
                pages=row,
            )
            return
        shared = 0 if lease is None else lease.length // state.page_size
        own = row[shared:]
        held = self._held.get(request.code, 0)
        # A row is written again, so its index is not to be remembered.
        if not all_read(state.full_at, own.astype(np.intp), request.code):
            strange = own[state.full_at[own] != request.code]
            self.findings.add(
                "row-safety",
                f"the row names pages past its locked {shared} that the request does not hold",
                request=request.id,
                pages=strange,
            )
        elif held != len(own) or (lease is None and len(row)):
            self.findings.add(
                "row-safety",
                f"the request holds {held} pages, but its row names {len(own)} of its own",
                request=request.id,
                pages=np.setdiff1d(np.flatnonzero(state.full_at == request.code), own),
            )
        if lease is None or shared == 0:
            return
        path = state.path(lease.node)
        pieces = [node.full for node in path]
        if not same_in_pieces(pieces, [row[:shared]]):
            locked = joined(pieces)
            node = None if lease.node is None else lease.node.id
            if len(locked) != shared or len(row) < shared:
                sentence = (
                    f"the row has {len(row)} pages, its lease reaches {shared}, the locked path {len(locked)}"
                )
                wrong = row[:shared]
            else:
                sentence = "the row names other pages than the path it has locked"
                wrong = row[:shared][locked != row[:shared]]
            self.findings.add("row-safety", sentence, request=request.id, node=node, pages=wrong)
