"""This cache as a `CacheUnderTest`: what a benchmark harness for caches of other projects drives.

The harness keeps rows and leases itself, so these are the raw tree operations, each of them one transaction.
Its tokens are 64-bit; `key` maps them into int32, in which the cache takes them, outside of what is timed.
"""

import tempfile
import weakref
from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core import CacheConfig, HybridCache, Lease, OutOfSlots
from kvledger.core.errors import InvalidArgument
from kvledger.core.sinks import EventSink
from kvledger.journal import Journal
from kvledger.journal.apart import ApartRecorder
from kvledger.journal.recorder import Recorder

WINDOW = {1: 128, 64: 1024}
"""The harness's windows by page size."""

OUTPUT_BASE = 1 << 40
"""Where the harness's ids of generated tokens begin."""

INT32_OUTPUT_BASE = 1 << 30
"""Where they begin here."""

Key = npt.NDArray[np.int32]
Slots = npt.NDArray[np.int64]
Found = tuple[Key, int]
"""What stands for a node: the tokens that were matched, and how many of them."""


class Unrecorded:
    """The cache with no journal. Sizes in tokens; slots are int64 arrays."""

    def __init__(self, page_size: int, full_size: int, swa_size: int) -> None:
        self.page_size = page_size
        self.window = WINDOW[page_size]
        self.full_size = full_size
        self.swa_size = swa_size
        self.allocator_ns = 0  # there is no allocator apart from the cache
        self.branch = 0
        self._leases: dict[int, Lease] = {}
        self.cache = self._made(None)

    def _made(self, sink: EventSink | None) -> HybridCache:
        return HybridCache(
            CacheConfig(
                page_size=self.page_size,
                sliding_window=self.window,
                full_tokens=self.full_size,
                swa_tokens=self.swa_size,
            ),
            sink=sink,
        )

    # Untimed.

    def reset(self) -> None:
        """Begin anew, with everything free."""
        self._leases = {}
        self.cache = self._made(None)

    def key(self, tokens: "array[int]") -> Key:
        """Tokens as int32. Raises InvalidArgument where prompts reach into the ids of outputs."""
        wide = np.frombuffer(tokens, dtype=np.int64)
        generated = wide >= OUTPUT_BASE
        if (wide[~generated] >= INT32_OUTPUT_BASE).any():
            raise InvalidArgument(f"a prompt token is not below {INT32_OUTPUT_BASE}")
        return np.where(generated, wide - (OUTPUT_BASE - INT32_OUTPUT_BASE), wide).astype(np.int32)

    def concat(self, parts: list[Slots]) -> Slots:
        """One row of several."""
        return np.concatenate(parts)

    def to_numpy(self, slots: Slots) -> Slots:
        """Slots are arrays already."""
        return slots

    def swa_of(self, slots: Slots) -> Slots:
        """SWA slots beside Full slots, 0 for none."""
        return self.cache.swa_slots(slots)

    def alloc(self, n: int) -> Slots | None:
        """`n` Full slots, each with a peer; None where there is no room."""
        try:
            return self.cache.alloc(n)
        except OutOfSlots:
            return None

    def free(self, slots: Slots, start_pos: int) -> None:
        """Give own slots back."""
        self.cache.free(slots)

    def free_swa(self, slots: Slots, start_pos: int) -> None:
        """Give the SWA side of own slots back."""
        self.cache.free_swa(slots)

    def available(self) -> tuple[int, int]:
        """Free tokens (Full, SWA)."""
        sizes = self.cache.sizes()
        return sizes.full.free, sizes.swa.free

    def evictable(self) -> tuple[int, int]:
        """Evictable tokens (Full, SWA)."""
        sizes = self.cache.sizes()
        return sizes.full.evictable, sizes.swa.evictable

    def protected(self) -> tuple[int, int]:
        """Locked tokens (Full, SWA)."""
        sizes = self.cache.sizes()
        return sizes.full.protected, sizes.swa.protected

    def check(self) -> None:
        """Raise InvariantViolation if anything is wrong."""
        self.cache.check()

    # Timed.

    def match(self, key: Key) -> tuple[int, Found, Any]:
        """Length of the longest usable prefix."""
        found = self.cache.match_prefix(key)
        return found.length, (key, found.length), None

    def match_indices(self, key: Key) -> tuple[int, Found, Slots]:
        """The same with its slots; `branch` tells where the row is worth publishing first."""
        found = self.cache.match_prefix(key)
        self.branch = found.publish_length
        return found.length, (key, found.length), found.slots

    def lock(self, node: Found) -> Lease:
        """Lock what was matched."""
        key, length = node
        return self._kept(self.cache.acquire(key, max_length=length))

    def unlock(self, lock: Lease) -> None:
        """Give a lock back."""
        if lock.length and self._leases.get(lock.last_slot) is lock:
            del self._leases[lock.last_slot]
        self.cache.release(lock)

    def release_swa(self, lock: Lease) -> None:
        """Give the SWA half of a lock back."""
        self.cache.release_swa(lock)

    def insert(self, key: Key, slots: Slots, prev_len: int, swa_evicted: int) -> Any:
        """Insert the whole pages of `key`, behind a lease where one ends at `prev_len`."""
        cache, whole = self.cache, len(slots)
        lease = self._leases.get(int(slots[prev_len - 1])) if prev_len else None
        if lease is None or lease.length != prev_len:
            return cache.insert(key[:whole], slots, protected_len=prev_len, swa_evicted_len=swa_evicted)
        return cache.insert_after(lease, key[prev_len:whole], slots[prev_len:], swa_evicted_len=swa_evicted)

    def evict(self, full: int, swa: int) -> None:
        """Free so many tokens."""
        self.cache.evict(full, swa)

    def evict_for_alloc(self, full: int, swa: int) -> None:
        """Free so many tokens, for an allocation that comes next."""
        self.cache.evict(full, swa)

    def commit(
        self, key: Key, slots: Slots, prev_len: int, swa_evicted: int, lock: Lease
    ) -> tuple[Lease, Slots]:
        """Insert behind the lock and move it to the new end."""
        if lock.length and self._leases.get(lock.last_slot) is lock:
            del self._leases[lock.last_slot]
        advanced = self.cache.advance(lock, key[prev_len:], slots[prev_len:], swa_evicted_len=swa_evicted)
        lease = self._kept(advanced.lease)
        return lease, lease.slots

    def _kept(self, lease: Lease) -> Lease:
        """Remember a lease by the slot at its end, by which `insert`, which is given none, finds it."""
        if lease.length:
            self._leases[lease.last_slot] = lease
        return lease


