"""Reads through the pool what a running request would read, and counts the slots that hold anything else.

Ranges are collected over the whole batch and compared at once, one vectorised pass per layer. A slot read
in three layers counts three times.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvledger.core import HybridCache
from kvledger.core.config import KVLayout
from kvledger.core.errors import MissingSwa
from kvledger.tools.kv.synthetic import Codes, KVCodec

Slots = npt.NDArray[np.int64]

MAX_FINDINGS = 20
"""Wrong reads told in words; the count has them all, and one fault usually brings thousands."""


class ReadableRow(Protocol):
    """What a check needs of a running request."""

    @property
    def name(self) -> str:
        """The request's id."""

    @property
    def row(self) -> Slots:
        """Full slot of each token, as the engine believes it."""

    @property
    def codes(self) -> dict[int, Codes]:
        """Per layer, the code of each token position."""


@dataclass(frozen=True, slots=True)
class WrongKV:
    """One slot that did not hold what its reader's tokens call for."""

    step: int
    request_id: str
    layer: int | None
    position: int
    slot: int
    reason: str

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"layer {self.layer}, "
        return (
            f"step {self.step}: request {self.request_id} read wrong KV for position {self.position}, "
            f"{layer}Full slot {self.slot} ({self.reason})"
        )


@dataclass(frozen=True, slots=True)
class _Range:
    reader: ReadableRow
    start: int
    end: int
    reason: str


class KVCheck:
    """Collects ranges to read, then reads and compares them in one pass per layer."""

    def __init__(self, cache: HybridCache, layout: KVLayout, codec: KVCodec) -> None:
        self._cache = cache
        self._layers = {"full": layout.full_layers, "swa": layout.swa_layers}
        self._codec = codec
        self._ranges: dict[str, list[_Range]] = {"full": [], "swa": []}
        self.reads = 0
        self.wrong = 0
        self.findings: list[WrongKV] = []

    def full(self, reader: ReadableRow, start: int, end: int, reason: str) -> None:
        """Read positions [start, end) of the row in every Full layer."""
        if start < end:
            self._ranges["full"].append(_Range(reader, start, end, reason))

    def window(self, reader: ReadableRow, start: int, end: int, reason: str) -> None:
        """Read positions [start, end) of the row in every SWA layer."""
        if start < end:
            self._ranges["swa"].append(_Range(reader, start, end, reason))

    def own_row(self, reader: ReadableRow, slots: Slots, step: int) -> None:
        """Hold the engine's row against the cache's: an unreported change is a wrong read to come."""
        for position in np.flatnonzero(reader.row[: len(slots)] != slots).tolist():
            self.wrong += 1
            if len(self.findings) < MAX_FINDINGS:
                slot = int(reader.row[position])
                self.findings.append(WrongKV(step, reader.name, None, position, slot, "row out of date"))

    def compare(self, step: int) -> None:
        """Read all that was collected and forget it. Cost: O(slots), no loop over tokens."""
        for side, ranges in self._ranges.items():
            if ranges:
                slots = np.concatenate([part.reader.row[part.start : part.end] for part in ranges])
                for layer in self._layers[side]:
                    self._compare_layer(step, layer, slots, ranges)
                ranges.clear()

    def _compare_layer(self, step: int, layer: int, slots: Slots, ranges: list[_Range]) -> None:
        codes = np.concatenate([part.reader.codes[layer][part.start : part.end] for part in ranges])
        try:
            k, v = self._cache.pool.read(layer, slots)
            wrong = self._codec.wrong(k, v, codes)
        except MissingSwa:
            wrong = self._wrong_with_gaps(layer, slots, codes)
        self.reads += len(slots)
        self.wrong += len(wrong)
        room = MAX_FINDINGS - len(self.findings)
        if not len(wrong) or room <= 0:
            return
        # Positions of the first wrong reads, found from where each range ends in the batch.
        ends = np.cumsum([part.end - part.start for part in ranges])
        for index in wrong[:room].tolist():
            which = int(np.searchsorted(ends, index, side="right"))
            part = ranges[which]
            position = part.end - (int(ends[which]) - index)
            self.findings.append(
                WrongKV(step, part.reader.name, layer, position, int(slots[index]), part.reason)
            )

    def _wrong_with_gaps(self, layer: int, slots: Slots, codes: Codes) -> npt.NDArray[np.int64]:
        """Wrong reads where some slots have no SWA peer: those are wrong, the others are compared."""
        there = np.flatnonzero(self._cache.swa_slots(slots))
        wrong = np.ones(len(slots), dtype=bool)
        wrong[there] = False
        k, v = self._cache.pool.read(layer, slots[there])
        wrong[there[self._codec.wrong(k, v, codes[there])]] = True
        return np.flatnonzero(wrong)
