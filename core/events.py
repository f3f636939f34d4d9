"""The vocabulary: one record per change of the cache's state.

Events are past tense and carry facts, not commands: an event names every page it moved, so that a
reader needs no cache to check it. In core they are slotted records that nobody changes after they
were built (type checkers hold them frozen; at run time the price of enforcing it is not paid on
the scheduler's thread). Arrays are one-dimensional and read-only, pages `int32`, sums `uint64`; one may
be nearly all of another that is read-only too, and never is part of a live row. Pages are page numbers,
never slots; lengths and positions are tokens unless a name ends in `_pages` or `_page`.

Two arrays named `full_pages` and `swa_pages` in one event stand beside one another: `swa_pages[i]`
is the SWA peer that `full_pages[i]` had (frees) or got (allocations), 0 where there was none.

How each event changes state is in docs/events.md, told so that a reader can be written from it alone.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, dataclass_transform

import numpy as np
import numpy.typing as npt

from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.core.records import record

Pages = npt.NDArray[np.int32]
"""int32[n] page numbers, read-only once inside an event. Slots are wider: widen before you multiply."""

WidePages = npt.NDArray[np.int64]
"""int64[n] page numbers, as memory is told of them: it makes slots of them."""

Sums = npt.NDArray[np.uint64]
"""uint64[n] checksums of KV bytes, one a page, read-only once inside an event."""

TokenRange = tuple[int, int]
"""Half-open range of token positions."""


class Cause(StrEnum):
    """Why pages left their owner."""

    CAPACITY = "capacity"  # evicted to make room
    CASCADE = "cascade"  # a childless tombstone ancestor that went with an evicted leaf
    DUPLICATE = "duplicate"  # an insert brought what the tree already had
    WINDOW = "window"  # an SWA page that left the window
    RECOVERY = "recovery"  # Full replaced, or not needed, when a tombstone was recovered
    FINISH = "finish"
    ABORT = "abort"
    RETRACT = "retract"
    RESET = "reset"
    CALLER = "caller"  # a raw free


class Pool(StrEnum):
    """Which side of the pages an event is about."""

    FULL = "full"
    SWA = "swa"
    BOTH = "both"


class RecoveryMode(StrEnum):
    """What became of the Full pages when an SWA tombstone came back to life."""

    ADOPT_INCOMING = "adopt_incoming"
    KEEP_LOCKED_FULL = "keep_locked_full"


class FingerprintReason(StrEnum):
    """At which end of a lock, or at what within it, KV was fingerprinted."""

    LOCKED = "locked"  # the node's first lock was taken
    RECOVERED = "recovered"  # its SWA was recovered while it is locked
    UNLOCKED = "unlocked"  # its last lock is about to be released


class RollbackCause(StrEnum):
    """Who asked for a rollback."""

    ERROR = "error"  # an exception left the operation
    CALLER = "caller"  # t.rollback()
    REFUSED = "refused"  # a commit offered more than the match accepts: an anomaly
    SKIPPED = "skipped"  # the same under locked_recovery="skip": expected


class Record:
    """What every event can be asked. It is pickled and copied as its values."""

    __slots__ = ()

    def values(self) -> tuple[Any, ...]:
        """The value of each field, in the order they are declared."""
        names: Any = self.__slots__
        return tuple([getattr(self, name) for name in names])

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.values()


@dataclass_transform(frozen_default=True, eq_default=False)
def event(cls: type) -> type:
    """Make a record that is kept among the events."""
    made: Any = record(cls)
    EVENTS[made.kind] = made
    return made  # type: ignore[no-any-return]


EVENTS: dict[str, type] = {}
"""Every event class by its stable kind."""


@event
class CacheOpened(Record):
    """First event of every journal: the sizes in pages and the policies that hold from here on."""

    kind: ClassVar[str] = "cache_opened"
    version: ClassVar[int] = 1
    page_size: int
    window: int  # tokens
    full_pages: int
    swa_pages: int
    locked_recovery: str
    config: dict[str, Any]  # the whole CacheConfig as JSON-ready values


@event
class PagesAllocated(Record):
    """Free (or reusable) pages became held by `owner`, each with its peer mapped.

    For a request the pages also extend its row at page index `row_start`; None for the raw caller.
    """

    kind: ClassVar[str] = "pages_allocated"
    version: ClassVar[int] = 1
    owner: RequestId | None
    full_pages: Pages
    swa_pages: Pages
    row_start: int | None


@event
class PrefixInserted(Record):
    """Summary of an insert, after whatever of it was refused has been rolled back.

    `length` is what the tree accepted, `refused` what was offered beyond it. `prefix_len` is how far
    Full reached before. `adopted_*` are maximal token ranges that the tree took over in this insert;
    `duplicates` counts tokens whose incoming Full page was freed.
    """

    kind: ClassVar[str] = "prefix_inserted"
    version: ClassVar[int] = 1
    namespace: str
    request_id: RequestId | None
    length: int
    refused: int
    prefix_len: int
    protected_len: int
    swa_evicted_len: int
    adopted_full: tuple[TokenRange, ...]
    adopted_swa: tuple[TokenRange, ...]
    duplicates: int


@event
class PrefixMatched(Record):
    """The longest usable prefix, found in acquire or commit. `node` ends at `length`; None for 0."""

    kind: ClassVar[str] = "prefix_matched"
    version: ClassVar[int] = 1
    namespace: str
    request_id: RequestId | None
    length: int
    full_length: int
    node: NodeId | None


@event
class NodeCreated(Record):
    """The tree took over held pages as a new leaf. `swa_pages` is None for a tombstone."""

    kind: ClassVar[str] = "node_created"
    version: ClassVar[int] = 1
    node: NodeId
    parent: NodeId | None  # None: directly under the namespace
    namespace: str
    start: int
    tokens: bytes  # int32 little-endian, whole pages
    full_pages: Pages
    swa_pages: Pages | None
    stamp: int
    full_origin: "Origin"
    swa_origin: "Origin | None"


@event
class NodeSplit(Record):
    """`node` keeps its id and the tail from token position `at`; `head` is its new parent.

    The head takes the tokens and pages before `at`, both lock counts, the stamp and the origins.
    `head_tokens` are its tokens (int32 little-endian): what a store keeps of them is its token form's to say.
    """

    kind: ClassVar[str] = "node_split"
    version: ClassVar[int] = 1
    node: NodeId
    head: NodeId
    at: int
    head_tokens: bytes


@event
class NodeDeleted(Record):
    """A childless node left the tree and its pages, both sides, were freed with `cause`.

    `parent_stamp`: the stamp the parent takes over because it became a leaf, or None.
    """

    kind: ClassVar[str] = "node_deleted"
    version: ClassVar[int] = 1
    node: NodeId
    parent: NodeId | None
    cause: Cause
    full_pages: Pages
    swa_pages: Pages | None  # None: it was a tombstone
    parent_stamp: int | None


@event
class SwaTombstoned(Record):
    """A node lost its SWA pages, freed with `cause`; its Full pages now map to nothing."""

    kind: ClassVar[str] = "swa_tombstoned"
    version: ClassVar[int] = 1
    node: NodeId
    cause: Cause
    full_pages: Pages
    swa_pages: Pages


@event
class SwaRecovered(Record):
    """A tombstone came back to life with the SWA pages that stood beside `incoming_full`.

    `node_full` is the node's Full before the event. adopt_incoming: the node takes `incoming_full`,
    `node_full` is freed (Full side, cause recovery). keep_locked_full: the node keeps `node_full`,
    which now maps to `swa_pages`; `incoming_full` loses its mapping and is freed (Full side alone).
    """

    kind: ClassVar[str] = "swa_recovered"
    version: ClassVar[int] = 1
    node: NodeId
    mode: RecoveryMode
    node_full: Pages
    incoming_full: Pages
    swa_pages: Pages
    stamp: int
    full_origin: "Origin"
    swa_origin: "Origin"


@event
class PagesFreed(Record):
    """Held pages were given back. `pool` says which side; with "swa" the Full pages stay held.

    `owner` is the request that held them, None for the raw caller. A page freed by "full" alone had
    no peer (its `swa_pages` entry is 0).
    """

    kind: ClassVar[str] = "pages_freed"
    version: ClassVar[int] = 1
    owner: RequestId | None
    pool: Pool
    cause: Cause
    full_pages: Pages
    swa_pages: Pages


@event
class Evicted(Record):
    """End of an eviction: tokens asked for and tokens really freed, per pool."""

    kind: ClassVar[str] = "evicted"
    version: ClassVar[int] = 1
    asked_full: int
    asked_swa: int
    counted_full: int
    counted_swa: int


@event
class LockAcquired(Record):
    """Full locked from `node` to the root, SWA on the positions [swa_from, length). None: empty lock."""

    kind: ClassVar[str] = "lock_acquired"
    version: ClassVar[int] = 1
    lease: LeaseId
    node: NodeId | None
    namespace: str
    request_id: RequestId | None
    length: int
    swa_from: int
    generation: int


@event
class LockReleased(Record):
    """What the lease still held is unlocked: Full, and SWA unless it was released before."""

    kind: ClassVar[str] = "lock_released"
    version: ClassVar[int] = 1
    lease: LeaseId
    node: NodeId | None
    request_id: RequestId | None
    swa_was_held: bool
    by_reset: bool


@event
class SwaLockReleased(Record):
    """The SWA half of the lease is unlocked; the Full half stays."""

    kind: ClassVar[str] = "swa_lock_released"
    version: ClassVar[int] = 1
    lease: LeaseId
    node: NodeId | None
    request_id: RequestId | None


@event
class NodeTouched(Record):
    """Recency: `nodes[i]` (root side first) takes the stamp `first_stamp + i`."""

    kind: ClassVar[str] = "node_touched"
    version: ClassVar[int] = 1
    nodes: tuple[NodeId, ...]
    first_stamp: int


@event
class RequestOpened(Record):
    """A request began; its row starts as the Full pages of the path under `lease`."""

    kind: ClassVar[str] = "request_opened"
    version: ClassVar[int] = 1
    request_id: RequestId
    namespace: str
    epoch: int
    lease: LeaseId
    pages: Pages


@event
class RequestRowChanged(Record):
    """From page index `first_page` on the row reads `pages`, and is `row_pages` long afterwards.

    Row, node, protected length and lease change together: `lease` is the one that holds now, None
    while the request waits. Pages of the row outside [first_page, first_page + len(pages)) stay.
    """

    kind: ClassVar[str] = "request_row_changed"
    version: ClassVar[int] = 1
    request_id: RequestId
    epoch: int
    lease: LeaseId | None
    first_page: int
    pages: Pages
    row_pages: int


@event
class RequestClosed(Record):
    """The request is gone; nothing is held by it any more. `reason` is finish, abort or reset."""

    kind: ClassVar[str] = "request_closed"
    version: ClassVar[int] = 1
    request_id: RequestId
    reason: Cause


@event
class RolledBack(Record):
    """Events [first, end) of this transaction (0-based ordinals) were undone, last one first.

    The event itself stands at ordinal `end`. Undone events stay in the journal, marked.
    """

    kind: ClassVar[str] = "rolled_back"
    version: ClassVar[int] = 1
    first: int
    end: int
    cause: RollbackCause
    reason: str
    request_id: RequestId | None


@event
class Checkpoint(Record):
    """What the cache's canonical state amounts to here. Replay has to reproduce `digest`.

    `counters` are sums over all events before this one, undone ones included: evicted_full_tokens and
    evicted_swa_tokens (of `evicted`), tombstones, recoveries, recoveries_locked (keep_locked_full),
    rollbacks, anomalies (of cause refused), skipped (of cause skipped), resets.
    """

    kind: ClassVar[str] = "checkpoint"
    version: ClassVar[int] = 1
    digest: str
    counters: dict[str, int]


@event
class CacheReset(Record):
    """All leases, nodes and requests are gone; leases of older generations are stale."""

    kind: ClassVar[str] = "cache_reset"
    version: ClassVar[int] = 1
    generation: int


@event
class CallIgnored(Record):
    """A call that a reset made meaningless (release, finish, abort) changed nothing."""

    kind: ClassVar[str] = "call_ignored"
    version: ClassVar[int] = 1
    call: str
    lease: LeaseId | None
    request_id: RequestId | None
    generation: int  # of the lease


@event
class MappingSet(Record):
    """Mapping entries of held pages changed by anything that no other event implies."""

    kind: ClassVar[str] = "mapping_set"
    version: ClassVar[int] = 1
    full_pages: Pages
    swa_pages: Pages


@event
class KvFingerprinted(Record):
    """What the KV bytes of a node's pages summed up to, as they lay on the device at this moment.

    `full_sums[i]` is of the Full layers of `full_pages[i]`, `swa_sums[i]` of the SWA layers of its peer; None
    for a tombstone. Equal bytes have equal sums. Only where `CacheConfig.fingerprints` is set.
    """

    kind: ClassVar[str] = "kv_fingerprinted"
    version: ClassVar[int] = 1
    node: NodeId
    reason: FingerprintReason
    full_pages: Pages
    full_sums: Sums
    swa_sums: Sums | None


@event
class KvUnread(Record):
    """A fingerprint that is missing: the memory could not read the KV of a node's pages at this moment.

    A lock is refused without one, so `reason` is recovered or unlocked: what happened went on, and nothing is
    known of what the pages held. `error` is the name of the exception that the memory raised.
    """

    kind: ClassVar[str] = "kv_unread"
    version: ClassVar[int] = 1
    node: NodeId
    reason: FingerprintReason
    full_pages: Pages
    error: str


@event
class EventsDropped(Record):
    """The recorder could not store seqs [first_seq, last_seq]; what follows starts from a checkpoint."""

    kind: ClassVar[str] = "events_dropped"
    version: ClassVar[int] = 1
    first_seq: int
    last_seq: int


@dataclass(frozen=True, slots=True)
class Origin(Record):
    """Which forward computed some KV: a request and its epoch, or None and the number of a raw insert.

    The epoch counts openings, resumptions and raw inserts over the whole cache, so it alone is unique.
    """

    request_id: RequestId | None
    epoch: int


Event = (
    CacheOpened
    | PagesAllocated
    | PrefixInserted
    | PrefixMatched
    | NodeCreated
    | NodeSplit
    | NodeDeleted
    | SwaTombstoned
    | SwaRecovered
    | PagesFreed
    | Evicted
    | LockAcquired
    | LockReleased
    | SwaLockReleased
    | NodeTouched
    | RequestOpened
    | RequestRowChanged
    | RequestClosed
    | RolledBack
    | Checkpoint
    | CacheReset
    | CallIgnored
    | MappingSet
    | KvFingerprinted
    | KvUnread
    | EventsDropped
)
