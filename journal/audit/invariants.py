"""The invariants as data: tests, verdicts, documents and the page cite these ids."""

from dataclasses import dataclass

from kvledger.journal.audit.check import Check
from kvledger.journal.audit.checkpoints import Checkpoints
from kvledger.journal.audit.credit import Credit
from kvledger.journal.audit.leases import LeaseBalance
from kvledger.journal.audit.locks import Locks
from kvledger.journal.audit.matching import Matching
from kvledger.journal.audit.pages import PageMoves
from kvledger.journal.audit.rollbacks import Rollbacks
from kvledger.journal.audit.rows import RowSafety


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise: its id, what is true while it holds, and the group of checks that watches it.

    `check` is None where the runner itself watches (numbers, fit), or another part does (the chain).
    """

    id: str
    sentence: str
    check: type[Check] | None


INVARIANTS = (
    Invariant(
        "locked-full",
        "While a path is locked each of its positions keeps its Full page, which is nowhere else.",
        Locks,
    ),
    Invariant(
        "locked-swa",
        "While the SWA half of a lock is held each of its positions keeps its SWA page, which is not freed.",
        Locks,
    ),
    Invariant(
        "conservation",
        "Every page of a pool is free, deferred, in the tree or held: in exactly one place, always.",
        PageMoves,
    ),
    Invariant(
        "mapping",
        "The SWA page of a live node is what its Full page maps to; tombstones and free pages map to none.",
        PageMoves,
    ),
    Invariant("tombstone-unlocked", "A tombstone carries no SWA lock.", Locks),
    Invariant(
        "lock-order",
        "Full locks are at least SWA locks, none is negative, and the leases of each request balance.",
        LeaseBalance,
    ),
    Invariant(
        "window-match",
        "Every locked length ends in a window of live SWA, or has no tombstone before it.",
        Matching,
    ),
    Invariant(
        "insert-match",
        "What a commit adds to the tree is what the match after it finds; the rest is rolled back.",
        Matching,
    ),
    Invariant(
        "row-safety",
        "Every page a running request can read is its own or lies on its locked path.",
        RowSafety,
    ),
    Invariant(
        "rollback-neutral",
        "Undone stretches nest and are marked exactly, and nothing later builds on them.",
        Rollbacks,
    ),
    Invariant("namespace", "No node is reached from another namespace.", Matching),
    Invariant("credit", "Tokens credited to a counter are pages that moved.", Credit),
    Invariant("checkpoint", "Replay reproduces the digest of every checkpoint.", Checkpoints),
    Invariant("well-formed", "Every event names what exists, and its arrays fit.", None),
    Invariant("sequence", "Transactions and events are numbered without a gap.", None),
    Invariant("chain", "Every transaction's hash covers its own rows and the hash before it.", None),
)
