"""A sink between cache and recorder: times it, and notes which pages a recovery touched."""

import time
from collections.abc import Callable

import numpy as np

from kvledger.core.events import Pages, SwaRecovered
from kvledger.core.sinks import EventSink, TokenForm, TransactionRecord, beginnings_of
from kvledger.tools.scheduler.meter import Meter


class TapSink:
    """Passes every transaction on and remembers the Full pages of its recoveries.

    What the inner sink refuses never happened, so nothing of it is noted; nor is what was rolled back.
    """

    def __init__(self, inner: EventSink | None, meter: Meter) -> None:
        self._inner = inner
        self._inner_begins: Callable[[], None] | None = beginnings_of(inner)
        self._meter = meter
        self._recovered: list[Pages] = []
        self.token_form: TokenForm | None = getattr(inner, "token_form", None)
        self.events = 0
        self.transactions = 0

    def begin_transaction(self) -> None:
        """A transaction begins: the inner sink may want to know how long it takes."""
        if self._inner_begins is not None:
            self._inner_begins()

    def append(self, transaction: TransactionRecord) -> None:
        """Hand the transaction on, then look at it."""
        if self._inner is not None:
            start = time.thread_time_ns()
            try:
                self._inner.append(transaction)
            finally:
                self._meter.journal_ns += time.thread_time_ns() - start
        self.transactions += 1
        self.events += len(transaction.events)
        for event, undone in zip(transaction.events, transaction.undone, strict=True):
            if type(event) is SwaRecovered and not undone:
                # Both: a fault may have given the node either, and a row may still name the old ones.
                self._recovered += (event.node_full, event.incoming_full)

    def take_recovered(self) -> Pages | None:
        """Full pages of nodes recovered since the last call, int32[n]; None when there were none."""
        if not self._recovered:
            return None
        pages = np.concatenate(self._recovered)
        self._recovered.clear()
        return pages
