"""Inserts by a caller that keeps its own rows: the checks that come before the first event, and the insert.

Such a caller says which part of a row is the tree's already and which part it hands over. Both are looked up,
so that a wrong row is refused as a whole and nothing has changed. A caller with a lease names that instead of
the part under it, and nothing has to be looked up again.
"""

import numpy as np

from kvledger.core.commit import journal_insert, move_lock, path_pages_after
from kvledger.core.errors import ForeignSlots, InvalidArgument, MissingSwa
from kvledger.core.events import Origin, Pages
from kvledger.core.inputs import PageArithmetic, Slots, num_tokens
from kvledger.core.insertion import Insertion, Row
from kvledger.core.matching import walk
from kvledger.core.node import Node, owned_part, parent_of
from kvledger.core.page_table import CALLER
from kvledger.core.results import Advanced, Inserted, Lease
from kvledger.core.state import CacheState, LeaseState
from kvledger.core.transaction import Ledger, Scope


def insert(ledger: Ledger, row: Row, start: Node) -> Inserted:
    """Insert a row from the node it begins behind. O(pages of the row + nodes passed)."""
    if row.end == 0:
        return Inserted(0, None, [], [])
    with Scope(ledger, "insert"):
        ledger.state.new_epoch()  # the row's: nothing that was refused has used one up
        insertion = Insertion(ledger, row, touch=True)
        insertion.run(start, start.end // ledger.state.page_size)
        told = journal_insert(ledger, insertion, row.end)
        last = insertion.steps[-1].node if insertion.steps else start
    last_id = None if last.is_root else last.id
    return Inserted(told.prefix_len, last_id, list(told.adopted_full), list(told.adopted_swa))


def advance(
    ledger: Ledger, arithmetic: PageArithmetic, *, lease: Lease, held: LeaseState, row: Row, start: Node
) -> Advanced:
    """Insert a row behind a lease and lock what a match then reaches; InvalidArgument for a dead end."""
    if row.end == row.base:
        return Advanced(lease, 0)
    page, window = ledger.state.page_size, ledger.state.window
    end = row.end * page
    given_back = row.dead if row.dead > row.base else 0
    if not held.swa_held:
        # Eviction may take the window behind the lease at any time, so the row has to bring one of its own.
        given_back = max(row.dead, row.base)
    if given_back and end < given_back * page + window:
        raise InvalidArgument(
            f"{end} tokens end less than a window of {window} past {given_back * page}, before which SWA was "
            f"given back: nobody could reuse them"
        )
    with Scope(ledger, "advance"):
        ledger.state.new_epoch()
        insertion = Insertion(ledger, row, touch=False)
        insertion.run(start, row.base)
        moved = move_lock(insertion, held, None)
    if moved is None:
        return Advanced(lease, end - held.length)
    pages = path_pages_after(moved.node, row.base, moved.length // page, page)
    if row.base:
        pages = np.concatenate((lease._pages, pages))
        pages.setflags(write=False)
    return Advanced(Lease.of(moved, pages, arithmetic), end - moved.length)


def insert_row(
    state: CacheState,
    arithmetic: PageArithmetic,
    *,
    key: bytes,
    slots: Slots,
    namespace: str,
    protected_len: int,
    swa_evicted_len: int,
) -> tuple[Row, Node]:
    """The row to insert and the node to insert it from; typed refusals as `HybridCache.insert`. O(n)."""
    tokens = num_tokens(key)
    base = arithmetic.whole(protected_len, "protected_len")
    dead = arithmetic.whole(swa_evicted_len, "swa_evicted_len")
    end = arithmetic.whole(tokens, "number of tokens")
    if len(slots) != tokens:
        raise InvalidArgument(f"{len(slots)} slots for {tokens} tokens")
    for name, value in (("protected_len", protected_len), ("swa_evicted_len", swa_evicted_len)):
        if value > tokens:
            raise InvalidArgument(f"{name} {value} lies past the end {tokens}")
    pages = arithmetic.to_pages(slots)
    incoming = owned_part(pages, base, end)
    peers = _peers(state, incoming, dead - base)
    start = _protected_end(state, namespace, key, pages[:base]) if base else state.root_or_new(namespace)
    origin = Origin(None, state.next_epoch)
    return Row(namespace, key, incoming, peers, base, dead, end, None, origin), start


def row_after(
    state: CacheState,
    arithmetic: PageArithmetic,
    *,
    lease: LeaseState,
    key: bytes,
    slots: Slots,
    swa_evicted_len: int,
) -> tuple[Row, Node]:
    """The same for tokens and slots that continue a locked prefix, which nobody has to look up. O(n)."""
    tokens = num_tokens(key)
    base = lease.length // state.page_size
    dead = arithmetic.whole(swa_evicted_len, "swa_evicted_len")
    end = base + arithmetic.whole(tokens, "number of tokens")
    if len(slots) != tokens:
        raise InvalidArgument(f"{len(slots)} slots for {tokens} tokens")
    if dead > end:
        raise InvalidArgument(f"swa_evicted_len {swa_evicted_len} lies past the end {lease.length + tokens}")
    pages = arithmetic.to_pages(slots)
    peers = _peers(state, pages, dead - base)
    start = state.root_or_new(lease.namespace) if lease.node is None else lease.node
    origin = Origin(None, state.next_epoch)
    return Row(lease.namespace, key, pages, peers, base, dead, end, None, origin, base), start


def _peers(state: CacheState, incoming: Pages, dead: int) -> Pages:
    """The SWA peers of incoming pages, which must be the caller's, and have one from index `dead` on."""
    state.pages.check_owned(incoming, CALLER, "insert")
    peers = state.pages.peers(incoming)
    living = peers if dead <= 0 else peers[dead:]
    if not living.all():
        page = int(incoming[len(incoming) - len(living) :][living == 0][0])
        raise MissingSwa(f"page {page} at or past swa_evicted_len has no SWA peer")
    return peers


def _protected_end(state: CacheState, namespace: str, key: bytes, protected: Pages) -> Node:
    """The last node that ends within the protected part, which must be the tree's own pages."""
    found = walk(state, namespace, key, len(protected) * state.page_bytes)
    page = state.page_size
    if found.reached // page < len(protected):
        raise ForeignSlots(f"protected tokens past {found.reached} are not in the tree")
    own = np.concatenate([node.full for node in found.path])[: len(protected)]
    differs = protected != own
    if differs.any():
        at = int(differs.argmax()) * page
        node = next(node for node in found.path if node.end > at)
        raise ForeignSlots(f"protected slots from token {at} on are not those of node {node.id}")
    last = found.path[-1]
    return last if last.end == found.reached else parent_of(last)
