"""The contract between the cache and whoever owns the memory.

The cache decides which page belongs to whom; a `PageAllocator` only knows which pages nobody has. It
is asked for pages while a transaction runs and hears everything else at commit, as values, in one
call. `kvledger.core.device_pools.DevicePools` is the default; an engine that owns its memory
passes its own to `HybridCache(config, sink, pool=...)`.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kvledger.core.events import Pages


@dataclass(frozen=True, slots=True)
class PoolChanges:
    """Net result of one outermost transaction.

    `freed_full`, `freed_swa`: pages that nobody holds any more, each once. `mapped_full[i]` now maps to
    `mapped_swa[i]`, 0 for nothing; a Full page may be named more than once, with the same value.
    """

    freed_full: Pages
    freed_swa: Pages
    mapped_full: Pages
    mapped_swa: Pages


@runtime_checkable
class PageAllocator(Protocol):
    """What the cache needs of its memory. Pages are numbered 1 to the pool's size; 0 is padding."""

    restores_at_once: bool
    """True if `give_back` may be called while the transaction is open, at each rollback; False if
    it has to be told once, when the transaction ends. Until then the cache keeps the pages and
    hands them out again first."""

    def allocate(self, full: int, swa: int) -> tuple[Pages, Pages] | None:
        """Take `full` and `swa` pages out of the free sets: two int64 arrays, or None for no room."""

    def give_back(self, full: Pages, swa: Pages) -> None:
        """Put pages back that `allocate` handed out in a transaction that was undone since."""

    def commit(self, changes: PoolChanges) -> None:
        """Carry out the frees and mapping changes of one transaction. Must not fail."""

    def available(self) -> tuple[int, int]:
        """Free pages (full, swa) that `allocate` could hand out now."""
