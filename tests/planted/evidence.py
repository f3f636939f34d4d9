"""What a bounded run of the core left behind: its journal, the verdict on it, and what the cache noticed.

Runs are deterministic. The first event at which a run with a planted fault differs from that of the right
code is therefore where the fault began to show, and a finding has to point there, or not long after it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import InvariantViolation
from kvledger.core.events import Event
from kvledger.core.sinks import MemorySink
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.codec import EncodedEvent, encode
from kvledger.journal.records import StoredTransaction, number_transactions

See = Callable[[], None]
Drive = Callable[[HybridCache, See], None]
"""Works a new cache, and calls `see` between two operations."""


@dataclass(frozen=True)
class Course:
    """A drive and the cache it works: sizes in tokens."""

    drive: Drive
    page: int = 1
    window: int = 4
    full: int = 64
    swa: int = 64
    locked_recovery: str = "remap"
    eviction: str = "lru"
    quiet: bool = False
    """No checkpoint and no full walk between operations: faults are seen by what events tell, if at all."""

    def config(self) -> CacheConfig:
        """The configuration of its cache."""
        return CacheConfig.model_validate(
            {
                "page_size": self.page,
                "sliding_window": self.window,
                "full_tokens": self.full,
                "swa_tokens": self.swa,
                "locked_recovery": self.locked_recovery,
                "eviction": self.eviction,
            }
        )


@dataclass(frozen=True)
class Evidence:
    """`stopped`: what ended the drive. `walked`: what the full walk found first, and the last seq then."""

    transactions: Sequence[StoredTransaction]
    cells: Sequence[tuple[bool, EncodedEvent]]
    verdict: Verdict
    stopped: Exception | None
    walked: tuple[int, Sequence[tuple[str, str]]] | None

    def event(self, seq: int) -> Event:
        """The event at `seq`."""
        return next(e.event for t in self.transactions for e in t.events if e.seq == seq)

    def transaction_of(self, seq: int) -> int:
        """Number of the transaction that holds `seq`."""
        return next(t.number for t in self.transactions if t.first_seq <= seq <= t.last_seq)

    def last_seq_of(self, seq: int) -> int:
        """The last seq of the transaction that holds `seq`."""
        return next(t.last_seq for t in self.transactions if t.first_seq <= seq <= t.last_seq)

    def first_difference(self, right: "Evidence") -> int:
        """Seq of the first event that is another one in the `right` run, one past the end where none is."""
        for seq, (ours, theirs) in enumerate(zip(self.cells, right.cells, strict=False), start=1):
            if ours != theirs:
                return seq
        return min(len(self.cells), len(right.cells)) + 1


def run(course: Course) -> Evidence:
    """Drive a new cache to the end or the first error, with a checkpoint and a full walk at each pause."""
    sink = MemorySink()
    walked: list[tuple[int, Sequence[tuple[str, str]]]] = []
    stopped: Exception | None = None
    cache = HybridCache(course.config(), sink=sink)

    def see() -> None:
        if course.quiet:
            return
        if not walked:
            try:
                cache.check()
            except InvariantViolation as error:
                walked.append((sum(len(t.events) for t in sink.transactions), tuple(error.violations)))
        cache.checkpoint()

    try:
        course.drive(cache, see)
    except Exception as error:
        stopped = error
    transactions = number_transactions(sink.transactions)
    return Evidence(
        transactions,
        [
            (stored.undone, encode(stored.event))
            for transaction in transactions
            for stored in transaction.events
        ],
        audit(transactions),
        stopped,
        walked[0] if walked else None,
    )


@cache
def right_run(course: Course) -> Evidence:
    """The course on the right code, once for all variants. Call it before anything is planted."""
    return run(course)
