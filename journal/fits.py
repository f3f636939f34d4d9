"""What every rule of `structure.py` is made of: look-ups that refuse, and the ranges that numbers must be in.

Owns `ReplayError`. Nothing here changes the state, and everything that is refused is refused by it.
"""

from typing import Any

import numpy as np

from kvledger.core.errors import JournalError
from kvledger.core.events import Pages, Sums
from kvledger.core.ids import LeaseId, NodeId, RequestId, Seq
from kvledger.journal.state import Lease, Node, Request, State

TRUE = b"\x01"
"""A true value among the bytes of a boolean array."""

LARGEST = 2**62
"""Ids, stamps and lengths stay below this: places and digests are 64-bit integers, and ids are added to."""


class ReplayError(JournalError):
    """A journal that cannot be folded: an event that does not fit the state before it.

    Attributes: `problem` (the sentence), `seq` where known, and of `node`, `lease`, `request` the
    one that the journal names although it does not exist.
    """

    def __init__(
        self,
        problem: str,
        *,
        seq: Seq | None = None,
        node: NodeId | None = None,
        lease: LeaseId | None = None,
        request: RequestId | None = None,
    ) -> None:
        self.problem = problem
        self.seq = seq
        self.node = node
        self.lease = lease
        self.request = request
        super().__init__(problem if seq is None else f"seq {seq}: {problem}")


def check_range(what: str, value: int) -> None:
    """Raise `ReplayError` for a number that is too large to be one of these."""
    if not -LARGEST < value < LARGEST:
        raise too_large(what, value)


def too_large(what: str, value: int) -> ReplayError:
    """What to raise for a number out of range."""
    return ReplayError(f"{what} {value} is too large to be one")


def node_named(state: State, node_id: NodeId) -> Node:
    """The node with this id. Raises `ReplayError` where there is none; so do the look-ups below."""
    node = state.nodes.get(node_id)
    if node is None:
        raise ReplayError(f"node {node_id} does not exist", node=node_id)
    return node


def node_or_none(state: State, node_id: NodeId | None) -> Node | None:
    """The same for an event that may name no node."""
    return None if node_id is None else node_named(state, node_id)


def lease_named(state: State, lease_id: LeaseId) -> Lease:
    """The lease with this id."""
    lease = state.leases.get(lease_id)
    if lease is None:
        raise ReplayError(f"lease {lease_id} is not held", lease=lease_id)
    return lease


def request_named(state: State, request_id: RequestId) -> Request:
    """The open request of this name."""
    request = state.requests.get(request_id)
    if request is None:
        raise ReplayError(f"request {request_id!r} is not open", request=request_id)
    return request


def check_full(state: State, pages: Pages) -> None:
    """Raise `ReplayError` where one of `pages` is no Full page.

    A mark is looked for among bytes: for the few pages of an event that is a third of numpy's price. Most
    events name one page, and that is a third again.
    """
    if len(pages) == 1:
        if 0 < pages.item() <= state.full_pages:
            return
    elif TRUE not in state.marks_full(state.index(pages), None, None, "clip").tobytes():
        return
    strange = _strange(pages, first=1, last=state.full_pages)
    raise ReplayError(f"a Full page outside 1..{state.full_pages} is named: {strange}")


def check_swa(state: State, pages: Pages) -> None:
    """As `check_full`, but 0 stands for "no peer"."""
    if len(pages) == 1:
        if 0 <= pages.item() <= state.swa_pages:
            return
    else:
        marks = state.marks_swa(state.index(pages), None, None, "clip").tobytes()
        if TRUE not in marks or marks.count(TRUE) == len(pages) - np.count_nonzero(pages):
            return
    strange = _strange(pages, first=0, last=state.swa_pages)
    raise ReplayError(f"an SWA page outside 0..{state.swa_pages} is named: {strange}")


def _strange(pages: Pages, *, first: int, last: int) -> int:
    return int(pages[(pages < first) | (pages > last)][0])


def unequal(event: Any, count: int, *arrays: Pages | Sums) -> ReplayError:
    """What to raise where not all of `arrays` have `count` pages."""
    node = getattr(event, "node", None)
    what = event.kind if node is None else f"{event.kind} of node {node}"
    found = next((len(array) for array in arrays if len(array) != count), count)
    return ReplayError(f"{what}: {found} pages stand where there must be {count}")
