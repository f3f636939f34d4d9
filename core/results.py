"""What the cache answers: small frozen values, safe to keep after the cache has moved on.

Lengths and positions are tokens; ranges are half-open. Slot arrays are int64 on the host and are built
from page numbers when they are asked for. What is returned for every request is frozen for type checkers; the
rest is frozen at run time too.
"""

from dataclasses import dataclass, field
from typing import Any, dataclass_transform

import numpy as np
import numpy.typing as npt

from kvledger.core.events import Origin, Pages, TokenRange
from kvledger.core.ids import LeaseId, NodeId, RequestId
from kvledger.core.inputs import PageArithmetic, Slots
from kvledger.core.records import record
from kvledger.core.state import LeaseState


@dataclass_transform(frozen_default=True)
def equal_value(cls: type) -> type:
    """Make a record that equals another of the same fields, and has no hash; else as `record`."""
    made: Any = dataclass(slots=True)(cls)
    return made  # type: ignore[no-any-return]


@record
class Match:
    """The longest usable prefix of some tokens.

    `length` tokens can be reused; `full_length` is how far Full alone would reach; `branch_length` equals
    it where it exceeds `length`, else `length`; `publish_length` is where a row that holds these tokens is
    worth publishing first, a page end. `node_id` is the node in which the match ends.
    """

    length: int
    full_length: int
    branch_length: int
    publish_length: int
    node_id: NodeId | None
    _pages: Pages = field(repr=False)
    _arithmetic: PageArithmetic = field(repr=False)

    @property
    def slots(self) -> Slots:
        """Full slots of the match: int64[length]. O(length)."""
        return self._arithmetic.to_slots(self._pages)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a match is not longer.

    `reason` is "whole" (all whole pages match), "no_full" (the tree has nothing further) or "dead_window"
    (Full goes on, but too few live SWA tokens stand before any later page end). `first_tombstone` is
    (node, start, end) of the first tombstone that ends past `length`, `live_tokens` the run of live
    SWA before `full_length`, `missing_tokens` how many more it would need.
    """

    tokens: int
    length: int
    full_length: int
    branch_length: int
    reason: str
    first_tombstone: tuple[NodeId, int, int] | None
    live_tokens: int
    missing_tokens: int


@record
class Lease:
    """The receipt of a lock: Full from the node to the root, SWA on [swa_from, length)."""

    id: LeaseId
    length: int
    node_id: NodeId | None
    swa_from: int
    generation: int
    request_id: RequestId | None
    _pages: Pages = field(repr=False)
    _arithmetic: PageArithmetic = field(repr=False)
    _state: LeaseState = field(repr=False)

    @property
    def slots(self) -> Slots:
        """Full slots under the lock: int64[length]. O(length)."""
        return self._arithmetic.to_slots(self._pages)

    @property
    def last_slot(self) -> int:
        """The slot of its last token, which belongs to one place in the tree alone. For `length` > 0."""
        return (int(self._pages[-1]) + 1) * self._arithmetic.page_size - 1


@equal_value
class Inserted:
    """`prefix_len`: how far Full reached before. Adopted ranges are maximal; the rest was freed."""

    prefix_len: int
    node_id: NodeId | None
    adopted_full: list[TokenRange]
    adopted_swa: list[TokenRange]


@record
class Advanced:
    """`lease` locks the prefix as it is now; the slots of the last `refused` tokens stay the caller's."""

    lease: Lease
    refused: int


@dataclass(frozen=True, slots=True)
class Evicted:
    """Tokens freed per pool."""

    full_tokens: int
    swa_tokens: int


@equal_value
class Committed:
    """`length` tokens are published and locked; slots changed in `row_changed`; `refused` tokens were not."""

    length: int
    row_changed: list[TokenRange]
    refused: int


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Tokens of one pool by where they are: they add up to `total`."""

    total: int
    free: int
    evictable: int
    protected: int
    held: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Both pools."""

    full: PoolSizes
    swa: PoolSizes


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the cache was opened (not rolled back); `mixed_nodes` is how many there are now."""

    hit_tokens: int
    evicted_full_tokens: int
    evicted_swa_tokens: int
    tombstones: int
    recoveries: int
    recoveries_locked: int
    rollbacks: int
    anomalies: int
    skipped: int
    resets: int
    nodes: int
    mixed_nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """One node as it is now. Tokens are int32, slots int64, read as they were when asked for."""

    id: NodeId
    parent: NodeId | None
    namespace: str
    start: int
    tokens: npt.NDArray[np.int32]
    full_slots: Slots
    swa_slots: Slots | None
    full_lock: int
    swa_lock: int
    last_access: int
    children: tuple[NodeId, ...]
    full_origin: Origin | None
    swa_origin: Origin | None

    @property
    def end(self) -> int:
        """Token position past the node."""
        return self.start + len(self.tokens)