class Journaled(Unrecorded):
    """The cache with a journal in SQLite, mode "step": flushed where a step of the driver begins.

    The writer is a process of its own, to which a flush hands over.
    """

    def __init__(self, page_size: int, full_size: int, swa_size: int) -> None:
        super().__init__(page_size, full_size, swa_size)
        self._opened = ExitStack()
        # Whoever drives this knows no end: what is open is closed with it.
        weakref.finalize(self, self._opened.close)
        self._begin()

    def _begin(self) -> None:
        """A new cache with a journal of its own; the one before is closed and deleted."""
        self._opened.close()
        folder = self._opened.enter_context(tempfile.TemporaryDirectory(prefix="kvledger-peer-"))
        journal = self._opened.enter_context(Journal.open(Path(folder) / "peer.db", create=True))
        self.recorder: Recorder | ApartRecorder = self._recorded(journal)
        self._opened.callback(self.recorder.close)
        self._flushed = 0
        self.cache = self._made(self.recorder)

    def _recorded(self, journal: Journal) -> Recorder | ApartRecorder:
        return journal.record_apart(name="peer")

    def reset(self) -> None:
        """Begin anew, cache and journal."""
        self._leases = {}
        self._begin()

    def match_indices(self, key: Key) -> tuple[int, Found, Slots]:
        """A step begins: what the one before recorded is flushed first, and that is timed too."""
        recorder = self.recorder
        if recorder.last_seq != self._flushed:
            recorder.flush()
            self._flushed = recorder.last_seq
        return super().match_indices(key)


class OnDisk(Journaled):
    """The same with the writer on a thread, where a flush waits until the disk has it."""

    def _recorded(self, journal: Journal) -> Recorder | ApartRecorder:
        return journal.record(name="peer", durability="step")
