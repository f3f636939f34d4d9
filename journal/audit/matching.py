"""window-match, insert-match and namespace: what a lock, a commit and a name may claim of the tree."""

from kvledger.core.events import (
    LockAcquired,
    NodeCreated,
    PrefixInserted,
    PrefixMatched,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    SwaRecovered,
)
from kvledger.core.ids import NodeId, RequestId, Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Lease, Node, Request


class Matching(Check):
    """Checks each match, lock and commit against the tree as the fold knows it."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pending: dict[RequestId | None, tuple[Seq, PrefixInserted]] = {}
        self._filled: list[tuple[NodeId, str]] = []
        self.after = {
            PrefixMatched: self._after_matched,
            LockAcquired: self._after_locked,
            PrefixInserted: self._after_inserted,
            NodeCreated: self._after_created,
            SwaRecovered: self._after_recovered,
            RequestOpened: self._after_opened,
            RequestClosed: self._after_closed,
            RequestRowChanged: self._after_row_changed,
        }

    def _after_matched(self, event: PrefixMatched, node: Node | None) -> None:
        self.counts["matches"] += 1
        end = 0 if node is None else node.end
        if end != event.length or event.full_length < event.length:
            self.findings.add(
                "window-match",
                f"a match of {event.length} tokens, Full {event.full_length}, names a node ending at {end}",
                request=event.request_id,
                node=event.node,
            )
        if node is not None:
            self._same_namespace(node.namespace, event.namespace, "matched", event.request_id, node.id)
        insert = self._pending.pop(event.request_id, None)
        if insert is not None and insert[1].length != event.length:
            self.findings.add(
                "insert-match",
                f"the tree accepted {insert[1].length} tokens at seq {insert[0]}, "
                f"but the match after it found {event.length}",
                request=event.request_id,
                node=event.node,
            )

    def _after_locked(self, event: LockAcquired, node: Node | None) -> None:
        state = self.state
        swa_from = max(0, event.length - state.window_span)
        end = 0 if node is None else node.end
        if end != event.length or event.swa_from != swa_from:
            self._no_match(
                event,
                node,
                f"a lock of {event.length} tokens with SWA from {event.swa_from} is put on a node that ends "
                f"at {end}; its SWA must begin at {swa_from}",
            )
        if node is None:
            return
        self._same_namespace(node.namespace, event.namespace, "locked", event.request_id, node.id)
        at: Node | None = node
        while at is not None and at.end > swa_from:
            if at.swa is None:
                self._no_match(
                    event,
                    at,
                    f"a lock of {event.length} tokens has only {end - at.end} live tokens since the "
                    f"tombstone before them; the window is {state.window}",
                )
                break
            if at.start < swa_from:
                self._no_match(
                    event, at, f"the SWA lock begins at {swa_from}, inside a node that was not split there"
                )
            at = at.parent

    def _no_match(self, event: LockAcquired, node: Node | None, sentence: str) -> None:
        self.findings.add(
            "window-match",
            sentence,
            request=event.request_id,
            node=None if node is None else node.id,
            pages=None if node is None else node.full,
        )

    # A commit of an unfinished request.

    def _after_inserted(self, event: PrefixInserted, subject: None) -> None:
        self.counts["inserts"] += 1
        for node_id, namespace in self._filled:
            self._same_namespace(namespace, event.namespace, "filled", event.request_id, node_id)
        self._filled.clear()
        request_id = event.request_id
        # A raw insert is matched again where its caller moves a lease, which alone lets a part be refused.
        if (request_id is not None or event.refused) and self.findings.seq is not None:
            self._pending[request_id] = (self.findings.seq, event)

    def _after_closed(self, event: RequestClosed, request: Request) -> None:
        # The insert before it was that of a finish, which nothing has to match.
        self._pending.pop(event.request_id, None)

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """A running request's insert is matched again; where a commit is refused as a whole there is none."""
        for request_id, (seq, _) in self._pending.items():
            if request_id is None or request_id in self.state.requests:
                raw = request_id is None
                who = "a raw insert refused in part" if raw else "the commit of an unfinished request"
                self.findings.add(
                    "insert-match",
                    f"{who} was not matched again in its transaction",
                    request=request_id,
                    seq=seq,
                )
        self._pending.clear()
        self._filled.clear()

    # Names.

    def _after_created(self, event: NodeCreated, parent: Node | None) -> None:
        self._filled.append((event.node, event.namespace))
        if parent is not None:
            self._same_namespace(parent.namespace, event.namespace, "extended", None, event.node)

    def _after_recovered(self, event: SwaRecovered, node: Node) -> None:
        self._filled.append((node.id, node.namespace))

    def _after_opened(self, event: RequestOpened, lease: Lease) -> None:
        self.counts["requests"] += 1
        self._lease_namespace(lease, event.namespace, event.request_id)

    def _after_row_changed(self, event: RequestRowChanged, request: Request) -> None:
        if event.lease is None:
            # A retract: like a finish, it publishes without a match.
            self._pending.pop(request.id, None)
        else:
            self._lease_namespace(self.state.leases[event.lease], request.namespace, request.id)

    def _lease_namespace(self, lease: Lease, namespace: str, request_id: RequestId) -> None:
        node = None if lease.node is None else lease.node.id
        self._same_namespace(lease.namespace, namespace, "used", request_id, node)

    def _same_namespace(
        self, found: str, asked: str, verb: str, request_id: RequestId | None, node: NodeId | None
    ) -> None:
        if found != asked:
            self.findings.add(
                "namespace",
                f"a path of namespace {found!r} is {verb} from namespace {asked!r}",
                request=request_id,
                node=node,
            )
