"""The writer's side of the token policies (tokens.py): each transaction becomes what is stored of it.

Once for each transaction and in order, whether it is stored in the end or given up: the hash of a node
continues from that of the node above it. Free text (the message of an exception, a caller's reason, the name
of a caller's transaction) may quote tokens, and is kept under "full" alone. An event that carries private
data and has no stored form without it is an error at import.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from kvledger.core.errors import JournalError
from kvledger.core.events import (
    EVENTS,
    CacheOpened,
    Event,
    KvFingerprinted,
    LockAcquired,
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    PrefixInserted,
    PrefixMatched,
    RequestOpened,
    RollbackCause,
    RolledBack,
    Sums,
)
from kvledger.core.ids import NodeId
from kvledger.core.sinks import PlainTokens, TokenForm, TransactionRecord
from kvledger.journal.tokens import (
    POLICY_SETTING,
    TOKEN_BYTES,
    HashedTokens,
    NoTokens,
    TokenPolicy,
    check_policy,
)

WITHHELD = "withheld"
"""Stands for words that may quote tokens."""

OWN_OPS = frozenset(
    {
        "open", "open_request", "extend", "commit", "slide", "refresh", "finish", "abort", "retract",
        "acquire", "advance", "release", "release_swa", "alloc", "alloc_full_only", "insert", "evict", "free",
        "free_swa", "reset", "checkpoint",
    }
)  # fmt: skip
"""What the cache calls its own transactions; any other name is a caller's and may quote tokens."""


class StoredTokens:
    """What one recording stores of tokens. `form` is the cache's part; `stored` belongs to the writer.

    `begin` runs on the cache's thread at the first transaction, before either uses the form. `drawn` is the
    key of another one's form, under "none", where cache and writer are in two processes.
    """

    def __init__(
        self, policy: TokenPolicy = "full", key: bytes | None = None, *, drawn: bytes | None = None
    ) -> None:
        check_policy(policy, key)
        self.policy: TokenPolicy = policy
        self.form: TokenForm
        if policy == "hash" and key is not None:
            self.form = HashedTokens(key)
        elif policy == "none":
            self.form = NoTokens(drawn)
        else:
            self.form = PlainTokens()
        self._ends = _Ends(self.form)

    @property
    def drawn(self) -> bytes | None:
        """The key that another one needs for the same form under "none"."""
        return self.form.key if isinstance(self.form, NoTokens) else None

    def begin(self, first: TransactionRecord) -> None:
        """Learn the page size from the first transaction of a recording."""
        if isinstance(self.form, HashedTokens):
            for event in first.events:
                if type(event) is CacheOpened:
                    self.form.open_with(event.page_size * TOKEN_BYTES)

    def stored(self, record: TransactionRecord) -> TransactionRecord:
        """What is stored instead of `record`, which stays as it is. Call it once for each, in order.

        Raises JournalError where a node is created or split that no event before it told of. Cost: under
        "full" a look at each event; else that of the hashes, a microsecond for each page of a new node.
        """
        if self.policy == "full":
            if NodeSplit not in map(type, record.events):
                return record
            # The tokens of a split's head stand in the journal already, in the node that is split.
            plain = [_split(event) if isinstance(event, NodeSplit) else event for event in record.events]
            return TransactionRecord(
                record.op, record.request_id, plain, record.undone, record.rolled_back, record.reason
            )
        hashing = self.policy == "hash"
        if hashing:
            self._ends.begin()
        events: list[Event] = []
        for ordinal, event in enumerate(record.events):
            rewrite = _PRIVATE.get(type(event))
            kept = event if rewrite is None else rewrite(self, event)
            if hashing:
                kept = self._ends.follow(ordinal, event, kept)
            events.append(kept)
        if hashing:
            self._ends.end(rolled_back=record.rolled_back)
        reason = _bare(record.reason) if record.rolled_back else record.reason and WITHHELD
        op = record.op if record.op in OWN_OPS else WITHHELD
        return TransactionRecord(op, record.request_id, events, record.undone, record.rolled_back, reason)


