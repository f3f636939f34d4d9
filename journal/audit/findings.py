"""Gathers what the checks find, at the event that is being read, within fixed limits."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from kvledger.core.events import Pages
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.journal.audit.verdict import Finding

FINDINGS_KEPT = 20
"""Findings kept of each invariant; the rest is counted. One fault often breaks every event after it."""

PAGES_NAMED = 16
"""Pages that one finding names: enough to look them up, little enough to read."""


class ChainFinding(Protocol):
    """One break of the hash chain, as whoever read the stored rows tells it.

    `invariant` is "chain" or "sequence"; `number` is the transaction and `seq` the first seq concerned.
    """

    @property
    def invariant(self) -> str: ...
    @property
    def sentence(self) -> str: ...
    @property
    def number(self) -> int | None: ...
    @property
    def seq(self) -> int | None: ...


class Findings:
    """The findings so far. `seq` and `transaction` say where the reader stands."""

    def __init__(self) -> None:
        self.seq: Seq | None = None
        self.transaction: TxnId | None = None
        self.totals: Counter[str] = Counter()
        self._kept: dict[str, list[Finding]] = {}

    def add(
        self,
        invariant: str,
        sentence: str,
        *,
        request: RequestId | None = None,
        holders: Sequence[str] = (),
        node: NodeId | None = None,
        pages: Pages | None = None,
        seq: Seq | None = None,
    ) -> None:
        """Note that the event at `seq` (None: the one being read) breaks `invariant`."""
        self.totals[invariant] += 1
        kept = self._kept.setdefault(invariant, [])
        if len(kept) >= FINDINGS_KEPT:
            return
        named = np.empty(0, np.int32) if pages is None else pages
        kept.append(
            Finding(
                invariant=invariant,
                sentence=sentence,
                seq=self.seq if seq is None else seq,
                transaction=self.transaction,
                request=request,
                holders=tuple(holders),
                node=node,
                pages=tuple(named[:PAGES_NAMED].tolist()),
                pages_total=len(named),
            )
        )

    def take_over(self, breaks: Iterable[ChainFinding]) -> None:
        """Keep what a verification of the chain found, within the same limits."""
        for found in breaks:
            self.totals[found.invariant] += 1
            kept = self._kept.setdefault(found.invariant, [])
            if len(kept) < FINDINGS_KEPT:
                kept.append(
                    Finding(
                        invariant=found.invariant,
                        sentence=found.sentence,
                        seq=found.seq,
                        transaction=found.number,
                    )
                )

    def kept(self, order: Sequence[str]) -> tuple[Finding, ...]:
        """All kept findings by seq; of one seq, in the order of the invariants in `order`."""
        place = {invariant: index for index, invariant in enumerate(order)}
        everything = [finding for kept in self._kept.values() for finding in kept]
        everything.sort(key=lambda finding: (finding.seq or 0, place[finding.invariant]))
        return tuple(everything)
