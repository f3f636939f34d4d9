"""Tenures: who held a page of either pool, from when to when, and why it was given up.

Read from the events alone, by kind, so that the cost is that of the events which move pages and not of the
whole journal. A history begins at the nearest checkpoint at or before the seq asked for. What was undone
never happened and is left out; after a gap (`events_dropped`) a history goes on from the checkpoint that
follows it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import (
    EventsDropped,
    MappingSet,
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    Pages,
    PagesAllocated,
    PagesFreed,
    Pool,
    RecoveryMode,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import NodeId, RequestId, Seq
from kvledger.journal.lookups.questions import EventFilter, FoundEvent, LookUpSource, check_question
from kvledger.journal.places import CALLER
from kvledger.journal.restore import decode_state
from kvledger.journal.state import State

Side = Literal["full", "swa"]

MOVES = (
    PagesAllocated,
    PagesFreed,
    NodeCreated,
    NodeSplit,
    NodeDeleted,
    SwaTombstoned,
    SwaRecovered,
    MappingSet,
    EventsDropped,
)
"""The events that say where pages are."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """A page in one pair of hands, from seq `since` until seq `until` (None: still).

    `holder` is "request", "caller" or "node"; `position` is the token position of the page there, None where
    it has none. `beside` is the page of the other pool that stood beside it at the beginning, None for none.
    `began` is the kind of the event that began it, "checkpoint" for what a history found there; `ended` the
    kind of the one that ended it and `cause` why, where pages were freed. Times are microseconds since 1970.
    """

    since: Seq
    since_us: int | None
    holder: Literal["request", "caller", "node"]
    request: RequestId | None
    node: NodeId | None
    position: int | None
    beside: int | None
    began: str
    until: Seq | None = None
    until_us: int | None = None
    ended: str | None = None
    cause: str | None = None


def page_history(
    source: LookUpSource,
    side: Side,
    page: int,
    *,
    first_seq: int = 1,
    last_seq: int | None = None,
    limit: int | None = None,
    after_seq: int | None = None,
) -> Iterator[Tenure]:
    """Who held one page of a pool, in order, as far as seqs [first_seq, last_seq] tell.

    At most `limit`; `after_seq` is the `since` of the last one seen. Raises InvalidArgument for a page
    outside the pool, or a journal that has recorded nothing yet. Cost: O(events that move pages, any page,
    from the checkpoint before the range or the cursor to the end of the last tenure that is given), and
    that checkpoint: no index knows pages.
    """
    config = source.info.config
    if config is None:
        raise InvalidArgument(f"journal {source.info.id} holds no event yet")
    page_size = int(config["page_size"])
    last_page = int(config[f"{side}_tokens"]) // page_size
    if not 1 <= page <= last_page:
        raise InvalidArgument(f"page {page} is not in the {side} pool, whose pages are 1 to {last_page}")
    check_question(EventFilter(), limit)
    seen = 0 if after_seq is None else after_seq
    tenures = _tenures(source, _PageStory(side, page, page_size), max(1, first_seq, seen + 1), last_seq)
    return islice((one for one in tenures if one.since > seen), limit)


def _tenures(
    source: LookUpSource, story: "_PageStory", first_seq: int, last_seq: int | None
) -> Iterator[Tenure]:
    start = source.checkpoint_before(max(first_seq, source.beginning().seq) - 1)
    after = 0
    if start is not None:
        after = int(start.seq)
        if last_seq is not None and after > last_seq:
            return  # what befell the page so early is not stored here any more
        story.resume(decode_state(start.state), start.seq)
    wanted = EventFilter(
        kinds=[kind.kind for kind in MOVES],
        first_seq=Seq(after + 1),
        last_seq=None if last_seq is None else Seq(last_seq),
    )
    for found in source.find(wanted):
        if found.undone or found.seq <= after:
            continue
        if isinstance(found.event, EventsDropped):
            yield from story.lose(found)
            resumed = source.checkpoint_after(found.seq)
            if resumed is None:
                break
            after = int(resumed.seq)
            story.resume(decode_state(resumed.state), resumed.seq)
            continue
        yield from (one for one in story.read(found) if one.until is None or one.until >= first_seq)
    if last_seq is not None and story.held is not None:
        # What tells of a gap stands behind it, and the range may end inside one.
        behind = EventFilter(kinds=[EventsDropped.kind], first_seq=Seq(last_seq + 1))
        told = next(source.find(behind, limit=1), None)
        gap = None if told is None else told.event
        if told is not None and isinstance(gap, EventsDropped) and gap.first_seq <= last_seq:
            yield from story.lose(told)
    if story.held is not None:
        yield story.held


class _PageStory:
    """One page's tenures. `held` is the one that has not ended."""

    def __init__(self, side: Side, page: int, page_size: int) -> None:
        self.held: Tenure | None = None
        self._swa = side == "swa"
        self._page = page
        self._page_size = page_size
        self._starts: dict[NodeId, int] = {}

    def resume(self, state: State, seq: Seq) -> None:
        """Take up the story from a full state."""
        self._starts = {node.id: node.start for node in state.nodes.values()}
        position: int | None
        full = self._page
        beside = int(state.mapping[full])
        if self._swa:
            full = beside = int(state.swa_at[self._page])
        code = int(state.full_at[full]) if full > 0 else 0
        node = state.nodes.get(NodeId(code - 1)) if code > 0 else None
        if node is not None:
            place = int(np.flatnonzero(node.full == full)[0])
            position = node.start + place * self._page_size
            self._hold(seq, None, "node", None, node.id, position, beside, "checkpoint")
        elif code == CALLER:
            self._hold(seq, None, "caller", None, None, None, beside, "checkpoint")
        else:
            for request in state.requests.values():
                if request.code == code:
                    where = np.flatnonzero(request.row == full)
                    position = int(where[0]) * self._page_size if len(where) else None
                    self._hold(seq, None, "request", request.id, None, position, beside, "checkpoint")

    def lose(self, found: FoundEvent) -> Iterable[Tenure]:
        """From the first seq that was not stored nothing is known: what the page was held by ends there."""
        gap: Any = found.event
        return [replace(one, until=Seq(gap.first_seq), until_us=None) for one in self._end(found, None)]

    def read(self, found: FoundEvent) -> Iterable[Tenure]:
        """Follow one live event; returns the tenure it ends, if it ends one."""
        event: Any = found.event
        if isinstance(event, PagesAllocated):
            return self._allocated(found, event)
        if isinstance(event, NodeCreated):
            self._starts[event.node] = event.start
            at = self._index(event.full_pages, event.swa_pages)
            if at is None:
                return ()
            beside = self._peer(event.full_pages, event.swa_pages, at)
            return self._to_node(found, event.node, event.start + at * self._page_size, beside)
        if isinstance(event, NodeSplit):
            self._starts[event.head], self._starts[event.node] = self._starts.get(event.node, 0), event.at
            held = self.held
            if held is None or held.node != event.node or held.position is None or held.position >= event.at:
                return ()
            return self._to_node(found, event.head, held.position, held.beside)
        if isinstance(event, SwaRecovered):
            return self._recovered(found, event)
        if isinstance(event, MappingSet):
            return self._mapped(event)
        return self._freed(found, event)

    def _freed(self, found: FoundEvent, event: PagesFreed | NodeDeleted | SwaTombstoned) -> Iterable[Tenure]:
        if isinstance(event, NodeDeleted):
            self._starts.pop(event.node, None)
            full_too = True
        else:
            full_too = isinstance(event, PagesFreed) and event.pool is not Pool.SWA
        if self._index(event.full_pages, event.swa_pages) is None or not (self._swa or full_too):
            return ()
        return self._end(found, event.cause.value)

    def _allocated(self, found: FoundEvent, event: PagesAllocated) -> Iterable[Tenure]:
        at = self._index(event.full_pages, event.swa_pages)
        if at is None:
            return ()
        ended = self._end(found, None)
        beside = self._peer(event.full_pages, event.swa_pages, at)
        position = None if event.row_start is None else (event.row_start + at) * self._page_size
        holder: Literal["request", "caller"] = "caller" if event.owner is None else "request"
        self._hold(found.seq, found.time_us, holder, event.owner, None, position, beside, event.kind)
        return ended

    def _recovered(self, found: FoundEvent, event: SwaRecovered) -> Iterable[Tenure]:
        adopts = event.mode is RecoveryMode.ADOPT_INCOMING
        stays = event.incoming_full if adopts else event.node_full
        at = self._index(stays, event.swa_pages)
        if at is not None:
            position = self._starts.get(event.node, 0) + at * self._page_size
            return self._to_node(found, event.node, position, self._peer(stays, event.swa_pages, at))
        freed = event.node_full if adopts else event.incoming_full
        if not self._swa and np.count_nonzero(freed == self._page):
            return self._end(found, "recovery")
        return ()

    def _mapped(self, event: MappingSet) -> Iterable[Tenure]:
        at = self._index(event.full_pages, event.swa_pages)
        if at is not None and self.held is not None:
            self.held = replace(self.held, beside=self._peer(event.full_pages, event.swa_pages, at))
        return ()

    def _to_node(
        self, found: FoundEvent, node: NodeId, position: int | None, beside: int | None
    ) -> Iterable[Tenure]:
        if self.held is not None and self.held.node == node:
            self.held = replace(self.held, beside=beside)
            return ()
        ended = self._end(found, None)
        self._hold(found.seq, found.time_us, "node", None, node, position, beside, found.event.kind)
        return ended

    def _hold(
        self,
        seq: Seq,
        time_us: int | None,
        holder: Literal["request", "caller", "node"],
        request: RequestId | None,
        node: NodeId | None,
        position: int | None,
        beside: int | None,
        began: str,
    ) -> None:
        self.held = Tenure(seq, time_us, holder, request, node, position, beside or None, began)

    def _end(self, found: FoundEvent, cause: str | None) -> Iterable[Tenure]:
        held, self.held = self.held, None
        if held is None:
            return ()
        return (replace(held, until=found.seq, until_us=found.time_us, ended=found.event.kind, cause=cause),)

    def _index(self, full: Pages, swa: Pages | None) -> int | None:
        """Where the page stands in an event's arrays."""
        pages = swa if self._swa else full
        if pages is None:
            return None
        at = np.flatnonzero(pages == self._page)
        return int(at[0]) if len(at) else None

    def _peer(self, full: Pages, swa: Pages | None, at: int) -> int | None:
        other = full if self._swa else swa
        return None if other is None else int(other[at]) or None
