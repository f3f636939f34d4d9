"""Pages in and out of a holder's hands: taken for a request or the raw caller, and given back."""

import numpy as np

from kvledger.core.errors import InvariantViolation
from kvledger.core.events import Cause, Pages, PagesAllocated, PagesFreed, Pool
from kvledger.core.ids import RequestId
from kvledger.core.row_passes import all_set, any_set
from kvledger.core.transaction import Ledger


def take_pages(
    ledger: Ledger, pages: int, *, with_swa: bool, owner: RequestId | None, row_start: int | None
) -> Pages:
    """Allocate Full pages that are known to be free, each with an SWA peer or none. O(pages)."""
    table = ledger.state.pages
    chosen = table.take(pages, pages if with_swa else 0)
    if chosen is None:
        sentence = "the allocator has fewer pages than the cache counts free"
        raise InvariantViolation([("conservation", sentence)])
    full, swa, taken = chosen
    ledger.note(lambda: table.untake(taken))
    if not with_swa:
        swa = np.zeros(pages, dtype=np.int32)
        swa.setflags(write=False)
    ledger.apply(PagesAllocated(owner, full, swa, row_start))
    return full


def free_held(ledger: Ledger, owner: RequestId | None, full: Pages, cause: Cause) -> None:
    """Give held pages back, with the peers they have. O(pages)."""
    if len(full):
        swa = ledger.state.pages.peers(full)
        pool = Pool.BOTH if any_set(swa) else Pool.FULL
        ledger.apply(PagesFreed(owner, pool, cause, full, swa))


def free_held_swa(ledger: Ledger, owner: RequestId | None, full: Pages, cause: Cause) -> None:
    """Give back the SWA peers of held pages, where they have one; the Full pages stay held. O(pages)."""
    swa = ledger.state.pages.peers(full)
    if not all_set(swa):
        full, swa = full[swa != 0], swa[swa != 0]
        full.setflags(write=False)
        swa.setflags(write=False)
    if len(full):
        ledger.apply(PagesFreed(owner, Pool.SWA, cause, full, swa))
