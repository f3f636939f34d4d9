"""credit and insert-match: what an insert says of itself is what it took, page by page and in row order.

An insert takes the pages of its row one after another: each becomes the tree's in a new node or by a
recovery, or is freed as a duplicate. So the pages taken, in the order of the events, are the row from
`protected_len` on; a request's row is known, and no position of it can be passed over. What a match did not
accept is undone just before the insert is summed up, and continues the same row.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from kvledger.core.events import (
    Cause,
    Event,
    NodeCreated,
    Pages,
    PagesFreed,
    Pool,
    PrefixInserted,
    RollbackCause,
    RolledBack,
    SwaRecovered,
)
from kvledger.core.ids import Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.places import CALLER
from kvledger.journal.records import StoredTransaction
from kvledger.journal.same_pages import joined, same_in_pieces
from kvledger.journal.state import Node, Request

REFUSALS = frozenset({RollbackCause.REFUSED, RollbackCause.SKIPPED})


@dataclass(slots=True)
class _Taken:
    """What an insert took so far: pages in row order, how many of them had no SWA, where nodes begin."""

    parts: list[Pages] = field(default_factory=list)
    pages: int = 0
    without_swa: int = 0
    in_order: bool = True
    grown_from: int | None = None
    starts: list[tuple[int, int]] = field(default_factory=list)

    def take(self, full: Pages, swa: Pages | None) -> None:
        """The next `full` pages of the row, beside `swa`; those without SWA stand before all others."""
        dead = len(full) if swa is None else len(full) - int(np.count_nonzero(swa))
        if dead and (self.without_swa < self.pages or (swa is not None and np.count_nonzero(swa[:dead]))):
            self.in_order = False
        self.parts.append(full)
        self.pages += len(full)
        self.without_swa += dead

    def create(self, event: NodeCreated) -> None:
        """A new leaf took pages; the first one says how far Full reached before."""
        if self.grown_from is None:
            self.grown_from = event.start
        self.starts.append((event.start, self.pages))
        self.take(event.full_pages, event.swa_pages)


_NOTHING = _Taken()
"""What was undone of an insert of which nothing was refused. Never added to."""


class Inserts(Check):
    """Follows each insert from its first page to its summary. Cost: the pages it takes."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._taken = _Taken()
        self._owners: set[int] = set()
        self._refusal: RolledBack | None = None
        self._refusal_seq = Seq(0)
        self.before = {
            NodeCreated: self._before_created,
            SwaRecovered: self._before_recovered,
            PagesFreed: self._before_freed,
            RolledBack: self._rolled_back,
            PrefixInserted: self._inserted,
        }

    def _before_created(self, event: NodeCreated, parent: Node | None) -> None:
        self._owners.add(self.state.full_at.item(event.full_pages.item(0)))
        self._taken.create(event)

    def _before_recovered(self, event: SwaRecovered, node: Node) -> None:
        self._owners.add(self.state.full_at.item(event.incoming_full.item(0)))
        self._taken.starts.append((node.start, self._taken.pages))
        self._taken.take(event.incoming_full, event.swa_pages)

    def _before_freed(self, event: PagesFreed, request: Request | None) -> None:
        if event.cause is Cause.DUPLICATE and event.pool is not Pool.SWA:
            self._owners.add(CALLER if request is None else request.code)
            self._taken.take(event.full_pages, event.swa_pages)

    def _rolled_back(self, event: RolledBack, subject: None) -> None:
        self._anomaly_told()
        if event.cause not in REFUSALS:
            return
        self._refusal = event
        self._refusal_seq = self.findings.seq or Seq(0)
        if event.request_id is not None and event.request_id not in self.state.requests:
            self.findings.add(
                "insert-match",
                f"a commit of {event.request_id!r} was refused in part, but no such request is open",
                request=event.request_id,
            )

    def _anomaly_told(self) -> None:
        """What a match refused under "remap" is part of an insert that goes on and is summed up at once."""
        refusal, self._refusal = self._refusal, None
        if refusal is not None and refusal.cause is RollbackCause.REFUSED:
            self.findings.add(
                "insert-match",
                "a part of a commit was refused, but no insert tells of the rest",
                request=refusal.request_id,
                seq=self._refusal_seq,
            )

    def _inserted(self, event: PrefixInserted, subject: None) -> None:
        taken, owners = self._taken, self._owners
        self._taken, self._owners = _Taken(), set()
        undone = self._refused(event) if event.refused > 0 else _NOTHING
        self._anomaly_told()
        told = chain(
            self._lengths(event), self._amounts(event, taken, undone), self._window(event, taken, undone)
        )
        for sentence in told:
            self.findings.add("credit", sentence, request=event.request_id)
        if event.request_id is None:
            if owners - {CALLER} or not self._all_callers(undone):
                self._wrong(event, "a raw insert takes the caller's pages, and what is refused stays theirs")
        else:
            self._of_request(event, taken, undone, owners)

    def _refused(self, event: PrefixInserted) -> _Taken:
        """What the rollback just before the summary took back."""
        undone = _Taken()
        refusal = self._refusal
        if (
            refusal is None
            or refusal.request_id != event.request_id
            or self._refusal_seq + 1 != self.findings.seq
        ):
            self.findings.add(
                "insert-match",
                f"{event.refused} tokens were refused, but no rollback of them stands just before",
                request=event.request_id,
            )
            return undone
        self._refusal = None
        reading = self.context.reading
        if reading is not None:
            first, end = max(0, refusal.first), max(0, refusal.end)
            _gather(undone, (stored.event for stored in reading.events[first:end]))
        if undone.pages * self.state.page_size != event.refused:
            self.findings.add(
                "insert-match",
                f"{event.refused} tokens were refused; the rollback gave "
                f"{undone.pages * self.state.page_size} back",
                request=event.request_id,
            )
        return undone

    def _all_callers(self, undone: _Taken) -> bool:
        """Whether the pages of a part that was undone are the raw caller's, as they were before."""
        pages = joined(undone.parts)
        if not ((pages > 0) & (pages <= self.state.full_pages)).all():
            return False
        return bool((self.state.full_at[pages] == CALLER).all())

    def _lengths(self, event: PrefixInserted) -> Iterable[str]:
        page, offered = self.state.page_size, event.length + event.refused
        lengths = (event.length, event.refused, event.prefix_len, event.protected_len, event.swa_evicted_len)
        if min(lengths) < 0 or any([length % page for length in lengths]):
            yield f"the lengths of an insert are {lengths}: each is a multiple of the page size, 0 or more"
        if not event.protected_len <= event.length or event.swa_evicted_len > offered:
            yield (
                f"an insert of {offered} tokens that accepts {event.length} cannot begin at "
                f"{event.protected_len} with SWA from {event.swa_evicted_len} on"
            )
        for start, end in (*event.adopted_full, *event.adopted_swa):
            if not event.protected_len <= start < end <= event.length:
                yield (
                    f"[{start}, {end}) cannot be adopted by an insert of "
                    f"[{event.protected_len}, {event.length})"
                )

    def _amounts(self, event: PrefixInserted, taken: _Taken, undone: _Taken) -> Iterable[str]:
        page = self.state.page_size
        if taken.pages * page != event.length - event.protected_len:
            yield (f"an insert of [{event.protected_len}, {event.length}) took pages of {taken.pages * page}")
        first = taken.grown_from if taken.grown_from is not None else undone.grown_from
        reached = event.length + event.refused if first is None else first
        if event.prefix_len != reached:
            yield f"an insert found Full up to {event.prefix_len}, but new nodes begin at {reached}"
        if any([start != event.protected_len + offset * page for start, offset in taken.starts]):
            yield "the pages an insert took do not stand at the positions of the nodes they went to"

    def _window(self, event: PrefixInserted, taken: _Taken, undone: _Taken) -> Iterable[str]:
        dead = taken.without_swa + undone.without_swa
        given_back = event.protected_len + dead * self.state.page_size
        in_order = taken.in_order and undone.in_order
        if not in_order or (undone.without_swa and taken.without_swa < taken.pages):
            yield "an insert brought pages without SWA after pages with SWA"
        elif event.swa_evicted_len != given_back if dead else event.swa_evicted_len > event.protected_len:
            yield (
                f"an insert tells that SWA was given back before {event.swa_evicted_len}; its pages have "
                f"none before {given_back}"
            )

    def _of_request(self, event: PrefixInserted, taken: _Taken, undone: _Taken, owners: set[int]) -> None:
        request = None if event.request_id is None else self.state.requests.get(event.request_id)
        if request is None:
            self._wrong(event, f"an insert tells of request {event.request_id!r}, which is not open")
            return
        if event.namespace != request.namespace:
            self.findings.add(
                "namespace",
                f"request {request.id!r} of namespace {request.namespace!r} inserts into {event.namespace!r}",
                request=request.id,
            )
        lease = None if request.lease is None else self.state.leases.get(request.lease)
        if event.protected_len != (0 if lease is None else lease.length):
            self._wrong(
                event, f"an insert begins at {event.protected_len}, which is not where the lease ends"
            )
        if owners - {request.code}:
            self._wrong(event, f"an insert of request {request.id!r} took pages it does not hold")
        first = max(0, event.protected_len) // self.state.page_size
        parts = taken.parts + undone.parts
        row = request.row[first : first + taken.pages + undone.pages]
        if not same_in_pieces(parts, [row]):
            found = joined(parts)
            moved = found[: len(row)][found[: len(row)] != row] if len(row) else found
            self.findings.add(
                "credit",
                "an insert took other pages than those of the row, or in another order",
                request=request.id,
                pages=moved,
            )

    def _wrong(self, event: PrefixInserted, sentence: str) -> None:
        self.findings.add("credit", sentence, request=event.request_id)

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """What was taken and never summed up is the business of `Credit`."""
        self._anomaly_told()
        if self._taken.parts:
            self._taken, self._owners = _Taken(), set()


def _gather(taken: _Taken, events: Iterable[Event]) -> None:
    for event in events:
        if isinstance(event, NodeCreated):
            taken.create(event)
        elif isinstance(event, SwaRecovered):
            taken.take(event.incoming_full, event.swa_pages)
        elif isinstance(event, PagesFreed) and event.cause is Cause.DUPLICATE and event.pool is not Pool.SWA:
            taken.take(event.full_pages, event.swa_pages)
