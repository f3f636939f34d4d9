"""rollback-neutral: an undone stretch is nested and marked exactly, and nothing later builds on it."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kvledger.core.events import (
    LockAcquired,
    NodeCreated,
    NodeSplit,
    Pages,
    PagesAllocated,
    RequestOpened,
    RollbackCause,
    RolledBack,
)
from kvledger.core.ids import LeaseId, NodeId, RequestId, Seq
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.fits import ReplayError
from kvledger.journal.records import StoredTransaction

BIRTHS_KEPT = 65_536
"""Ids born in undone stretches that are remembered, newest first, so that memory stays bounded."""

_OF_OTHER_POLICY = {"remap": RollbackCause.SKIPPED, "skip": RollbackCause.REFUSED}
"""By the policy `locked_recovery`: the cause of rollback that belongs to the other one."""

Birth = tuple[str, NodeId | LeaseId | RequestId]


class Rollbacks(Check):
    """Knows what was born in undone stretches, and checks the stretches themselves."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._births: dict[Birth, Seq] = {}
        self._undone_pages = np.zeros(self.state.full_pages + 2, np.bool_)
        self._any_undone_pages = False
        self._stretches: list[tuple[int, RolledBack]] = []

    def saw_undone(self, event: Any, *, seq: Seq) -> None:
        """Remember what an undone event brought into the world."""
        if isinstance(event, NodeCreated):
            self._remember(("node", event.node), seq)
        elif isinstance(event, NodeSplit):
            self._remember(("node", event.head), seq)
        elif isinstance(event, LockAcquired):
            self._remember(("lease", event.lease), seq)
        elif isinstance(event, RequestOpened):
            self._remember(("request", event.request_id), seq)
        elif isinstance(event, PagesAllocated):
            pages = event.full_pages
            self._undone_pages[pages[(pages > 0) & (pages <= self.state.full_pages)]] = True
            self._any_undone_pages = True

    def saw_rollback(self, event: RolledBack, *, ordinal: int) -> None:
        """Remember a rollback of the open transaction, undone itself or not."""
        self._stretches.append((ordinal, event))
        if event.cause is _OF_OTHER_POLICY.get(self.state.locked_recovery):
            self.findings.add(
                "insert-match",
                f"a commit was {event.cause} in part, which does not happen under the policy "
                f"{self.state.locked_recovery!r}",
                request=event.request_id,
            )
        self.counts["rollbacks"] += 1
        self.counts["anomalies"] += event.cause is RollbackCause.REFUSED
        self.counts["skipped"] += event.cause is RollbackCause.SKIPPED

    def allocated(self, pages: Pages) -> None:
        """Pages that are handed out for good are no longer an undone stretch's."""
        if self._any_undone_pages:
            self._undone_pages[self.state.index(pages)] = False

    def misplaced(self, pages: Pages) -> None:
        """Report those of the free `pages` an event used that an undone event had handed out."""
        born = pages[self._undone_pages[pages]]
        if len(born):
            self.findings.add(
                "rollback-neutral", "pages are used that only an undone event handed out", pages=born
            )

    def birth_of(self, error: ReplayError) -> tuple[str, Seq] | None:
        """What `error` missed, if it was born in an undone stretch, and the seq of its birth."""
        named: Iterable[tuple[str, NodeId | LeaseId | RequestId | None]] = (
            ("node", error.node),
            ("lease", error.lease),
            ("request", error.request),
        )
        for kind, name in named:
            if name is not None and (kind, name) in self._births:
                return f"{kind} {name}", self._births[kind, name]
        return None

    def _remember(self, birth: Birth, seq: Seq) -> None:
        self._births[birth] = seq
        if len(self._births) > BIRTHS_KEPT:
            del self._births[next(iter(self._births))]

    def ended_by(self) -> Iterable[type]:
        """What is undone ends for every check; a rollback is to be seen although nothing was."""
        return (RolledBack,)

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """The stretches of `transaction` nest, and cover exactly what is marked undone."""
        self._check_whole(transaction)
        marked = [stored.undone for stored in transaction.events]
        if not self._stretches and not transaction.rolled_back and True not in marked:
            return
        stretches, self._stretches = self._stretches, []
        covered = [False] * len(marked)
        settled: list[tuple[int, int]] = []
        for ordinal, event in stretches:
            if event.end != ordinal or not 0 <= event.first <= event.end:
                told = (
                    f"a rollback at ordinal {ordinal} names [{event.first}, {event.end}) and must end there"
                )
                self._add(transaction, ordinal, told)
                return
            if any(first < event.first <= at for first, at in settled):
                told = f"the rollback of [{event.first}, {event.end}) begins inside an earlier one"
                self._add(transaction, ordinal, told)
                return
            settled.append((event.first, ordinal))
            covered[event.first : event.end] = [True] * (event.end - event.first)
        if transaction.rolled_back:
            events: Sequence[Any] = transaction.events
            covered = [
                known or not isinstance(stored.event, RolledBack)
                for known, stored in zip(covered, events, strict=True)
            ]
        for ordinal, (is_covered, is_marked) in enumerate(zip(covered, marked, strict=True)):
            if is_covered != is_marked:
                told = "marked undone, but no rollback names it" if is_marked else "undone, but not marked so"
                self._add(transaction, ordinal, f"the event at ordinal {ordinal} is {told}")
                return

    def _check_whole(self, transaction: StoredTransaction) -> None:
        """A transaction that an error ended was undone from its first event on, and says why twice."""
        if not transaction.rolled_back or not transaction.events:
            return
        stored: Any = transaction.events[-1]
        last = stored.event
        ended = (
            isinstance(last, RolledBack)
            and (last.first, last.cause) == (0, RollbackCause.ERROR)
            and (last.request_id, last.reason) == (transaction.request_id, transaction.reason)
        )
        if not ended:
            told = "the transaction was rolled back, but it does not end with the rollback of all of it"
            self._add(transaction, len(transaction.events) - 1, told)

    def _add(self, transaction: StoredTransaction, ordinal: int, sentence: str) -> None:
        self.findings.add(
            "rollback-neutral",
            sentence,
            seq=transaction.events[ordinal].seq,
            request=transaction.request_id,
        )
