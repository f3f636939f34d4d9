"""The fault this project exists for, to be put back in place of `Insertion._recover`.

A tombstone is given the Full KV of whoever computed it last, although a running request holds a lock on
the node and goes on reading the slots that it loses.
"""

from kvledger.core.events import RecoveryMode, SwaRecovered
from kvledger.core.insertion import FULL_AND_SWA, Insertion
from kvledger.core.node import Node


def replace_full_whoever_reads_it(insertion: Insertion, node: Node, start: int, end: int) -> None:
    """Recovery as it was before the mend: the lock on the node is not looked at."""
    row = insertion.row
    incoming = row.part(start, end)
    state = insertion.ledger.state
    insertion.ledger.apply(
        SwaRecovered(
            node.id,
            RecoveryMode.ADOPT_INCOMING,
            node.full,
            incoming,
            state.pages.peers(incoming),
            state.ticks(),
            row.origin,
            row.origin,
        )
    )
    insertion._step(end, node, FULL_AND_SWA, 0)
