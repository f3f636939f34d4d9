"""Histories: what befell a node or a request, and everything that somebody should look at.

Look-ups over the events alone (events.py); who held a page is in tenures.py.
"""

import heapq
from collections.abc import Iterator
from itertools import chain, islice

from kvledger.core.events import (
    CacheReset,
    CallIgnored,
    EventsDropped,
    KvUnread,
    LockReleased,
    RollbackCause,
    RolledBack,
)
from kvledger.core.ids import NodeId, RequestId, Seq
from kvledger.journal.lookups.beginning import Unseen, unseen
from kvledger.journal.lookups.births import Chapter, birth, chapters
from kvledger.journal.lookups.questions import EventFilter, FoundEvent, LookUpSource, check_question, span_of

HEALTHY_ROLLBACKS = frozenset({RollbackCause.CALLER, RollbackCause.SKIPPED})
"""What was asked for, and what a cache that skips locked recovery refuses as its policy says: no anomaly."""


def node_history(
    source: LookUpSource,
    node: int,
    *,
    through_splits: bool = True,
    limit: int | None = None,
    after_seq: int | None = None,
) -> Iterator[FoundEvent]:
    """The events about one node, in order, what made it included; undone ones too.

    With `through_splits` also what befell the nodes it was cut from, up to the cut: it is the story of the
    same pages. At most `limit`, after seq `after_seq`. Cost: O(events after the cursor), and O(log(nodes))
    look-ups for the node and each it was cut from; in files as many walks.
    """
    check_question(EventFilter(nodes=(NodeId(node),)), limit)
    if through_splits:
        told = _told(source, chapters(source, node), after_seq)
    else:
        told = _own(source, node, after_seq)
    return islice(told, limit)


def node_unseen(
    source: LookUpSource, node: int, *, through_splits: bool = True, after_seq: int | None = None
) -> Unseen | None:
    """What is not there of a node's history behind `after_seq`; nothing where it begins with its birth.

    Cost: as `node_history`, without its events.
    """
    story = chapters(source, node) if through_splits else [Chapter(NodeId(node), birth(source, node), None)]
    if story[0].birth is not None:
        return None
    return unseen(source, first_seq=None if after_seq is None else after_seq + 1)


def _own(source: LookUpSource, node: int, after_seq: int | None) -> Iterator[FoundEvent]:
    own = source.find(EventFilter(nodes=(NodeId(node),)), after_seq=after_seq)
    made = birth(source, node)
    first = next(own, None)
    if made is not None and (first is None or made.seq != first.seq) and made.seq > (after_seq or 0):
        yield made
    if first is not None:
        yield first
    yield from own


def _told(source: LookUpSource, story: list[Chapter], after_seq: int | None) -> Iterator[FoundEvent]:
    for chapter in story:
        if chapter.until is None or chapter.until > (after_seq or 0):
            wanted = EventFilter(nodes=(chapter.node,), last_seq=chapter.until)
            yield from source.find(wanted, after_seq=after_seq)


def request_history(
    source: LookUpSource,
    request_id: str,
    *,
    limit: int | None = None,
    after_seq: int | None = None,
    before_seq: int | None = None,
    newest_first: bool = False,
) -> Iterator[FoundEvent]:
    """The events that name a request and all of its own transactions, in order. Cost: O(those given)."""
    return source.find(
        EventFilter(request_id=RequestId(request_id)),
        limit=limit,
        after_seq=after_seq,
        before_seq=before_seq,
        newest_first=newest_first,
    )


def anomalies(
    source: LookUpSource,
    *,
    first_seq: int | None = None,
    last_seq: int | None = None,
    limit: int | None = None,
    after_seq: int | None = None,
    before_seq: int | None = None,
    newest_first: bool = False,
) -> Iterator[tuple[FoundEvent, str]]:
    """What somebody should look at, in order: each event with a sentence.

    Rollbacks of what a commit refused and of what an error ended, calls that a reset made meaningless, locks
    that a reset cut, events that were not stored, and locked KV that could not be read; not the rollbacks of
    `HEALTHY_ROLLBACKS`. Cost: O(such events and locks cut by resets between the cursors), up to the limit.
    """
    check_question(EventFilter(), limit)
    low, high = span_of(first_seq, last_seq, after=after_seq, before=before_seq)
    return islice(_anomalies(source, low, high, newest_first=newest_first), limit)


def _anomalies(
    source: LookUpSource, low: int, high: int, *, newest_first: bool
) -> Iterator[tuple[FoundEvent, str]]:
    kinds = (RolledBack.kind, CallIgnored.kind, EventsDropped.kind, KvUnread.kind)
    found: Iterator[FoundEvent]
    if source.indexed:
        found = heapq.merge(
            source.find(
                EventFilter(kinds, first_seq=Seq(low), last_seq=Seq(high)), newest_first=newest_first
            ),
            _cut_by_resets(source, low, high, newest_first=newest_first),
            key=lambda one: one.seq,
            reverse=newest_first,
        )
    else:
        every = EventFilter((*kinds, LockReleased.kind), first_seq=Seq(low), last_seq=Seq(high))
        found = source.find(every, newest_first=newest_first)
    for one in found:
        sentence = _anomaly(one)
        if sentence is not None:
            yield one, sentence


def _cut_by_resets(source: LookUpSource, low: int, high: int, *, newest_first: bool) -> Iterator[FoundEvent]:
    """The releases in transactions that reset the cache: all others are not by a reset, and very many."""
    resets = EventFilter((CacheReset.kind,), first_seq=Seq(low), last_seq=Seq(high))
    # A reset is told after the locks that it cut, and `high` may lie between them.
    straddling = source.find(EventFilter((CacheReset.kind,)), after_seq=high, limit=1)
    inside = source.find(resets, newest_first=newest_first)
    for reset in chain(straddling, inside) if newest_first else chain(inside, straddling):
        yield from source.find(
            EventFilter(
                (LockReleased.kind,), transaction=reset.transaction, first_seq=Seq(low), last_seq=Seq(high)
            ),
            newest_first=newest_first,
        )


def undone_seqs(seq: Seq, event: RolledBack) -> tuple[Seq, Seq] | None:
    """The first and last seq that a `rolled_back` at `seq` undid, both included; None for nothing.

    It names ordinals of its transaction, and stands at the ordinal where they end.
    """
    if event.first >= event.end:
        return None
    return Seq(seq - event.end + event.first), Seq(seq - 1)


def _undone(seq: Seq, event: RolledBack) -> str:
    undone = undone_seqs(seq, event)
    if undone is None:
        return "nothing was undone"
    first, last = undone
    return f"event {first} was undone" if first == last else f"events {first} to {last} were undone"


def _anomaly(found: FoundEvent) -> str | None:
    event = found.event
    if isinstance(event, RolledBack) and event.cause not in HEALTHY_ROLLBACKS:
        reason = f": {event.reason}" if event.reason else ""
        return f"{_undone(found.seq, event)}, cause {event.cause.value}{reason}"
    if isinstance(event, CallIgnored):
        return f"{event.call} came after a reset and changed nothing"
    if isinstance(event, EventsDropped):
        return f"events {event.first_seq} to {event.last_seq} were not stored"
    if isinstance(event, KvUnread) and not found.undone:
        return f"the KV of {len(event.full_pages)} locked pages could not be read: {event.error}"
    if isinstance(event, LockReleased) and event.by_reset and not found.undone:
        return f"lease {event.lease} was cut by a reset"
    return None
