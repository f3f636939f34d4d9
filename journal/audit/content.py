"""locked-content: what lies in locked pages is what lay there when the lock was taken, byte for byte.

Every other invariant asks which page belongs to whom; this one asks what is in them, by the fingerprints that
a cache with the setting `fingerprints` journals. Of each Full page the first sum under the present locks of
its node is kept, with its seq, and what comes later has to equal it; the next first lock begins anew. The
same goes for the SWA beside it, from lock or recovery on, while the node stays live. Where the setting is on
and a fingerprint is missing, that is a finding too: nothing would be known. Where the cache says itself that
the memory could not be read (`kv_unread`) it is none, but what those pages held is unverified.

Sums are kept by page, so a split changes nothing. After a checkpoint the sums of locks that began before it
are unknown and start with the next fingerprint. The setting is then the one in the journal's own row; where
that is not there it is unknown too, until a fingerprint tells that it is on.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvledger.core.events import (
    FingerprintReason,
    KvFingerprinted,
    KvUnread,
    LockAcquired,
    LockReleased,
    NodeDeleted,
    NodeSplit,
    Pages,
    RecoveryMode,
    Sums,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import NodeId, Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.audit.locks import Locks
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Lease, Node

NO_SUM = 0
"""Stands for the seq of a sum where nothing was fingerprinted since the node was locked."""

UNKNOWN = -1
"""The same where the lock is older than what is read."""

SETTING = "fingerprints"
"""Its name in the configuration of `cache_opened`."""


@dataclass(slots=True)
class _Kept:
    """Per Full page the first sum of one pool's KV, and the seq of the event that told it."""

    sums: Sums
    seqs: npt.NDArray[np.int64]

    @classmethod
    def of(cls, pages: int) -> "_Kept":
        return cls(np.zeros(pages, np.uint64), np.zeros(pages, np.int64))


