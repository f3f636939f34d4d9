"""What a raw insert may bring: the checks that come before its first event.

A caller that keeps its own rows says which part of one is the tree's already and which part it hands over.
Both are looked up, so that a wrong row is refused as a whole and nothing has changed.
"""

from kvledger.core.errors import ForeignSlots, InvalidArgument, MissingSwa
from kvledger.core.events import Origin, Pages
from kvledger.core.inputs import PageArithmetic, Slots, num_tokens
from kvledger.core.insertion import Row
from kvledger.core.matching import walk
from kvledger.core.page_table import CALLER
from kvledger.core.state import CacheState


def insert_row(
    state: CacheState,
    arithmetic: PageArithmetic,
    *,
    key: bytes,
    slots: Slots,
    namespace: str,
    protected_len: int,
    swa_evicted_len: int,
) -> Row:
    """The row to insert; UnalignedLength, InvalidArgument, ForeignSlots, DoubleFree, MissingSwa. O(n)."""
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
    incoming = pages[base:]
    state.pages.check_owned(incoming, CALLER, "insert")
    _check_protected(state, namespace, key, pages[:base])
    living = pages[max(base, dead) :]
    without = living[state.pages.mapping[living] == 0]
    if len(without):
        raise MissingSwa(f"page {int(without[0])} at or past swa_evicted_len has no SWA peer")
    origin = Origin(None, state.new_epoch())
    return Row(namespace, key, incoming, base, dead, end, None, origin)


def _check_protected(state: CacheState, namespace: str, key: bytes, protected: Pages) -> None:
    """The protected part must be the tree's own pages for those tokens."""
    if not len(protected):
        return
    found = walk(state, namespace, key, len(protected) * state.page_bytes)
    page = state.page_size
    if found.reached // page < len(protected):
        raise ForeignSlots(f"protected tokens past {found.reached} are not in the tree")
    for node in found.path:
        start = node.start // page
        expected = protected[start : node.end // page]
        differs = expected != node.full[: len(expected)]
        if differs.any():
            at = (start + int(differs.argmax())) * page
            raise ForeignSlots(f"protected slots from token {at} on are not those of node {node.id}")
