"""window-match and recency around a lock: what was matched, then touched, is what is locked.

A lock follows its match at once; only a split and the touch of its window may stand between. How far Full
reaches past a match is told in `full_length`: past the match there must be a way down the tree that reaches
there, and along which no page ends in a window of live tokens, or the match would have been longer.
"""

from kvledger.core.events import LockAcquired, NodeSplit, NodeTouched, PrefixMatched
from kvledger.core.ids import Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Node

NODES_SEARCHED = 4096
"""Nodes looked at for a way down to `full_length`; past it the claim is taken as it is.

The search only goes where no window is live, and a wide stretch of that kind is rare."""


class Acquisitions(Check):
    """Follows match, touch and lock. A lock costs the nodes of its window."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._match: PrefixMatched | None = None
        self._match_seq: Seq | None = None
        self._touched: list[Node] = []
        self._last_seq: Seq | None = None
        self.after = {
            PrefixMatched: self._after_matched,
            NodeSplit: self._after_split,
            NodeTouched: self._after_touched,
            LockAcquired: self._after_locked,
        }

    def _after_matched(self, event: PrefixMatched, node: Node | None) -> None:
        self._unlocked()
        self._match = event
        self._match_seq = self._last_seq = self.findings.seq
        self._touched = []
        if event.full_length > event.length and not self._reaches(event, node):
            self.findings.add(
                "window-match",
                f"Full is said to reach {event.full_length} where the match ends at {event.length}; no way "
                "down the tree is as long and without a live window",
                request=event.request_id,
                node=event.node,
            )
        if event.full_length % self.state.page_size:
            self.findings.add(
                "window-match",
                f"a Full length of {event.full_length} is no multiple of the page size",
                request=event.request_id,
                node=event.node,
            )

    def _reaches(self, event: PrefixMatched, node: Node | None) -> bool:
        """Whether some path below `node` reaches `full_length` and is nowhere usable past the match."""
        below = self.state.roots.get(event.namespace, {}) if node is None else node.children
        window = self.state.window
        # Before the first tombstone every live token would have made the match longer.
        pending = [(child, window) for child in below.values()]
        for _ in range(NODES_SEARCHED):
            if not pending:
                return False
            at, live = pending.pop()
            if at.swa is None:
                live = 0
            else:
                live += min(at.end, event.full_length) - at.start
                if live >= window:
                    continue
            if at.end >= event.full_length:
                return True
            pending.extend((child, live) for child in at.children.values())
        return True

    def _after_split(self, event: NodeSplit, node: Node) -> None:
        self._goes_on()

    def _after_touched(self, event: NodeTouched, nodes: list[Node]) -> None:
        if self._goes_on():
            self._touched = nodes

    def _goes_on(self) -> bool:
        """Whether the event being read still stands between a match and its lock."""
        if self._match is None or self._last_seq is None or self.findings.seq != self._last_seq + 1:
            return False
        self._last_seq = self.findings.seq
        return True

    def _after_locked(self, event: LockAcquired, node: Node | None) -> None:
        match, follows = self._match, self._goes_on()
        told = None if match is None else (match.namespace, match.request_id, match.length, match.node)
        if not follows or told != (event.namespace, event.request_id, event.length, event.node):
            self.findings.add(
                "window-match",
                f"lease {event.lease} locks {event.length} tokens that no match before it found",
                request=event.request_id,
                node=event.node,
            )
        self._match = None
        window: list[Node] = []
        while node is not None and node.start >= event.swa_from:
            window.append(node)
            node = node.parent
        window.reverse()
        if window != self._touched:
            self.findings.add(
                "recency",
                f"lease {event.lease} locks nodes {_ids(window)}; touched before it: {_ids(self._touched)}",
                request=event.request_id,
                node=event.node,
            )
        self._touched = []

    def _unlocked(self) -> None:
        match = self._match
        if match is not None:
            self.findings.add(
                "window-match",
                f"a match of {match.length} tokens is followed by no lock",
                request=match.request_id,
                node=match.node,
                seq=self._match_seq,
            )
        self._match = None

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """A match that nobody locked was no match."""
        self._unlocked()
        self._touched = []


def _ids(nodes: list[Node]) -> str:
    return " ".join(str(node.id) for node in nodes) if nodes else "none"