class Content(Check):
    """Compares fingerprints. Costs the pages they name; nothing in a journal that says that it has none."""

    def __init__(self, context: Context, *, locks: Locks) -> None:
        super().__init__(context)
        self._locks = locks
        self._on = context.fingerprints
        self._full = _Kept.of(0)
        self._swa = _Kept.of(0)
        self._since: dict[NodeId, Seq] = {}
        self._awaited: dict[NodeId, tuple[FingerprintReason, Seq]] = {}
        self._leaving: dict[NodeId, Seq] = {}
        self.before = {KvFingerprinted: self._unexpected, KvUnread: self._unexpected}
        if self._on is False:
            return
        self._full, self._swa = (_Kept.of(self.state.full_pages + 1) for _ in range(2))
        self.before = {
            KvFingerprinted: self._fingerprinted,
            KvUnread: self._unread,
            LockReleased: self._before_released,
            NodeDeleted: self._before_deleted,
            SwaTombstoned: self._before_tombstoned,
        }
        self.after = {
            LockAcquired: self._after_acquired,
            NodeSplit: self._after_split,
            SwaRecovered: self._after_recovered,
        }

    def resume(self) -> None:
        """What was fingerprinted before the checkpoint is not known. Cost O(nodes and their pages)."""
        if self._on is False:
            return
        for node in self.state.nodes.values():
            if node.full_lock > 0:
                self._full.seqs[node.full] = UNKNOWN

    # What calls for a fingerprint.

    def _after_acquired(self, event: LockAcquired, node: Node | None) -> None:
        self._missing()
        for locked in _locked_once(node):
            # Whatever is known of its pages is of earlier locks, or of other nodes.
            at = locked.full.astype(np.intp)
            self._full.seqs[at] = NO_SUM
            self._swa.seqs[at] = NO_SUM
            self._await(locked, FingerprintReason.LOCKED)

    def _after_recovered(self, event: SwaRecovered, node: Node) -> None:
        if event.mode is RecoveryMode.ADOPT_INCOMING:
            # New pages have no sum under the node's locks, whoever had them before.
            self._full.seqs[node.full] = NO_SUM
        if node.full_lock > 0:
            self._await(node, FingerprintReason.RECOVERED)

    def _await(self, node: Node, reason: FingerprintReason) -> None:
        self._awaited[node.id] = (reason, self.findings.seq or Seq(0))

    def _before_released(self, event: LockReleased, lease: Lease) -> None:
        self._missing()
        leaving, self._leaving = self._leaving, {}
        for node in _locked_once(lease.node):
            if leaving.pop(node.id, None) is None and self._on:
                self._no_evidence(node, "the last lock of a node is released and nobody looked what it held")
            self._since.pop(node.id, None)
        self._stayed_locked(leaving)

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        self._since.pop(node.id, None)

    def _before_tombstoned(self, event: SwaTombstoned, node: Node) -> None:
        self._swa.seqs[node.full] = NO_SUM

    def _after_split(self, event: NodeSplit, node: Node) -> None:
        since = self._since.get(node.id)
        if since is not None:
            self._since[event.head] = since

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Whatever a transaction locks or recovers it fingerprints itself."""
        if self._awaited:
            self._missing()
        if self._leaving:
            leaving, self._leaving = self._leaving, {}
            self._stayed_locked(leaving)

    def _missing(self) -> None:
        """What was awaited did not come."""
        awaited, self._awaited = self._awaited, {}
        for node_id, (reason, seq) in awaited.items():
            node = self.state.nodes.get(node_id)
            if self._on and node is not None:
                self._no_evidence(node, f"a node was {reason} and nobody looked what it held", seq=seq)
                if reason is FingerprintReason.LOCKED:
                    self._full.seqs[node.full] = UNKNOWN

    def _no_evidence(self, node: Node, sentence: str, *, seq: Seq | None = None) -> None:
        self._locks.report("locked-content", node, node.full, f"evidence is missing: {sentence}", seq=seq)

    def _stayed_locked(self, leaving: dict[NodeId, Seq]) -> None:
        for node, seq in leaving.items():
            self._misplaced(node, FingerprintReason.UNLOCKED, seq=seq)

    # What a fingerprint tells.

    def _unexpected(self, event: KvFingerprinted | KvUnread, node: Node) -> None:
        self.findings.add(
            "well-formed", "KV was fingerprinted by a cache whose configuration says no", node=node.id
        )

    def _fingerprinted(self, event: KvFingerprinted, node: Node) -> None:
        self.counts["pages_fingerprinted"] += len(node.full)
        self._place(event, node)
        if event.reason is FingerprintReason.LOCKED:
            self._since[node.id] = self.findings.seq or Seq(0)
        else:
            self._find_strange(node)
        self._compare(self._full, event.full_sums, node, "Full")
        if event.swa_sums is not None:
            self._compare(self._swa, event.swa_sums, node, "SWA")

    def _unread(self, event: KvUnread, node: Node) -> None:
        self.counts["pages_content_unread"] += len(node.full)
        self._place(event, node)
        if event.reason is FingerprintReason.LOCKED:
            self._no_evidence(node, "a node was locked although the memory could not be read")
        else:
            self._find_strange(node)
        # Neither a finding that was told is to be told again, nor pages called strange that nobody looked at.
        seqs, at = self._full.seqs, node.full.astype(np.intp)
        seqs[at[seqs[at] == NO_SUM]] = UNKNOWN

    def _place(self, event: KvFingerprinted | KvUnread, node: Node) -> None:
        """Hold a fingerprint, or what stands for one, to what calls for it here."""
        self._on = True
        if not np.array_equal(event.full_pages, node.full):
            self.findings.add(
                "well-formed",
                "a fingerprint names other Full pages than its node has",
                node=node.id,
                pages=event.full_pages,
            )
        if event.reason is FingerprintReason.UNLOCKED:
            if node.id in self._leaving:
                self._misplaced(node.id, event.reason)
            self._leaving[node.id] = self.findings.seq or Seq(0)
        elif self._awaited.pop(node.id, (None, 0))[0] is not event.reason:
            self._misplaced(node.id, event.reason)

    def _find_strange(self, node: Node) -> None:
        """Report pages that came to the node under its lock: what was locked is somewhere else now."""
        strange = node.full[self._full.seqs[node.full] == NO_SUM]
        if len(strange):
            since = self._since.get(node.id)
            then = "" if since is None else f", fingerprinted at seq {since}"
            told = f"a locked node holds other Full pages than when it was locked{then}"
            self._changed(node, strange, told)

    def _compare(self, kept: _Kept, sums: Sums, node: Node, pool: str) -> None:
        """Hold what is known of the node's pages to `sums`; of what is not, or is other, these are kept."""
        at = node.full.astype(np.intp)
        seqs = kept.seqs[at]
        known = seqs > 0
        changed = known & (kept.sums[at] != sums)
        if kept is self._full:
            self.counts["pages_compared"] += int(np.count_nonzero(known))
            self.counts["pages_content_unknown"] += int(np.count_nonzero(seqs == UNKNOWN))
        if changed.any():
            first = int(seqs[changed].min())
            told = f"the {pool} KV of a locked node is not what it was at seq {first}"
            self._changed(node, node.full[changed], told)
        anew = at[~known | changed]
        kept.sums[anew] = sums[~known | changed]
        kept.seqs[anew] = self.findings.seq or 0

    def _changed(self, node: Node, pages: Pages, sentence: str) -> None:
        self._locks.report("locked-content", node, pages, sentence)

    def _misplaced(self, node: NodeId, reason: FingerprintReason, *, seq: Seq | None = None) -> None:
        self.findings.add(
            "well-formed",
            f"a node was fingerprinted as {reason} where no such thing happens to it",
            node=node,
            seq=seq,
        )


def _locked_once(node: Node | None) -> list[Node]:
    """The nodes from `node` up with one Full lock: after a lock those it was the first of, before a release
    those it is the last of."""
    found = []
    while node is not None and node.full_lock == 1:
        found.append(node)
        node = node.parent
    return found
