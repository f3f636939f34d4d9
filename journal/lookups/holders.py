"""Since when a lock is held, and by whom: the events that gave leases.

No index knows leases. They are found by bisection (births.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvledger.core.errors import InvalidArgument
from kvledger.core.ids import LeaseId, NodeId, RequestId, Seq, TxnId
from kvledger.journal.lookups.births import acquisitions
from kvledger.journal.lookups.questions import LookUpSource

MAX_LEASES = 1_000
"""Leases of one question: each costs some twenty reads of an index, a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lease, and the event that gave it; `time_us` is microseconds since 1970.

    `node` is where the lock begins, None for an empty one; `request_id` is None for a raw `acquire`. All but
    `lease` are None where that event is not stored here.
    """

    lease: LeaseId
    node: NodeId | None
    request_id: RequestId | None
    seq: Seq | None
    transaction: TxnId | None
    time_us: int | None


def holders(
    source: LookUpSource, leases: Sequence[int], *, upto_seq: int | None = None
) -> tuple[Holder, ...]:
    """One for each lease, in the order given, from what is stored at or before `upto_seq`.

    A lease that an undone part gave was never held: it is told as one that is not stored. Raises
    InvalidArgument for more than `MAX_LEASES`. Cost: O(log(lock_acquired events)) look-ups for each lease;
    in files one walk.
    """
    if len(leases) > MAX_LEASES:
        raise InvalidArgument(f"one question names at most {MAX_LEASES} leases, not {len(leases)}")
    found = acquisitions(source, leases, upto_seq=upto_seq)
    answer = []
    for lease in leases:
        one = found.get(lease)
        if one is None or one.undone:
            answer.append(Holder(LeaseId(lease), None, None, None, None, None))
        else:
            event: Any = one.event
            answer.append(
                Holder(event.lease, event.node, event.request_id, one.seq, one.transaction, one.time_us)
            )
    return tuple(answer)
