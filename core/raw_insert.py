"""Inserts by a caller that keeps its own rows: the checks that come before the first event, and the insert.

Such a caller says which part of a row is the tree's already and which part it hands over. Both are looked up,
so that a wrong row is refused as a whole and nothing has changed. A caller with a lease names that instead of
the part under it, and nothing has to be looked up again.
"""

from typing import Any

from kvledger.core.commit import journal_insert, move_lock, path_pages_after
from kvledger.core.errors import ForeignSlots, InvalidArgument, MissingSwa, StaleLease
from kvledger.core.events import Origin, Pages
from kvledger.core.inputs import PageArithmetic, Slots, as_slots, check_count, num_tokens, pack_tokens
from kvledger.core.insertion import Insertion, Row
from kvledger.core.locking import receipt
from kvledger.core.matching import walk
from kvledger.core.node import Node, parent_of
from kvledger.core.page_arrays import part_of
from kvledger.core.page_table import CALLER
from kvledger.core.results import Advanced, Inserted, Lease
from kvledger.core.row_passes import all_set, joined
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


def insert_after(
    ledger: Ledger, arithmetic: PageArithmetic, *, lease: Any, tokens: Any, slots: Any, swa_evicted_len: Any
) -> Inserted:
    """`HybridCache.insert_after`, past the check of the thread: what it returns, errors and cost as there."""
    held, row, start = row_after(
        ledger, arithmetic, lease=lease, tokens=tokens, slots=slots, swa_evicted_len=swa_evicted_len
    )
    if row.end == row.base:
        return Inserted(held.length, None if held.node is None else held.node.id, [], [])
    return insert(ledger, row, start)


def advance(
    ledger: Ledger, arithmetic: PageArithmetic, *, lease: Any, tokens: Any, slots: Any, swa_evicted_len: Any
) -> Advanced:
    """`HybridCache.advance`, past the check of the thread: what it returns, errors and cost as there."""
    held, row, start = row_after(
        ledger, arithmetic, lease=lease, tokens=tokens, slots=slots, swa_evicted_len=swa_evicted_len
    )
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
    accepted = moved.length // page
    if insertion.took_all(accepted):
        pages = part_of(row.incoming, 0, accepted - row.base)
    else:
        pages = path_pages_after(moved.node, row.base, accepted, page)
    if row.base:
        pages = joined([lease._pages, pages])
        pages.setflags(write=False)
    return Advanced(receipt(moved, pages, arithmetic), end - moved.length)


def _held(ledger: Ledger, lease: Any) -> LeaseState:
    """The state of a lease that goes on being held. InvalidArgument, StaleLease."""
    if not isinstance(lease, Lease):
        raise InvalidArgument(f"insert_after and advance need a lease that acquire returned, not {lease!r}")
    held = ledger.state.leases.get(lease.id)
    if lease.request_id is not None:
        raise InvalidArgument(f"lease {lease.id} belongs to request {lease.request_id!r}")
    if held is None or held is not lease._state:
        raise StaleLease(
            f"lease {lease.id} was released before, cut by a reset, or acquired in an undone transaction"
        )
    return held


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
    incoming = part_of(pages, base, end)
    row = _row(state, namespace, key=key, incoming=incoming, base=base, dead=dead, end=end)
    start = _protected_end(state, namespace, key, pages[:base]) if base else state.root_or_new(namespace)
    return row, start


def row_after(
    ledger: Ledger, arithmetic: PageArithmetic, *, lease: Any, tokens: Any, slots: Any, swa_evicted_len: Any
) -> tuple[LeaseState, Row, Node]:
    """The state of a lease and the same for what continues the prefix under it, which nobody has to look up.

    InvalidArgument for what is no lease of the raw caller's, StaleLease for one that does not hold. O(n).
    """
    state = ledger.state
    held = _held(ledger, lease)
    key = pack_tokens(tokens)
    own_slots = as_slots(slots)
    dead_tokens = check_count(swa_evicted_len, "swa_evicted_len")
    count = num_tokens(key)
    base = held.length // state.page_size
    dead = arithmetic.whole(dead_tokens, "swa_evicted_len")
    end = base + arithmetic.whole(count, "number of tokens")
    if len(own_slots) != count:
        raise InvalidArgument(f"{len(own_slots)} slots for {count} tokens")
    if dead > end:
        raise InvalidArgument(f"swa_evicted_len {dead_tokens} lies past the end {held.length + count}")
    pages = arithmetic.to_pages(own_slots)
    row = _row(state, held.namespace, key=key, incoming=pages, base=base, dead=dead, end=end, key_start=base)
    return held, row, state.root_or_new(held.namespace) if held.node is None else held.node


def _row(
    state: CacheState,
    namespace: str,
    *,
    key: bytes,
    incoming: Pages,
    base: int,
    dead: int,
    end: int,
    key_start: int = 0,
) -> Row:
    """A row of the raw caller's whose pages are found to be its own. DoubleFree, ForeignSlots, MissingSwa."""
    peers, run = _peers(state, incoming, dead - base)
    return Row(
        namespace,
        key=key,
        incoming=incoming,
        peers=peers,
        base=base,
        dead=dead,
        end=end,
        owner=None,
        origin=Origin(None, state.next_epoch),
        key_start=key_start,
        run=run,
    )


def _peers(state: CacheState, incoming: Pages, dead: int) -> tuple[Pages, bool]:
    """The SWA peers of incoming pages, which must be the caller's, and have one from index `dead` on.

    And whether the pages are found to be a run.
    """
    at = state.pages.check_owned(incoming, CALLER, "insert")
    peers = state.pages.peers_at(at)
    living = peers if dead <= 0 else peers[dead:]
    if not all_set(living):
        page = int(incoming[len(incoming) - len(living) :][living == 0][0])
        raise MissingSwa(f"page {page} at or past swa_evicted_len has no SWA peer")
    peers.setflags(write=False)
    return peers, type(at) is slice


def _protected_end(state: CacheState, namespace: str, key: bytes, protected: Pages) -> Node:
    """The last node that ends within the protected part, which must be the tree's own pages."""
    found = walk(state, namespace, key, len(protected) * state.page_bytes)
    page = state.page_size
    if found.reached // page < len(protected):
        raise ForeignSlots(f"protected tokens past {found.reached} are not in the tree")
    own = joined([node.full for node in found.path])[: len(protected)]
    differs = protected != own
    if differs.any():
        at = int(differs.argmax()) * page
        node = next(node for node in found.path if node.end > at)
        raise ForeignSlots(f"protected slots from token {at} on are not those of node {node.id}")
    last = found.path[-1]
    return last if last.end == found.reached else parent_of(last)
