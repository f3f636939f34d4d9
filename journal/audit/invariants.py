"""The invariants as data: tests, verdicts, documents and the page cite these ids."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise: its id, and what is true while it holds."""

    id: str
    sentence: str


INVARIANTS = (
    Invariant(
        "locked-full",
        "While a path is locked each of its positions keeps its Full page, which is nowhere else.",
    ),
    Invariant(
        "locked-swa",
        "While the SWA half of a lock is held each of its positions keeps its SWA page, which is not freed.",
    ),
    Invariant(
        "locked-content",
        "While a node is locked the bytes in its Full pages stay the same, and in its SWA while it is live.",
    ),
    Invariant(
        "conservation",
        "Every page of a pool is free, deferred, in the tree or held: in exactly one place, always.",
    ),
    Invariant(
        "mapping",
        "The SWA page of a live node is what its Full page maps to; tombstones and free pages map to none.",
    ),
    Invariant("tombstone-unlocked", "A tombstone carries no SWA lock."),
    Invariant(
        "lock-order",
        "Full locks are at least SWA locks, none is negative, and the leases of each request balance.",
    ),
    Invariant(
        "window-match",
        "Every locked length ends in a window of live SWA, or has no tombstone before it.",
    ),
    Invariant(
        "insert-match",
        "What a commit adds to the tree is what the match after it finds; the rest is rolled back.",
    ),
    Invariant(
        "row-safety",
        "Every page a running request can read is its own or lies on its locked path.",
    ),
    Invariant(
        "rollback-neutral",
        "Undone stretches nest and are marked exactly, and nothing later builds on them.",
    ),
    Invariant("namespace", "No node is reached from another namespace."),
    Invariant(
        "credit",
        "Tokens credited to a counter are pages that moved, in row order and as told.",
    ),
    Invariant("recency", "Stamps only rise, and who locks a path has touched its window."),
    Invariant("checkpoint", "Replay reproduces the digest of every checkpoint."),
    Invariant(
        "well-formed",
        "Every event names what exists, its arrays fit, and it agrees with the events around it.",
    ),
    Invariant("sequence", "Transactions and events are numbered without a gap."),
    Invariant("chain", "Every transaction's hash covers its own rows and the hash before it."),
)
