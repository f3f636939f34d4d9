"""Reset: everything that hangs on the tree goes, by ordinary events, then the generation rises."""

from kvledger.core.events import CacheReset, Cause, RequestClosed
from kvledger.core.eviction import delete
from kvledger.core.held_pages import free_held
from kvledger.core.locking import release
from kvledger.core.node import parent_of
from kvledger.core.transaction import Ledger
from kvledger.core.uses import Forgotten


def reset(ledger: Ledger) -> None:
    """Release all locks, close requests and free their pages, delete all nodes. O(state)."""
    state = ledger.state
    for request in list(state.requests.values()):
        lease = request.lease
        first = request.protected // state.page_size
        if lease is not None:
            free_held(ledger, request.id, request.row_slice(first, request.row_pages), Cause.RESET)
            release(ledger, lease, by_reset=True)
        ledger.apply(RequestClosed(request.id, Cause.RESET))
    for lease in list(state.leases.values()):
        release(ledger, lease, by_reset=True)
    for node in [node for node in state.nodes.values() if not node.children]:
        while True:
            above = parent_of(node)
            delete(ledger, node, Cause.RESET)
            if above.is_root or above.children:
                break
            node = above
    ledger.apply(CacheReset(state.generation + 1))
    ledger.use(Forgotten())