class _Ends:
    """Where each live node's prefix begins and ends, as hashes; undone events leave nothing behind."""

    def __init__(self, form: TokenForm) -> None:
        self._form = form
        self._of: dict[NodeId, tuple[bytes, bytes]] = {}
        self._before: list[tuple[int, NodeId, tuple[bytes, bytes] | None]] = []

    def begin(self) -> None:
        """A transaction begins."""
        self._before.clear()

    def follow(self, ordinal: int, event: Event, kept: Event) -> Event:
        """Move on past `event`, and put the hash into `kept` if it has a place for it."""
        kind = type(event)
        if kind is NodeCreated:
            created: Any = event
            node: Any = kept
            above = (
                self._form.seed(created.namespace)
                if created.parent is None
                else self._known(created.parent)[1]
            )
            node.tokens = self._form.node(above, created.tokens)
            self._set(ordinal, created.node, (above, node.tokens))
        elif kind is NodeSplit:
            split: Any = event
            head: Any = kept
            above, end = self._known(split.node)
            head.head_tokens = self._form.node(above, split.head_tokens)
            self._set(ordinal, split.head, (above, head.head_tokens))
            self._set(ordinal, split.node, (head.head_tokens, end))
        elif kind is NodeDeleted:
            deleted: Any = event
            self._set(ordinal, deleted.node, None)
        elif kind is RolledBack:
            rolled_back: Any = event
            self._take_back(rolled_back.first)
        return kept

    def end(self, *, rolled_back: bool) -> None:
        """The transaction ended; one that was rolled back left nothing."""
        if rolled_back:
            self._take_back(0)
        self._before.clear()

    def _known(self, node: NodeId) -> tuple[bytes, bytes]:
        found = self._of.get(node)
        if found is None:
            raise JournalError(f"the tokens of node {node} cannot be hashed: no event before told of it")
        return found

    def _set(self, ordinal: int, node: NodeId, ends: tuple[bytes, bytes] | None) -> None:
        self._before.append((ordinal, node, self._of.get(node)))
        self._put(node, ends)

    def _put(self, node: NodeId, ends: tuple[bytes, bytes] | None) -> None:
        if ends is None:
            self._of.pop(node, None)
        else:
            self._of[node] = ends

    def _take_back(self, first: int) -> None:
        while self._before and self._before[-1][0] >= first:
            _, node, ends = self._before.pop()
            self._put(node, ends)


def _split(event: NodeSplit) -> NodeSplit:
    return NodeSplit(event.node, event.head, event.at, b"")


def _opened(tokens: StoredTokens, event: CacheOpened) -> Any:
    return _copied(event, config={**event.config, POLICY_SETTING: tokens.policy})


def _namespace(tokens: StoredTokens, event: Any) -> Any:
    return _copied(event, namespace=tokens.form.namespace(event.namespace))


def _created(tokens: StoredTokens, event: NodeCreated) -> Any:
    return _copied(event, namespace=tokens.form.namespace(event.namespace), tokens=b"")


def _fingerprinted(tokens: StoredTokens, event: KvFingerprinted) -> Any:
    form: Any = tokens.form
    pages, swa = event.full_pages, event.swa_sums
    return _copied(
        event,
        full_sums=form.sums(pages, event.full_sums, "full"),
        swa_sums=None if swa is None else form.sums(pages, swa, "swa"),
    )


def _rolled_back(tokens: StoredTokens, event: RolledBack) -> RolledBack:
    if event.cause in (RollbackCause.REFUSED, RollbackCause.SKIPPED):
        return event  # the cache's own words: lengths
    reason = _bare(event.reason) if event.cause is RollbackCause.ERROR else event.reason and WITHHELD
    return RolledBack(event.first, event.end, event.cause, reason, event.request_id)


def _bare(reason: str) -> str:
    """The name of an exception without its message."""
    name = reason.partition(":")[0]
    return name if name.isidentifier() else reason and WITHHELD


def _copied(event: Any, **changed: Any) -> Any:
    values = {name: getattr(event, name) for name in event.__slots__}
    return type(event)(**(values | changed))


_PRIVATE: dict[type, Callable[[StoredTokens, Any], Any]] = {
    CacheOpened: _opened,
    NodeCreated: _created,
    NodeSplit: lambda tokens, event: _split(event),
    PrefixInserted: _namespace,
    PrefixMatched: _namespace,
    LockAcquired: _namespace,
    RequestOpened: _namespace,
    KvFingerprinted: _fingerprinted,
    RolledBack: _rolled_back,
}
"""By event type: what is stored of it where tokens are private. The hash is put in afterwards."""

_PRIVATE_TYPES = ("str", "bytes", "dict[str, Any]", str, bytes, Sums, Sums | None)
_TELLING = ("namespace", "tokens", "head_tokens", "reason", "config", "full_sums", "swa_sums")
_missed = [
    kind
    for kind, event_class in EVENTS.items()
    if event_class not in _PRIVATE
    and any(
        field.name in _TELLING and field.type in _PRIVATE_TYPES for field in dataclasses.fields(event_class)
    )
]
if _missed:
    raise ImportError(f"events that carry private data and have no stored form without it: {_missed}")
