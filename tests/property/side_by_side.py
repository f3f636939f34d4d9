"""A cache and its naive model side by side: what both are built from, and how they are compared.

Steps take `pick`, which chooses a number below a limit, so that a state machine and a seeded walk can
drive the same steps. What the model says must fail has to fail with that error and leave no trace.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pytest
import torch

from kvledger.core import HybridCache, KVLayout, Lease, Match, Request
from kvledger.core.errors import (
    CacheError,
    OutOfSlots,
)
from kvledger.tools.torture.sim.model import Tokens
from kvledger.tools.torture.sim.model_requests import NaiveRequests
from tests.reference.retention import Learned
from tests.support.witness import Witness, open_cache

Pick = Callable[[int], int]
"""A number in [0, limit)."""

PAGE_SIZES = (1, 2, 4, 8, 16, 64, 256)
PAGE_SIZES_WITH_HISTORY = (1, 4, 64, 256, 256, 512)
"""Of "lru-2", which remembers prefixes of whole 512 tokens: prompts of a few pages should have some."""
NAMESPACES = ("", "x")
MOST_DEPTH = 3
MOST_LEASES = 5
MOST_REQUESTS = 4
PROMPTS = 6
"""So many earlier prompts a new one may begin like."""
ONE_NUMBER = KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=1)
"""KV of one number a token and side: enough to be fingerprinted."""

PROBES = 5
"""The last few prompts that anything was done with are matched after each step."""


@dataclass
class Memory:
    """What a rollback has to bring back, as it was when it was remembered."""

    model: NaiveRequests
    leases: dict[int, Lease]
    requests: dict[str, Request]
    digest: str
    learned: Learned | None
    savepoint: Any = None


@dataclass
class Open:
    """A transaction that is open, with the savepoints made in it."""

    context: Any
    transaction: Any
    start: Memory
    savepoints: list[Memory]


def fill_with_noise(cache: HybridCache) -> None:
    """Put numbers into all pages, no two of them alike: steps write no KV, so it stays."""
    for tensors in (cache.pool.k, cache.pool.v):
        for layer, tensor in tensors.items():
            tensor.copy_(torch.arange(tensor.numel()).view_as(tensor) + 100_000 * layer)


class SideBySide:
    """One cache, one model, and the handles that a caller would keep."""

    def __init__(
        self,
        *,
        page: int,
        window: int,
        full_pages: int,
        swa_pages: int,
        locked_recovery: str = "remap",
        fingerprints: bool = False,
        eviction: str = "lru",
    ) -> None:
        self.page = page
        self.eviction = eviction
        self.moves: Counter[str] = Counter()
        self.window = window
        self.cache, self.sink = open_cache(
            page=page,
            window=window,
            full=full_pages * page,
            swa=swa_pages * page,
            locked_recovery=locked_recovery,
            layout=ONE_NUMBER if fingerprints else None,
            fingerprints=fingerprints,
            eviction=eviction,
        )
        if fingerprints:
            fill_with_noise(self.cache)
        self.witness = Witness(self.cache, self.sink)
        self.model = NaiveRequests(
            page=page,
            window=window,
            full_pages=full_pages,
            swa_pages=swa_pages,
            remap=locked_recovery == "remap",
        )
        self.leases: dict[int, Lease] = {}
        self.requests: dict[str, Request] = {}
        self.stack: list[Open] = []
        self.probes: list[tuple[str, Tokens]] = []
        self.prompts: list[tuple[str, Tokens]] = []
        self.names = 0

    @classmethod
    def drawn(cls, pick: Pick, *, fingerprints: bool = False, eviction: str = "lru") -> Self:
        """A cache of random small size: windows below, at and above the page, and no multiple of it."""
        sizes = PAGE_SIZES if eviction == "lru" else PAGE_SIZES_WITH_HISTORY
        page = sizes[pick(len(sizes))]
        windows = [1, max(1, page - 1), page, page + 1, 2 * page, 3 * page - 1 if page > 1 else 4]
        return cls(
            page=page,
            window=windows[pick(len(windows))],
            full_pages=6 + pick(19),
            swa_pages=4 + pick(15),
            locked_recovery=("remap", "skip")[pick(3) // 2],
            fingerprints=fingerprints,
            eviction=eviction,
        )

    # What the steps choose from.

    def prompt(self, pick: Pick) -> tuple[str, Tokens]:
        """A new prompt, or some of an earlier one and then something new.

        Pages are of three kinds, the third unlike the second in its last token only.
        """
        if self.prompts and pick(3):
            namespace, old = self.prompts[pick(len(self.prompts))]
            row = list(old[: (1 + pick(max(1, len(old) // self.page))) * self.page])
            more = pick(3)
        else:
            namespace, row, more = NAMESPACES[pick(5) // 4], [], 1 + pick(6)
        for _ in range(more):
            kind = pick(3)
            row.extend([min(kind, 1)] * (self.page - 1) + [kind])
        row.extend([9] * (pick(3) * (self.page - 1) // 2))
        self.probe(namespace, row)
        self.prompts = [*self.prompts, (namespace, tuple(row))][-PROMPTS:]
        return namespace, tuple(row)

    def probe(self, namespace: str, tokens: Sequence[int]) -> None:
        self.probes = [*self.probes, (namespace, tuple(tokens))][-PROBES:]

    def some_request(self, pick: Pick, *, waiting: bool = False) -> str | None:
        names = [name for name, request in self.model.requests.items() if request.waiting == waiting]
        return names[pick(len(names))] if names else None

    def slots(self, pages: Sequence[int]) -> np.ndarray:
        return (np.asarray(pages, dtype=np.int64)[:, None] * self.page + np.arange(self.page)).reshape(-1)

    def pages(self, slots: np.ndarray) -> list[int]:
        return [int(slot) // self.page for slot in slots[:: self.page]]

    def raw_pages(self) -> list[int]:
        return sorted(page for page, owner in self.model.held.items() if owner is None)

    def refused(self, error: type[CacheError], call: Callable[[], object]) -> CacheError:
        """The call raises and nothing at all has changed."""
        before = (self.cache.digest(), len(self.sink.transactions))
        with pytest.raises(error) as caught:
            call()
        assert self.cache.digest() == before[0]
        if error is not OutOfSlots and not self.stack:
            assert len(self.sink.transactions) == before[1], "a refused call was journaled"
        return caught.value

    # Comparing.

    def compare(self) -> None:
        """Everything that can be asked, asked of both."""
        if not self.stack:
            self.model.settle()
        sizes = self.cache.sizes()
        for name, pool in (("full", sizes.full), ("swa", sizes.swa)):
            found = {
                part: getattr(pool, part) for part in ("total", "free", "evictable", "protected", "held")
            }
            assert found == self.model.sizes(name), name
        self.compare_tree()
        for name, request in self.model.requests.items():
            handle = self.requests[name]
            assert self.pages(handle.slots) == request.row, name
            assert len(handle.slots) == request.reserved
            assert handle.protected_len == request.protected
            if not request.waiting:
                assert (handle.reserved, handle.computed_len) == (request.reserved, request.computed)
                assert handle.frontier == request.frontier
        for namespace, tokens in self.probes:
            found_match = self.cache.match_prefix(tokens, namespace)
            wanted = self.model.match(namespace, tokens)
            assert found_match.length == wanted.length
            assert found_match.full_length == wanted.full_length
            assert found_match.branch_length == wanted.branch_length
            self.compare_publishing(found_match, len(tokens))
            assert self.pages(found_match.slots) == list(wanted.pages)
        if self.stack:
            self.witness.look_inside()
            return
        self.witness.look()
        mirror = self.cache.pool.mapping.tolist()
        assert mirror == [self.model.peer.get(page, 0) for page in range(len(mirror))]

    def compare_publishing(self, found: Match, tokens: int) -> None:
        """Where to publish first: the branch point, or under "lru-2" perhaps another page end of the row."""
        if self.eviction == "lru":
            assert found.publish_length == found.branch_length
        else:
            assert found.length <= found.publish_length <= tokens
            assert found.publish_length % self.page == 0

    def compare_tree(self) -> None:
        """Each page of each node: its place, its peer, its locks."""
        seen = 0
        for namespace in NAMESPACES:
            views = {view.id: view for view in self.cache.nodes(namespace)}
            for view in views.values():
                row: list[int] = []
                above = view
                while True:
                    row[:0] = [int(token) for token in above.tokens]
                    if above.parent is None:
                        break
                    above = views[above.parent]
                assert view.start == len(row) - len(view.full_slots)
                for i, full in enumerate(self.pages(view.full_slots)):
                    key = (namespace, tuple(row[: view.start + (i + 1) * self.page]))
                    assert self.model.tree.get(key) == full, key
                    peer = None if view.swa_slots is None else int(view.swa_slots[i * self.page]) // self.page
                    assert self.model.peer.get(full) == peer
                    assert self.model.full_lock(key) == view.full_lock
                    assert self.model.swa_lock(key) == view.swa_lock
                    seen += 1
        assert seen == len(self.model.tree)
