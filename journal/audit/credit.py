"""credit: what a summary event counts is what the events before it moved."""

from kvledger.core.events import (
    Cause,
    Evicted,
    NodeCreated,
    NodeDeleted,
    PagesFreed,
    Pool,
    PrefixInserted,
    RecoveryMode,
    SwaRecovered,
    SwaTombstoned,
    TokenRange,
)
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.effects import REUSABLE
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import Node, Request


class Credit(Check):
    """Adds up evictions and inserts inside a transaction and compares them with their summaries."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._evicted_full = 0
        self._evicted_swa = 0
        self._adopted_full: list[TokenRange] = []
        self._adopted_swa: list[TokenRange] = []
        self._duplicates = 0
        self.before = {
            NodeDeleted: self._before_deleted,
            SwaTombstoned: self._before_tombstoned,
            NodeCreated: self._before_created,
            SwaRecovered: self._before_recovered,
            PagesFreed: self._before_freed,
            Evicted: self._evicted,
            PrefixInserted: self._inserted,
        }

    def _before_deleted(self, event: NodeDeleted, node: Node) -> None:
        if event.cause in REUSABLE:
            self._evicted_full += len(event.full_pages)
            self._evicted_swa += 0 if event.swa_pages is None else len(event.swa_pages)

    def _before_tombstoned(self, event: SwaTombstoned, node: Node) -> None:
        if event.cause in REUSABLE:
            self._evicted_swa += len(event.swa_pages)

    def _evicted(self, event: Evicted, subject: None) -> None:
        self.counts["evictions"] += 1
        full = self._evicted_full * self.state.page_size
        swa = self._evicted_swa * self.state.page_size
        if (event.counted_full, event.counted_swa) != (full, swa):
            self.findings.add(
                "credit",
                f"an eviction counts {event.counted_full} Full and {event.counted_swa} SWA tokens; "
                f"it freed {full} and {swa}",
            )
        self._evicted_full = self._evicted_swa = 0

    def _before_created(self, event: NodeCreated, parent: Node | None) -> None:
        tokens = (event.start, event.start + len(event.full_pages) * self.state.page_size)
        self._adopted_full.append(tokens)
        if event.swa_pages is not None:
            self._adopted_swa.append(tokens)

    def _before_recovered(self, event: SwaRecovered, node: Node) -> None:
        tokens = (node.start, node.end)
        self._adopted_swa.append(tokens)
        if event.mode is RecoveryMode.ADOPT_INCOMING:
            self._adopted_full.append(tokens)
        else:
            self._duplicates += node.end - node.start

    def _before_freed(self, event: PagesFreed, request: Request | None) -> None:
        if event.cause is Cause.DUPLICATE and event.pool is not Pool.SWA:
            self._duplicates += len(event.full_pages) * self.state.page_size

    def _inserted(self, event: PrefixInserted, subject: None) -> None:
        full, swa = _merged(self._adopted_full), _merged(self._adopted_swa)
        if (_pairs(event.adopted_full), _pairs(event.adopted_swa)) != (full, swa):
            self.findings.add(
                "credit",
                f"an insert counts as adopted {_told(event.adopted_full)} of Full and "
                f"{_told(event.adopted_swa)} of SWA; the tree took over {_told(full)} and {_told(swa)}",
                request=event.request_id,
            )
        if event.duplicates != self._duplicates:
            self.findings.add(
                "credit",
                f"an insert counts {event.duplicates} duplicate tokens; {self._duplicates} were freed",
                request=event.request_id,
            )
        self._clear_insert()

    def _clear_insert(self) -> None:
        self._adopted_full.clear()
        self._adopted_swa.clear()
        self._duplicates = 0

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """Nothing that was evicted or adopted is left without a summary."""
        if self._evicted_full or self._evicted_swa:
            self.findings.add(
                "credit",
                f"{self._evicted_full} Full and {self._evicted_swa} SWA pages were evicted and never counted",
            )
            self._evicted_full = self._evicted_swa = 0
        if self._adopted_full or self._adopted_swa or self._duplicates:
            self.findings.add(
                "credit",
                f"the tree took over {_told(_merged(self._adopted_full))} and freed {self._duplicates} "
                "duplicate tokens in an insert that was never summed up",
            )
            self._clear_insert()


def _pairs(ranges: tuple[TokenRange, ...]) -> tuple[TokenRange, ...]:
    """The ranges as tuples: a stored journal may hold them as lists."""
    return tuple((start, end) for start, end in ranges)


def _merged(ranges: list[TokenRange]) -> tuple[TokenRange, ...]:
    merged: list[TokenRange] = []
    for start, end in sorted(ranges):
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)


def _told(ranges: tuple[TokenRange, ...]) -> str:
    return " ".join(f"[{start}, {end})" for start, end in ranges) if ranges else "nothing"
