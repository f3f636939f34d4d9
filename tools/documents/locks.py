"""Documents of locks: which leases lock a node, whose they are, and since when each is held."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from kvledger.core.ids import NodeId
from kvledger.journal import LookUpSource
from kvledger.journal.lookups.holders import MAX_LEASES, Holder, holders
from kvledger.journal.state import Lease, Node, State
from kvledger.tools.documents.lookups import utc


class HolderDocument(BaseModel):
    """One lease: it locks the Full of tokens [0, length), and the SWA from `swa_from` on until given back.

    `since_seq`, `since` (UTC) and `transaction` are of the event that gave it; None where that is not stored.
    """

    model_config = ConfigDict(frozen=True)

    lease: int
    request: str | None
    node: int | None
    length: int
    swa_from: int | None
    since_seq: int | None
    since: str | None
    transaction: int | None

    def line(self) -> str:
        """The lease as one line of text."""
        who = "a raw acquire" if self.request is None else self.request
        swa = "SWA given back" if self.swa_from is None else f"SWA from {self.swa_from:,}"
        since = "since before what is stored here"
        if self.since_seq is not None:
            since = f"since seq {self.since_seq}, {self.since}"
        return f"lease {self.lease} of {who}: {self.length:,} tokens, {swa}; {since}"


def locking(state: State, node: Node) -> list[Lease]:
    """The leases whose locked path has `node`, oldest first. Cost: O(leases and locked nodes below it)."""
    by_node: dict[NodeId, list[Lease]] = {}
    for lease in state.leases.values():
        if lease.node is not None:
            by_node.setdefault(lease.node.id, []).append(lease)
    found: list[Lease] = []
    pending = [node]
    while pending:
        one = pending.pop()
        if one.full_lock:
            found += by_node.get(one.id, ())
            pending += one.children.values()
    return sorted(found, key=lambda lease: lease.id)


def holder_documents(
    source: LookUpSource, leases: Iterable[Lease], *, upto_seq: int
) -> dict[int, HolderDocument]:
    """The documents of leases held at `upto_seq`, by lease. Cost: a few look-ups for each; in files a walk
    for each `MAX_LEASES`.
    """
    held = list(leases)
    births: list[Holder] = []
    for first in range(0, len(held), MAX_LEASES):
        asked = [lease.id for lease in held[first : first + MAX_LEASES]]
        births += holders(source, asked, upto_seq=upto_seq)
    return {
        lease.id: HolderDocument(
            lease=lease.id,
            request=lease.request_id,
            node=None if lease.node is None else lease.node.id,
            length=lease.length,
            swa_from=lease.swa_from if lease.swa_held else None,
            since_seq=birth.seq,
            since=None if birth.time_us is None else utc(birth.time_us),
            transaction=birth.transaction,
        )
        for lease, birth in zip(held, births, strict=True)
    }
