"""The contract between the cache and whoever owns the memory.

The cache decides which page belongs to whom; a `PageAllocator` only knows which pages nobody has. It
is asked for pages while a transaction runs and hears everything else at commit, as values, in one
call. `kvledger.core.device_pools.DevicePools` is the default; an engine that owns its memory
passes its own to `HybridCache(config, sink, pool=...)`.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kvledger.core.config import CacheConfig
from kvledger.core.errors import InvalidArgument, InvariantViolation
from kvledger.core.events import Pages, WidePages
from kvledger.core.page_arrays import concatenate, narrowed, widened

MappedPart = tuple[Pages, Pages | None]
"""Full pages, and the SWA page beside each; None where none has one."""

Fingerprints = npt.NDArray[np.uint64]
"""uint64[n, 2]: per page the checksum of its Full layers and of its SWA layers."""


class PoolChanges:
    """Net result of one outermost transaction.

    Made of pages of any integers. `freed_full`, `freed_swa`: pages that nobody holds any more, each once.
    `mapped_full[i]` now maps to `mapped_swa[i]`, 0 for nothing; a Full page may be named more than once, with
    the same value.

    Memory whose attribute `takes_parts` is True, as our own on the host, finds them in parts and spares
    joining them: lists of pages freed, and of Full pages beside what they were mapped to, None for 0. There a
    page may be named again with another value, and the last one holds.
    """

    __slots__ = ("freed_full_parts", "freed_swa_parts", "mapped_parts")

    def __init__(self, freed_full: Any, freed_swa: Any, mapped_full: Any, mapped_swa: Any) -> None:
        self.freed_full_parts = [narrowed(freed_full)]
        self.freed_swa_parts = [narrowed(freed_swa)]
        self.mapped_parts: list[MappedPart] = [(narrowed(mapped_full), narrowed(mapped_swa))]

    @classmethod
    def of_parts(
        cls, freed_full: list[Pages], freed_swa: list[Pages], mapped: list[MappedPart]
    ) -> "PoolChanges":
        """Changes in parts, which are kept as they are."""
        changes = cls.__new__(cls)
        changes.freed_full_parts = freed_full
        changes.freed_swa_parts = freed_swa
        changes.mapped_parts = mapped
        return changes

    @property
    def freed_full(self) -> WidePages:
        """Full pages freed: int64[n]."""
        return widened(concatenate(self.freed_full_parts))

    @property
    def freed_swa(self) -> WidePages:
        """SWA pages freed: int64[n]."""
        return widened(concatenate(self.freed_swa_parts))

    @property
    def mapped_full(self) -> WidePages:
        """Full pages whose mapping was written: int64[n]."""
        return widened(concatenate([full for full, _ in self.mapped_parts]))

    @property
    def mapped_swa(self) -> WidePages:
        """What each of them was mapped to: int64[n]."""
        parts = [np.zeros_like(full) if swa is None else swa for full, swa in self.mapped_parts]
        return widened(concatenate(parts))


@runtime_checkable
class PageAllocator(Protocol):
    """What the cache needs of its memory. Pages are numbered 1 to the pool's size; 0 is padding."""

    restores_at_once: bool
    """True if `give_back` may be called while the transaction is open, at each rollback; False if
    it has to be told once, when the transaction ends. Until then the cache keeps the pages and
    hands them out again first."""

    def allocate(self, full: int, swa: int) -> tuple[Any, Any] | None:
        """Take `full` and `swa` pages out of the free sets: two arrays of integers, or None for no room."""

    def give_back(self, full: Any, swa: Any) -> None:
        """Put pages back that `allocate` handed out in a transaction that was undone since: two int64[n]."""

    def commit(self, changes: PoolChanges) -> None:
        """Carry out the frees and mapping changes of one transaction. Must not fail."""

    def available(self) -> tuple[int, int]:
        """Free pages (full, swa) that `allocate` could hand out now."""


def vetted(pages: Any, wanted: int, state: npt.NDArray[Any], pool: str) -> Pages:
    """An owned copy of the pages that an engine's allocator handed out: int32[wanted].

    `state` has an entry for each page of the pool and the padding page, 0 for one that is free.
    InvariantViolation for anything but `wanted` free pages, each once. O(wanted log wanted).
    """
    try:
        own = np.require(np.array(pages, dtype=np.int64), np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvariantViolation([("conservation", f"the allocator's {pool} pages are no array")]) from error
    wrong = ""
    if own.shape != (wanted,):
        wrong = f"has the shape {own.shape} where {wanted} pages were asked for"
    elif wanted and (int(own.min()) < 1 or int(own.max()) >= len(state)):
        wrong = f"names pages outside 1 to {len(state) - 1}"
    elif state[own].any():
        wrong = "names a page that is not free"
    elif len(np.unique(own)) != wanted:
        wrong = "names a page twice"
    if wrong:
        raise InvariantViolation([("conservation", f"what the allocator handed out for {pool} {wrong}")])
    return narrowed(own)


@runtime_checkable
class KVFingerprinter(Protocol):
    """What `CacheConfig.fingerprints` needs of the memory besides; a `PageAllocator` may do without."""

    def fingerprint(self, full: WidePages, swa: WidePages, /) -> Fingerprints:
        """Checksums of the KV bytes of Full pages, and of the SWA pages beside them: uint64[n, 2].

        `swa[i]` is 0 where there is none, and its checksum then 0. Equal bytes have equal checksums wherever
        they are. Asked while a transaction is open, in which no KV is written: so the mapping that the
        memory was told of may be older than `swa`. What is raised refuses a lock, as KVUnreadable; a
        release and a recovery go on without, and the journal tells that evidence is missing.
        """


def fingerprinter(
    config: CacheConfig, allocator: PageAllocator, *, foreign: bool
) -> Callable[[WidePages, WidePages], Fingerprints] | None:
    """What computes fingerprints, None where the configuration asks for none.

    InvalidArgument where it does and the memory cannot: our own without a layout has no KV to sum.
    """
    if not config.fingerprints:
        return None
    if not foreign and config.layout is None:
        raise InvalidArgument("fingerprints are checksums of KV, and without a layout the pools hold none")
    if not isinstance(allocator, KVFingerprinter):
        raise InvalidArgument(
            f"{type(allocator).__name__} cannot compute fingerprints: it has no fingerprint()"
        )
    return allocator.fingerprint
