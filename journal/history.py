"""Histories: what befell a node or a request, and everything that somebody should look at.

Look-ups over the events alone (lookup.py); who held a page is in tenures.py.
"""

from collections.abc import Iterator

from kvledger.core.events import (
    CallIgnored,
    EventsDropped,
    LockReleased,
    NodeCreated,
    NodeSplit,
    RollbackCause,
    RolledBack,
)
from kvledger.core.ids import NodeId, RequestId, Seq
from kvledger.journal.lookup import EventFilter, FoundEvent
from kvledger.journal.reader import JournalReader


def node_history(reader: JournalReader, node: int) -> Iterator[FoundEvent]:
    """The events about one node, in order, the split that made it included; undone ones too.

    Cost: O(events of the node + splits before its first one).
    """
    about = reader.find(EventFilter(node=NodeId(node)))
    first = next(about, None)
    if first is None or not isinstance(first.event, NodeCreated):
        splits = EventFilter(kinds=(NodeSplit.kind,), last_seq=None if first is None else first.seq)
        for found in reader.find(splits):
            if isinstance(found.event, NodeSplit) and found.event.head == node:
                yield found
                break
    if first is not None:
        yield first
    yield from about


def request_history(reader: JournalReader, request_id: str) -> Iterator[FoundEvent]:
    """The events that name a request and all of its own transactions, in order. Cost: O(those)."""
    return reader.find(EventFilter(request_id=RequestId(request_id)))


def anomalies(
    reader: JournalReader, *, first_seq: int | None = None, last_seq: int | None = None
) -> Iterator[tuple[FoundEvent, str]]:
    """What somebody should look at, in order: each event with a sentence.

    Rollbacks that were refused or skipped by a commit or caused by an error, calls that a reset made
    meaningless, locks that a reset cut, and events that were not stored. Cost: O(events of these kinds).
    """
    kinds = (RolledBack.kind, CallIgnored.kind, EventsDropped.kind, LockReleased.kind)
    wanted = EventFilter(
        kinds=kinds,
        first_seq=None if first_seq is None else Seq(first_seq),
        last_seq=None if last_seq is None else Seq(last_seq),
    )
    for found in reader.find(wanted):
        sentence = _anomaly(found)
        if sentence is not None:
            yield found, sentence


def _anomaly(found: FoundEvent) -> str | None:
    event = found.event
    if isinstance(event, RolledBack) and event.cause is not RollbackCause.CALLER:
        reason = f": {event.reason}" if event.reason else ""
        return f"{event.end - event.first} events were undone, cause {event.cause.value}{reason}"
    if isinstance(event, CallIgnored):
        return f"{event.call} came after a reset and changed nothing"
    if isinstance(event, EventsDropped):
        return f"events {event.first_seq} to {event.last_seq} were not stored"
    if isinstance(event, LockReleased) and event.by_reset and not found.undone:
        return f"lease {event.lease} was cut by a reset"
    return None
