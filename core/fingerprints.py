"""When the journal gets checksums of KV: at both ends of a lock, and at a recovery within it.

The first Full lock of a node is followed by `kv_fingerprinted`, the release of its last one preceded by it,
and an insert that recovered locked nodes followed by it. Sums are by page, so a split needs none. The memory
is asked once for each of these, whatever the number of nodes; where the setting is off nothing is asked and
nothing walked.

No KV is written while a transaction is open, and pages are published only after their KV was written: what
is read here is what whoever holds the lock reads.

Where the memory fails, a lock is refused: nothing is held without evidence, and the caller may try again. A
release and a recovery go on, for locks must be releasable on a device that is gone; `kv_unread` then tells
that the evidence is missing.
"""

from typing import Any

import numpy as np

from kvledger.core.errors import CacheError, InvariantViolation, KVUnreadable
from kvledger.core.events import FingerprintReason, KvFingerprinted, KvUnread, Sums
from kvledger.core.node import Node
from kvledger.core.page_arrays import widened
from kvledger.core.transaction import Ledger


def locked_once(node: Node | None) -> list[Node]:
    """The nodes from `node` up that have one Full lock, root side first: counts do not fall towards the root.

    Right after a lock of `node` these are the ones that it was the first to lock, right before a release
    those that have no lock afterwards. O(such nodes).
    """
    path: list[Node] = []
    while node is not None and node.parent is not None and node.full_lock == 1:
        path.append(node)
        node = node.parent
    path.reverse()
    return path


def fingerprint(ledger: Ledger, nodes: list[Node], reason: FingerprintReason) -> None:
    """Journal the sums of all pages of `nodes` as they are now, with one call of the memory. O(their bytes).

    For a lock KVUnreadable where the memory fails, InvariantViolation where it answers for other than the
    pages it was asked about. Anything else goes on, and what failed is journaled instead.
    """
    if ledger.state.fingerprint is None or not nodes:
        return
    try:
        found = _ask(ledger, nodes)
    except Exception as error:
        if reason is not FingerprintReason.LOCKED:
            _tell_unread(ledger, nodes, reason, error)
            return
        if isinstance(error, CacheError):
            raise
        pages = sum(len(node.full) for node in nodes)
        raise KVUnreadable(f"the KV of {pages} pages could not be read: {error!r}") from error
    start = 0
    for node in nodes:
        part = found[start : start + len(node.full)]
        start += len(node.full)
        swa = None if node.swa is None else _owned(part[:, 1])
        ledger.apply(KvFingerprinted(node.id, reason, node.full, _owned(part[:, 0]), swa))


def _ask(ledger: Ledger, nodes: list[Node]) -> Sums:
    """What the memory says that the pages of `nodes` sum up to: uint64[n, 2]."""
    state = ledger.state
    full = nodes[0].full if len(nodes) == 1 else np.concatenate([node.full for node in nodes])
    ask: Any = state.fingerprint
    found = ask(widened(full), widened(state.pages.peers(full)))
    if not isinstance(found, np.ndarray) or found.dtype != np.uint64 or found.shape != (len(full), 2):
        raise InvariantViolation(
            [("locked-content", f"the memory's fingerprints of {len(full)} pages are no uint64[n, 2]")]
        )
    return found


def _tell_unread(ledger: Ledger, nodes: list[Node], reason: FingerprintReason, error: Exception) -> None:
    # The words of an exception may hold anything; its name, or that of what it came from, tells no tokens.
    name = type(error.__cause__ if isinstance(error.__cause__, Exception) else error).__name__
    for node in nodes:
        ledger.apply(KvUnread(node.id, reason, node.full, name))


def _owned(sums: Sums) -> Sums:
    kept = sums.copy()
    kept.setflags(write=False)
    return kept
