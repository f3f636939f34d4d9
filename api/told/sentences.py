"""One sentence for each kind of event: what happened, for somebody on call who does not know the vocabulary.

Sentences name pages, nodes, requests and leases by their numbers, lengths in tokens. They hold no namespace
and no token, and no words of a caller but request ids, which are not private.
"""

from collections.abc import Callable
from typing import Any

from kvledger.api.told.runs import read_runs
from kvledger.core.events import (
    EVENTS,
    CacheOpened,
    CacheReset,
    CallIgnored,
    Cause,
    Checkpoint,
    Event,
    EventsDropped,
    Evicted,
    FingerprintReason,
    KvFingerprinted,
    KvUnread,
    LockAcquired,
    LockReleased,
    MappingSet,
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    NodeTouched,
    Pages,
    PagesAllocated,
    PagesFreed,
    Pool,
    PrefixInserted,
    PrefixMatched,
    RecoveryMode,
    RequestClosed,
    RequestOpened,
    RequestRowChanged,
    RollbackCause,
    RolledBack,
    SwaLockReleased,
    SwaRecovered,
    SwaTombstoned,
)

WHY = {
    Cause.CAPACITY: "to make room",
    Cause.CASCADE: "with the leaf that was evicted below it",
    Cause.DUPLICATE: "the tree has the same already",
    Cause.WINDOW: "it left the window",
    Cause.RECOVERY: "a tombstone was recovered",
    Cause.FINISH: "the request finished",
    Cause.ABORT: "the request was aborted",
    Cause.RETRACT: "the request was retracted",
    Cause.RESET: "the cache was reset",
    Cause.CALLER: "its owner gave it back",
}
"""What each cause means in a sentence."""

_ROLLBACKS = {
    RollbackCause.ERROR: "an exception ended the operation",
    RollbackCause.CALLER: "its caller asked for it",
    RollbackCause.REFUSED: "a commit offered more than a match accepts, an anomaly",
    RollbackCause.SKIPPED: "a locked tombstone is left alone under this policy",
}


_LOOKED = {
    FingerprintReason.LOCKED: "right after its first lock",
    FingerprintReason.RECOVERED: "right after its SWA was recovered under a lock",
    FingerprintReason.UNLOCKED: "right before its last lock is released",
}


def sentence_of(event: Event) -> str:
    """What one event says, in a line."""
    return _SENTENCES[type(event)](event)


def _pages(count: int, which: str = "") -> str:
    return f"{count:,}{which and ' ' + which} page{'' if count == 1 else 's'}"


def _listed(numbers: Pages, which: str) -> str:
    return f"{_pages(len(numbers), which)} ({read_runs(numbers)})" if len(numbers) else f"no {which} page"


def _swa_of(event: Any) -> str:
    peers = event.swa_pages
    beside = 0 if peers is None else int((peers > 0).sum())
    return f"{_pages(beside, 'SWA')} beside" if beside else "no SWA"


def _owner(request: str | None) -> str:
    return "a caller" if request is None else f"request {request}"


def _for(request: str | None) -> str:
    return "" if request is None else f" for request {request}"


def _opened(event: CacheOpened) -> str:
    return (
        f"a cache was opened: pages of {event.page_size:,} tokens, {_pages(event.full_pages, 'Full')} and "
        f"{_pages(event.swa_pages, 'SWA')}, window {event.window:,}"
    )


def _allocated(event: PagesAllocated) -> str:
    return (
        f"{_owner(event.owner)} took {_listed(event.full_pages, 'Full')} from the free ones, {_swa_of(event)}"
    )


def _inserted(event: PrefixInserted) -> str:
    refused = f", {event.refused:,} more were refused" if event.refused else ""
    adopted = sum(end - start for start, end in event.adopted_full)
    return (
        f"a prefix of {event.length:,} tokens is in the tree{_for(event.request_id)}: {adopted:,} new in "
        f"Full, {event.duplicates:,} were there already{refused}"
    )


def _matched(event: PrefixMatched) -> str:
    if event.full_length > event.length:
        return (
            f"{event.length:,} tokens matched{_for(event.request_id)}; Full alone would reach "
            f"{event.full_length:,}, but too little SWA is live before that"
        )
    return f"{event.length:,} tokens matched{_for(event.request_id)}"


def _created(event: NodeCreated) -> str:
    what = "tombstone node" if event.swa_pages is None else "node"
    under = "at the root" if event.parent is None else f"under node {event.parent}"
    return (
        f"{what} {event.node} came {under} at token {event.start:,} with "
        f"{_listed(event.full_pages, 'Full')}, {_swa_of(event)}"
    )


def _split(event: NodeSplit) -> str:
    return f"node {event.node} was split at token {event.at:,}: what is before it is node {event.head} now"


def _deleted(event: NodeDeleted) -> str:
    return (
        f"node {event.node} left the tree, {WHY[event.cause]}: {_listed(event.full_pages, 'Full')} freed, "
        f"{_swa_of(event)}"
    )


def _tombstoned(event: SwaTombstoned) -> str:
    return (
        f"node {event.node} became a tombstone, {WHY[event.cause]}: {_listed(event.swa_pages, 'SWA')} freed, "
        f"its Full stays"
    )


