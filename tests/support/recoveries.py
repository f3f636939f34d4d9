"""Who goes on decoding on a node's Full after somebody else recovered its SWA, seen from outside.

Hears what the cache journals and sees the rows that a model reads, and knows neither cache nor scheduler.
"""

from collections.abc import Mapping, Set

import numpy as np

from kvledger.core.events import Pages, RecoveryMode, SwaRecovered, WidePages
from kvledger.core.sinks import TransactionRecord


class DecodingUnderRecovery:
    """`recoveries` under somebody's Full lock after which that somebody decoded on, and who `decoded`."""

    def __init__(self) -> None:
        self._decoding: dict[str, Pages | WidePages] = {}
        self._recovered: list[tuple[int, str, Pages]] = []
        self._heard = 0
        self.recoveries: set[int] = set()
        self.decoded: set[str] = set()

    def hear(self, transaction: TransactionRecord) -> None:
        """A transaction that was journaled; what it undid counts for nothing."""
        for event, undone in zip(transaction.events, transaction.undone, strict=True):
            if undone or not isinstance(event, SwaRecovered):
                continue
            if event.mode is RecoveryMode.KEEP_LOCKED_FULL:
                self._heard += 1
                self._recovered += [
                    (self._heard, name, event.node_full)
                    for name, pages in self._decoding.items()
                    if name != transaction.request_id and np.isin(event.node_full, pages).all()
                ]

    def look(self, rows: Mapping[str, Pages | WidePages], *, decoding: Set[str]) -> None:
        """A batch: the Full pages that each request in it reads, and which of them decode."""
        waiting = []
        for recovery, name, kept in self._recovered:
            if name in decoding and np.isin(kept, rows[name]).all():
                self.recoveries.add(recovery)
                self.decoded.add(name)
            elif name in rows:
                waiting.append((recovery, name, kept))
        self._recovered = waiting
        self._decoding = {name: rows[name] for name in decoding}
