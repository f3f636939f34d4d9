"""The default memory: free sets on the host, KV tensors and a mapping mirror on the device.

Tensors have `pages + 1` pages of slots: page 0 is padding. The mirror is `mapping_dtype[pages + 1]`,
the SWA page beside each Full page, written at the end of a transaction. KV is written by the engine through
`write`, never while a transaction is open, so a rollback finds it untouched. With `poison` every slot that
belongs to nobody holds NaN, so a read of one shows in whatever is computed from it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvledger.core.config import CacheConfig, KVLayout
from kvledger.core.errors import ForeignSlots, InvalidArgument, KVUnreadable, MissingSwa, TransactionError
from kvledger.core.events import Pages, WidePages
from kvledger.core.free_pages import FreePages
from kvledger.core.inputs import Slots, as_integers, as_slots
from kvledger.core.kv_checksum import PoolChecksums
from kvledger.core.kv_tensors import KVTensors
from kvledger.core.page_arrays import narrowed, page_index, widened
from kvledger.core.page_table import CALLER, FREE, SWA_FREE, PageTable
from kvledger.core.pools import Fingerprints, MappedPart, PoolChanges
from kvledger.core.row_passes import put_at


class DevicePools:
    """Full and SWA pools on one device: a `PageAllocator` with tensors."""

    restores_at_once = True

    @property
    def takes_parts(self) -> bool:
        """Whether `commit` takes changes in parts: on a device there is to be one copy and one update."""
        return self._mirror_on_host is not None

    def __init__(self, config: CacheConfig) -> None:
        self.page_size = config.page_size
        self.k: dict[int, torch.Tensor] = {}
        self.v: dict[int, torch.Tensor] = {}
        self._kv: tuple[KVTensors, KVTensors] | None = None
        self._checksums: PoolChecksums | None = None
        try:
            self.device = torch.device(config.device)
            if self.device.type == "meta":
                raise RuntimeError("it holds shapes and no data")
            self._mirror = torch.zeros(
                config.full_pages + 1, dtype=getattr(torch, config.mapping_dtype), device=self.device
            )
            if config.layout is not None:
                self._kv = self._tensors(config, config.layout)
                self._checksums = PoolChecksums(*self._kv, at_once=config.fingerprints)
        except (RuntimeError, AssertionError, ImportError) as error:
            # torch raises AssertionError where it was built without the backend asked for, ImportError where
            # the backend is a package that is not there.
            raise InvalidArgument(f"device {config.device!r} cannot be used: {error}") from error
        self._mirror_on_host = self._mirror.numpy() if self.device.type == "cpu" else None
        self._free_full = FreePages(config.full_pages)
        self._free_swa = FreePages(config.swa_pages)
        self._swa_pages = config.swa_pages
        self._table: PageTable | None = None
        self._busy: Callable[[], bool] = lambda: False
        self._poisons = False
        self._closed = False

    def bind(self, table: PageTable, busy: Callable[[], bool]) -> None:
        """Give the pools the cache's page table and a callable that says if a transaction is open."""
        self._table = table
        self._busy = busy

    # PageAllocator

    def allocate(self, full: int, swa: int) -> tuple[Pages, Pages] | None:
        """The lowest free pages of both pools, or None."""
        if full > self._free_full.count or swa > self._free_swa.count:
            return None
        return self._free_full.take(full), self._free_swa.take(swa)

    def give_back(self, full: Any, swa: Any) -> None:
        """Undo of `allocate`."""
        self._free_full.give(narrowed(full))
        self._free_swa.give(narrowed(swa))

    def commit(self, changes: PoolChanges) -> None:
        """Frees, and an update of the mirror: on a device one batch, on the host part after part."""
        for full in changes.freed_full_parts:
            self._free_full.give(full)
        for swa in changes.freed_swa_parts:
            self._free_swa.give(swa)
        if self._poisons:
            self._fill_with_nan(changes.freed_full, changes.freed_swa)
        if self._mirror_on_host is None:
            if len(changes.mapped_full):
                rows = self.to_device(np.stack((changes.mapped_full, changes.mapped_swa)))
                self._mirror[rows[0]] = rows[1].to(self._mirror.dtype)
        elif any(len(mapped) for mapped, _ in changes.mapped_parts):
            self._update_on_host(self._mirror_on_host, changes.mapped_parts)

    def _update_on_host(self, mirror: npt.NDArray[Any], parts: list[MappedPart]) -> None:
        """The one update of the mirror on the processor."""
        # The table was asked for most of them in this transaction, so it knows.
        index_of = page_index if self._table is None else self._table.index_of
        for mapped, swa in parts:
            put_at(mirror, index_of(mapped), 0 if swa is None else swa)

    def available(self) -> tuple[int, int]:
        """Free pages (full, swa)."""
        return self._free_full.count, self._free_swa.count

    # What an engine uses.

    @property
    def mapping(self) -> torch.Tensor:
        """The mirror: `mapping_dtype[full pages + 1]` on the device, SWA page of each Full page or 0."""
        return self._mirror

    def to_device(self, values: Any) -> torch.Tensor:
        """Integers, slots above all, on the device in one copy. InvalidArgument for anything else.

        O(n).
        """
        if type(values) is not np.ndarray or values.dtype != np.int64:
            values = as_integers(values, "what goes to the device").astype(np.int64)
        array = np.ascontiguousarray(values)
        if not array.flags.writeable:
            array = array.copy()
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def is_swa(self, layer: int) -> bool:
        """Whether a layer of the layout keeps its KV in the SWA pool. InvalidArgument for no such layer."""
        self._check_layer(layer)
        return self._in_swa(layer)

    def fingerprint(self, pages: Any, swa: Any = None) -> Fingerprints:
        """Checksums of the KV bytes of Full pages: uint64[n, 2], of the Full layers and of the SWA layers.

        Computed on the device. Pages with equal bytes have equal checksums, wherever they are; an SWA side
        that a page does not have is 0. `swa` are the SWA pages beside them, None for those that they map to.
        ForeignSlots for what is no page of the pool, InvalidArgument where there is no layout, KVUnreadable
        where the device fails or the tensors were given back. O(bytes read).
        """
        if self._closed:
            raise KVUnreadable("the tensors of these pools were given back")
        if self._checksums is None:
            raise InvalidArgument("without a layout these pools hold no KV to sum")
        full = as_slots(pages)
        if len(full) and (int(full.min()) < 1 or int(full.max()) >= len(self._mirror)):
            raise ForeignSlots("a page outside the Full pool, or its padding page")
        if swa is None:
            swa = widened(self._bound().mapping[full])
        else:
            swa = as_slots(swa)
            if len(swa) != len(full):
                raise InvalidArgument(f"{len(swa)} SWA pages stand beside {len(full)} Full pages")
        if len(swa) and (int(swa.min()) < 0 or int(swa.max()) > self._swa_pages):
            raise ForeignSlots("a page outside the SWA pool")
        return self._checksums.of(full, swa)

    def poison(self) -> None:
        """Put NaN into the padding pages and all free ones, and from now on into what each commit frees.

        For tests and proofs: every commit then writes over the KV of the pages it frees. TransactionError
        inside an open transaction. O(free slots).
        """
        if self._busy():
            raise TransactionError("KV cannot be written while a transaction is open")
        table = self._bound()
        self._fill_with_nan(np.flatnonzero(table.owner == FREE), np.flatnonzero(table.swa_state == SWA_FREE))
        self._poisons = True

    def close(self) -> None:
        """Give the tensors back; pages and mapping stay, for an engine that is done while its cache is asked.

        Reading and writing KV is an InvalidArgument from here on, summing it KVUnreadable. May be repeated.
        """
        self._closed = True
        self.k, self.v, self._kv, self._checksums = {}, {}, None, None

    def write(self, layer: int, slots: Any, k: Any, v: Any) -> None:
        """Write `k` and `v`, each [n, kv_heads, head_dim], for the Full slots `slots` (int64[n]).

        An SWA layer stores them in the peers of the slots. Slots must be held by a request or the caller
        (ForeignSlots) and have a peer in an SWA layer (MissingSwa); TransactionError inside an open
        transaction. O(n).
        """
        rows = as_slots(slots)
        if self._busy():
            raise TransactionError("KV cannot be written while a transaction is open")
        self._check_layer(layer)
        table = self._bound()
        pages = self._pages(rows)
        foreign = table.owner[pages] < CALLER
        if foreign.any():
            raise ForeignSlots(f"slot {int(rows[foreign][0])} is held by no request or caller")
        expected = (len(rows), *self.k[layer].shape[1:])
        for name, tensor in (("k", k), ("v", v)):
            if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or tensor.is_meta:
                raise InvalidArgument(f"{name} must be a floating-point torch tensor that holds data")
            if tuple(tensor.shape) != expected:
                raise InvalidArgument(f"{name} must be of shape {expected}, not {tuple(tensor.shape)}")
        index = self._index(layer, rows, pages)
        for pool, tensor in ((self.k, k), (self.v, v)):
            pool[layer][index] = tensor.detach().to(device=self.device, dtype=pool[layer].dtype)

    def read(self, layer: int, slots: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The `k` and `v` of Full slots, each [n, kv_heads, head_dim]; an SWA layer maps them first.

        Raises MissingSwa where an SWA layer has nothing for a slot. O(n).
        """
        rows = as_slots(slots)
        self._check_layer(layer)
        index = self._index(layer, rows, self._pages(rows))
        return self.k[layer][index], self.v[layer][index]

    def check(self) -> list[tuple[str, str]]:
        """What is wrong between host and device: the mirror must be the host's mapping. O(pages)."""
        mirror = self._mirror.cpu().numpy()
        wrong = np.flatnonzero(mirror != self._bound().mapping)
        if not len(wrong) or self._busy():
            return []
        return [("mapping", f"the device maps Full page {int(wrong[0])} otherwise than the host")]

    def _tensors(self, config: CacheConfig, layout: KVLayout) -> tuple[KVTensors, KVTensors]:
        """The tensors of the Full pool and of the SWA pool."""
        full, swa = (
            KVTensors(layers, layout=layout, pages=pages, page_size=config.page_size, device=self.device)
            for layers, pages in (
                (layout.full_layers, config.full_pages),
                (layout.swa_layers, config.swa_pages),
            )
        )
        self.k = full.k | swa.k
        self.v = full.v | swa.v
        return full, swa

    def _fill_with_nan(self, full: WidePages, swa: WidePages) -> None:
        """Pages of each pool, in all the layers that keep KV there."""
        for tensors, pages in zip(self._kv or (), (full, swa), strict=False):
            if len(pages):
                tensors.fill_with_nan(self.to_device(pages))

    def _index(self, layer: int, slots: Slots, pages: WidePages) -> torch.Tensor:
        """Where a layer keeps Full slots; an SWA layer looks in the device's mirror, as a kernel would.

        While a transaction is open the mirror waits for its end, and the host's mapping is asked instead.
        """
        if not self._in_swa(layer):
            return self.to_device(slots)
        swa = widened(self._bound().mapping[pages])
        if not swa.all():
            raise MissingSwa(f"slot {int(slots[swa == 0][0])} has no SWA peer")
        page = self.page_size
        if self._busy():
            return self.to_device(swa * page + (slots - pages * page))
        index = self.to_device(slots)
        full_pages = index // page
        return self._mirror[full_pages].to(torch.int64) * page + (index - full_pages * page)

    def _pages(self, slots: Slots) -> WidePages:
        pages = slots // self.page_size
        if len(pages) and (int(pages.min()) < 1 or int(pages.max()) >= len(self._mirror)):
            raise ForeignSlots("a slot outside the Full pool, or in its padding page")
        return pages

    def _in_swa(self, layer: int) -> bool:
        return self._kv is not None and layer in self._kv[1].k

    def _check_layer(self, layer: Any) -> None:
        if isinstance(layer, bool) or not isinstance(layer, int) or layer not in self.k:
            raise InvalidArgument(f"layer {layer} is not in the layout: it has {sorted(self.k)}")

    def _bound(self) -> PageTable:
        if self._table is None:
            raise TransactionError("these pools belong to no cache yet")
        return self._table