def _recovered(event: SwaRecovered) -> str:
    if event.mode is RecoveryMode.KEEP_LOCKED_FULL:
        return (
            f"node {event.node} is live again under a lock: it keeps its own "
            f"{_listed(event.node_full, 'Full')} and took {_listed(event.swa_pages, 'SWA')}; the "
            f"{_listed(event.incoming_full, 'incoming Full')} were freed"
        )
    return (
        f"node {event.node} is live again: it took {_listed(event.incoming_full, 'incoming Full')} with "
        f"their SWA, its old {_listed(event.node_full, 'Full')} were freed"
    )


def _freed(event: PagesFreed) -> str:
    if event.pool is Pool.SWA:
        return (
            f"{_owner(event.owner)} gave back {_listed(event.swa_pages, 'SWA')} and keeps the Full beside "
            f"them, {WHY[event.cause]}"
        )
    return (
        f"{_owner(event.owner)} gave back {_listed(event.full_pages, 'Full')}, {_swa_of(event)}, "
        f"{WHY[event.cause]}"
    )


def _evicted(event: Evicted) -> str:
    return (
        f"eviction freed {event.counted_full:,} Full and {event.counted_swa:,} SWA tokens; asked were "
        f"{event.asked_full:,} and {event.asked_swa:,}"
    )


def _locked(event: LockAcquired) -> str:
    if event.node is None:
        return f"lease {event.lease} was taken{_for(event.request_id)}, and locks nothing"
    return (
        f"lease {event.lease} was taken{_for(event.request_id)}: Full is locked from node {event.node} to "
        f"the root, {event.length:,} tokens, SWA from token {event.swa_from:,} on"
    )


def _unlocked(event: LockReleased) -> str:
    halves = "Full and SWA" if event.swa_was_held else "Full, its SWA was released before"
    by = ", cut by a reset" if event.by_reset else ""
    where = "" if event.node is None else f" on node {event.node}"
    return f"lease {event.lease}{_for(event.request_id)}{where} was released ({halves}){by}"


def _swa_unlocked(event: SwaLockReleased) -> str:
    where = "" if event.node is None else f" on node {event.node}"
    return f"lease {event.lease}{_for(event.request_id)}{where} gave up its SWA lock; Full stays locked"


def _touched(event: NodeTouched) -> str:
    if len(event.nodes) == 1:
        return f"node {event.nodes[0]} was used"
    return f"{len(event.nodes):,} nodes on a path were used, down to node {event.nodes[-1]}"


def _request_opened(event: RequestOpened) -> str:
    return (
        f"request {event.request_id} opened with {_listed(event.pages, 'Full')} of the tree, under lease "
        f"{event.lease}"
    )


def _row_changed(event: RequestRowChanged) -> str:
    lease = "no lease: it waits" if event.lease is None else f"lease {event.lease}"
    return (
        f"the row of request {event.request_id} changed from page {event.first_page:,} on, is "
        f"{_pages(event.row_pages)} long, and is under {lease}"
    )


def _closed(event: RequestClosed) -> str:
    return f"request {event.request_id} is closed: {WHY[event.reason]}"


def _rolled_back(event: RolledBack) -> str:
    return f"{event.end - event.first:,} events were undone: {_ROLLBACKS[event.cause]}"


def _checkpoint(event: Checkpoint) -> str:
    return f"a checkpoint: the digest of the state begins with {event.digest[:16]}"


def _reset(event: CacheReset) -> str:
    return f"the cache was reset; leases before generation {event.generation} are stale"


def _ignored(event: CallIgnored) -> str:
    return f"{event.call}{_for(event.request_id)} came after a reset and changed nothing"


def _mapping_set(event: MappingSet) -> str:
    return f"the SWA peers of {_listed(event.full_pages, 'Full')} were set anew"


def _fingerprinted(event: KvFingerprinted) -> str:
    sides = "Full" if event.swa_sums is None else "Full and SWA"
    return (
        f"the KV of node {event.node} was fingerprinted {_LOOKED[event.reason]}: {sides} of "
        f"{_listed(event.full_pages, 'Full')}"
    )


def _unread(event: KvUnread) -> str:
    return (
        f"the KV of node {event.node} could not be read {_LOOKED[event.reason]} ({event.error}): what "
        f"{_listed(event.full_pages, 'Full')} held is unknown"
    )


def _dropped(event: EventsDropped) -> str:
    return f"events {event.first_seq:,} to {event.last_seq:,} were not stored: the database was away too long"


_SENTENCES: dict[type, Callable[[Any], str]] = {
    CacheOpened: _opened,
    PagesAllocated: _allocated,
    PrefixInserted: _inserted,
    PrefixMatched: _matched,
    NodeCreated: _created,
    NodeSplit: _split,
    NodeDeleted: _deleted,
    SwaTombstoned: _tombstoned,
    SwaRecovered: _recovered,
    PagesFreed: _freed,
    Evicted: _evicted,
    LockAcquired: _locked,
    LockReleased: _unlocked,
    SwaLockReleased: _swa_unlocked,
    NodeTouched: _touched,
    RequestOpened: _request_opened,
    RequestRowChanged: _row_changed,
    RequestClosed: _closed,
    RolledBack: _rolled_back,
    Checkpoint: _checkpoint,
    CacheReset: _reset,
    CallIgnored: _ignored,
    MappingSet: _mapping_set,
    KvFingerprinted: _fingerprinted,
    KvUnread: _unread,
    EventsDropped: _dropped,
}

_missed = sorted(kind for kind, event_class in EVENTS.items() if event_class not in _SENTENCES)
if _missed:
    raise ImportError(f"events that nobody can be told of in a sentence: {_missed}")
