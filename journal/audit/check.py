"""What every group of checks is to the runner: hooks by event type, and where they look and report."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kvledger.journal.audit.findings import Findings
from kvledger.journal.records import StoredTransaction
from kvledger.journal.state import State

Hook = Callable[[Any, Any], None]
"""Called with an event and what it is about (see `structure.STRUCTURE`)."""


@dataclass(slots=True)
class Context:
    """What the checks share: the state being folded, the findings and the tally of what was checked.

    `reading` is the transaction being read, with its undone events. `fingerprints` is the cache's setting of
    that name, None where the event that tells it is not there.
    """

    state: State
    findings: Findings
    counts: Counter[str] = field(default_factory=Counter)
    reading: StoredTransaction | None = None
    fingerprints: bool | None = False


class Check:
    """A group of invariants. Hooks in `before` see the state an event meets, those in `after` what it left.

    A hook looks at the state and changes nothing of it. Only live events that fit the state get here.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.state = context.state
        self.findings = context.findings
        self.counts = context.counts
        self.before: dict[type, Hook] = {}
        self.after: dict[type, Hook] = {}

    def resume(self) -> None:
        """The state was taken from a checkpoint: what was remembered of how it came about starts from it."""

    def ended_by(self) -> Iterable[type]:
        """Types of events after which a transaction has an end for this check: those it has hooks for."""
        return self.before.keys() | self.after.keys()

    def end_transaction(self, transaction: StoredTransaction) -> None:
        """The last event of `transaction` was read; deferred pages are still deferred.

        Called where it holds an event that `ended_by` names, and for every transaction of which anything was
        undone or does not fit.
        """

    def end(self) -> None:
        """The journal is at its end."""
