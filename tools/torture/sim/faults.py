"""Exceptions put into an operation: before any of its events, at the sink, at its beginning, in the memory.

A fault is armed for one call of the cache and goes off at most once. Those before an event stand in for
whatever may fail inside the core; they need a core that is interpreted, and stay away in a compiled one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kvledger.core import COMPILED
from kvledger.core.events import Event
from kvledger.core.sinks import EventSink, TokenForm, TransactionRecord
from kvledger.core.transaction import Ledger
from kvledger.tools.torture.sim.operations import Fault


class Injected(Exception):
    """An error that the simulation put there."""


class InjectedInterrupt(BaseException):
    """The same as a signal would bring it: not an `Exception`."""


class Trap:
    """The fault that is armed now, if any."""

    def __init__(self) -> None:
        self._fault: Fault | None = None
        self.sprung = False

    @contextmanager
    def armed(self, fault: Fault | None) -> Iterator[None]:
        """Arm a fault inside the block."""
        self._fault, self.sprung = fault, False
        try:
            if fault is not None and fault.kind == "event" and not COMPILED:
                with self._before_event(fault):
                    yield
            else:
                yield
        finally:
            self._fault = None

    def spring(self, kind: str) -> None:
        """Raise if a fault of this kind is armed."""
        if self._fault is not None and self._fault.kind == kind and not self.sprung:
            self._raise(self._fault)

    def _raise(self, fault: Fault) -> None:
        self.sprung = True
        if fault.interrupts:
            raise InjectedInterrupt("an interrupt that was put there")
        raise Injected("an error that was put there")

    @contextmanager
    def _before_event(self, fault: Fault) -> Iterator[None]:
        apply = Ledger.apply
        seen = 0

        def counted(ledger: Ledger, event: Event) -> None:
            nonlocal seen
            seen += 1
            if seen - 1 == fault.at and not self.sprung:
                self._raise(fault)
            apply(ledger, event)

        ledger_class: Any = Ledger
        ledger_class.apply = counted
        try:
            yield
        finally:
            ledger_class.apply = apply


class Tap:
    """The sink between cache and recorder: counts what was taken, and fails where a fault says so."""

    def __init__(self, recorder: Any, trap: Trap) -> None:
        self._recorder: EventSink = recorder
        self._listener: Any = recorder
        self._trap = trap
        self.transactions = 0
        self.events = 0

    @property
    def token_form(self) -> TokenForm:
        """That of the recorder."""
        form: TokenForm = self._listener.token_form
        return form

    def begin_transaction(self) -> None:
        """A transaction begins."""
        self._trap.spring("begin")
        self._listener.begin_transaction()

    def append(self, transaction: TransactionRecord) -> None:
        """Hand a transaction on."""
        self._trap.spring("sink")
        self._recorder.append(transaction)
        self.transactions += 1
        self.events += len(transaction.events)
