"""The audit of a journal: `audit(transactions)` gives a `Verdict` with evidence.

It is written from docs/events.md and docs/format.md alone and shares no line with the cache it judges.
"""

from kvledger.journal.audit.invariants import INVARIANTS, Invariant
from kvledger.journal.audit.runner import audit
from kvledger.journal.audit.verdict import Counts, Finding, Gap, InvariantReport, LockCut, Verdict

__all__ = [
    "INVARIANTS",
    "Counts",
    "Finding",
    "Gap",
    "Invariant",
    "InvariantReport",
    "LockCut",
    "Verdict",
    "audit",
]
