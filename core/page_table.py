"""Who has each page, and which SWA page stands beside which Full page: the host's truth.

Owners of a Full page: free, deferred (freed in the open transaction), the tree, the raw caller, or
a request. An SWA page is free, deferred or bound; a bound one belongs wherever the Full page that maps to
it belongs. Frees take effect when the outermost transaction commits. One exception: pages that
eviction took from unlocked nodes count as free at once and are handed out first (the reuse list).

Written by `changes/`, and by the ledger where pages are chosen and where a transaction ends; always through
a method that has its reverse beside it. Reverses are called in exactly the opposite order, so lists can
be cut where they were extended.
"""

from typing import Final

import numpy as np

from kvledger.core.errors import DoubleFree, ForeignSlots
from kvledger.core.events import Pages
from kvledger.core.free_pages import EMPTY
from kvledger.core.page_arrays import (
    RUN_PAGES,
    PageIndex,
    concatenate,
    consume,
    join,
    page_index,
    present,
    widened,
)
from kvledger.core.pools import MappedPart, PageAllocator, PoolChanges, vetted
from kvledger.core.row_passes import all_equal_at, entries_at, is_ascending, put_at

FREE: Final = 0
CALLER: Final = 1
FIRST_REQUEST: Final = 2
"""Owners from here on are requests' ordinals; everything from CALLER on is *held*."""
TREE: Final = -1
DEFERRED: Final = -2

SWA_FREE: Final = 0
SWA_BOUND: Final = 1
SWA_DEFERRED: Final = 2

Taken = tuple[list[Pages], list[Pages], Pages, Pages]
"""Undo of a take: the reuse lists as they were, and the pages that were on none of them."""


class PageTable:
    """State of every page of both pools, with counts kept as it changes."""

    __slots__ = (
        "_indexed",
        "allocator",
        "deferred_full",
        "deferred_swa",
        "dirty",
        "free_full",
        "free_swa",
        "held_full",
        "held_swa",
        "mapping",
        "owner",
        "reuse_full",
        "reuse_swa",
        "rewrote",
        "spare_full",
        "spare_swa",
        "swa_state",
        "takes_parts",
        "tree_full",
        "tree_swa",
        "vet",
    )

    def __init__(self, full_pages: int, swa_pages: int, allocator: PageAllocator, *, vet: bool) -> None:
        self.allocator = allocator
        self.takes_parts = not vet and getattr(allocator, "takes_parts", False) is True
        self.vet = vet  # the allocator is an engine's own: look at what it hands out
        self._indexed: tuple[Pages, PageIndex] = (EMPTY, EMPTY)  # what was looked up last, and its index
        self.mapping = np.zeros(full_pages + 1, dtype=np.int32)
        self.owner = np.zeros(full_pages + 1, dtype=np.int32)
        self.swa_state = np.zeros(swa_pages + 1, dtype=np.int8)
        self.reuse_full: list[Pages] = []
        self.reuse_swa: list[Pages] = []
        self.deferred_full: list[Pages] = []
        self.deferred_swa: list[Pages] = []
        self.spare_full = EMPTY  # undone takes that the allocator has not been told of yet
        self.spare_swa = EMPTY
        self.dirty: list[MappedPart] = []  # pages whose mapping was written, and with what
        self.rewrote = False  # some of that has been undone since
        self.free_full = full_pages
        self.free_swa = swa_pages
        self.held_full = 0
        self.held_swa = 0
        self.tree_full = 0
        self.tree_swa = 0

    # Where pages stand.

    def index_of(self, pages: Pages) -> PageIndex:
        """The index of read-only pages; asked of one array again and again. O(n), then O(1)."""
        indexed, index = self._indexed
        if pages is not indexed:
            index = page_index(pages)
            # Both at once: an interrupt must not leave the index of one array beside another.
            self._indexed = (pages, index)
        return index

    def note_run(self, pages: Pages) -> None:
        """The pages are part of a run: one need not look where they stand."""
        if len(pages) >= RUN_PAGES:
            first: int = pages.item(0)
            self._indexed = (pages, slice(first, first + len(pages)))

    # What may be freed or taken over, checked before the first event.

    def check_owned(self, pages: Pages, owner: int, what: str) -> PageIndex:
        """Every page is held by `owner` and named once. DoubleFree, ForeignSlots; O(n).

        Returns the index of the pages.
        """
        at = self.index_of(pages)
        if all_equal_at(self.owner, at, owner):
            if at is pages and not is_ascending(pages):
                ordered = np.sort(pages)
                twice = ordered[1:][ordered[1:] == ordered[:-1]]
                if len(twice):
                    raise DoubleFree(f"{what}: page {int(twice[0])} is named twice")
            return at
        page = int(pages[self.owner[pages] != owner][0])
        found = int(self.owner[page])
        if found in (FREE, DEFERRED):
            raise DoubleFree(f"{what}: page {page} is free already")
        who = "the tree" if found == TREE else "the raw caller" if found == CALLER else "another request"
        raise ForeignSlots(f"{what}: page {page} belongs to {who}")

    def peers(self, full: Pages) -> Pages:
        """SWA peers of Full pages, 0 for none: a read-only copy."""
        swa = entries_at(self.mapping, full)
        swa.setflags(write=False)
        return swa

    def peers_at(self, at: PageIndex) -> Pages:
        """The same for pages whose index is known: a copy of its own."""
        return entries_at(self.mapping, at)

    def wrote_mapping(self, full: Pages, swa: Pages | None) -> None:
        """The mapping of Full pages was written, None for 0: the memory hears of it at commit."""
        self.dirty.append((full, swa))

    # Taking pages: choose, then the event marks them.

    def take(self, full: int, swa: int) -> tuple[Pages, Pages, Taken] | None:
        """Choose pages, reusable ones first; None where the allocator has no room."""
        before_full, before_swa = self.reuse_full, self.reuse_swa
        got_full, left_full, missing_full = consume(before_full, full)
        got_swa, left_swa, missing_swa = consume(before_swa, swa)
        new_full, new_swa = EMPTY, EMPTY
        if missing_full or missing_swa:
            spare_full, spare_swa = self.spare_full[:missing_full], self.spare_swa[:missing_swa]
            new_full, new_swa = spare_full, spare_swa
            missing_full -= len(spare_full)
            missing_swa -= len(spare_swa)
            if missing_full or missing_swa:
                fresh = self.allocator.allocate(missing_full, missing_swa)
                if fresh is None:
                    return None
                if self.vet:
                    fresh = (
                        vetted(fresh[0], missing_full, self.owner, "Full"),
                        vetted(fresh[1], missing_swa, self.swa_state, "SWA"),
                    )
                new_full = concatenate([spare_full, fresh[0]])
                new_swa = concatenate([spare_swa, fresh[1]])
            self.spare_full = self.spare_full[len(spare_full) :]
            self.spare_swa = self.spare_swa[len(spare_swa) :]
        self.reuse_full, self.reuse_swa = left_full, left_swa
        pages_full = join(got_full, new_full)
        pages_swa = join(got_swa, new_swa)
        return pages_full, pages_swa, (before_full, before_swa, new_full, new_swa)

    def untake(self, taken: Taken) -> None:
        """Reverse of `take`."""
        self.reuse_full, self.reuse_swa, new_full, new_swa = taken
        if len(new_full) or len(new_swa):
            if self.allocator.restores_at_once:
                self._give_back(new_full, new_swa)
            else:
                self.spare_full = concatenate([self.spare_full, new_full])
                self.spare_swa = concatenate([self.spare_swa, new_swa])

    def hold(self, full: Pages, swa: Pages, owner: int) -> None:
        """Free pages become held by `owner`, each mapped to its peer (0 for none)."""
        at = self.index_of(full)
        put_at(self.owner, at, owner)
        put_at(self.mapping, at, swa)
        self.wrote_mapping(full, swa)
        bound = present(swa)
        put_at(self.swa_state, bound, SWA_BOUND)
        self.free_full -= len(full)
        self.held_full += len(full)
        self.free_swa -= len(bound)
        self.held_swa += len(bound)

    def unhold(self, full: Pages, swa: Pages) -> None:
        """Reverse of `hold`."""
        put_at(self.owner, full, FREE)
        put_at(self.mapping, full, 0)
        self.rewrote = True
        bound = present(swa)
        put_at(self.swa_state, bound, SWA_FREE)
        self.free_full += len(full)
        self.held_full -= len(full)
        self.free_swa += len(bound)
        self.held_swa -= len(bound)

    # Between holder and tree.

    def adopt(self, full: Pages, swa_count: int) -> int:
        """Held Full pages become the tree's, their peers with them; returns the owner they had."""
        before: int = self.owner.item(full.item(0))
        put_at(self.owner, self.index_of(full), TREE)
        self.held_full -= len(full)
        self.tree_full += len(full)
        self.held_swa -= swa_count
        self.tree_swa += swa_count
        return before

    def unadopt(self, full: Pages, swa_count: int, owner: int) -> None:
        """Reverse of `adopt`."""
        put_at(self.owner, full, owner)
        self.held_full += len(full)
        self.tree_full -= len(full)
        self.held_swa += swa_count
        self.tree_swa -= swa_count

    # Freeing. `reusable` frees count as free at once, others wait for the outermost commit.

    def free_full_pages(self, full: Pages, *, from_tree: bool, reusable: bool) -> int:
        """Full pages lose their owner; their mapping must be dealt with apart. Returns the owner."""
        before: int = TREE if from_tree else self.owner.item(full.item(0))
        at = self.index_of(full)
        n = len(full)
        if from_tree:
            self.tree_full -= n
        else:
            self.held_full -= n
        if reusable:
            put_at(self.owner, at, FREE)
            self.free_full += n
            self.reuse_full.append(full)
        else:
            put_at(self.owner, at, DEFERRED)
            self.held_full += n
            self.deferred_full.append(full)
        return before

    def unfree_full_pages(self, full: Pages, *, from_tree: bool, reusable: bool, owner: int) -> None:
        """Reverse of `free_full_pages`."""
        n = len(full)
        put_at(self.owner, full, owner)
        if reusable:
            self.free_full -= n
            self.reuse_full.pop()
        else:
            self.held_full -= n
            self.deferred_full.pop()
        if from_tree:
            self.tree_full += n
        else:
            self.held_full += n

    def free_swa_pages(self, full: Pages, swa: Pages, *, from_tree: bool, reusable: bool) -> None:
        """SWA pages, the peers of `full`, are freed and the mapping of `full` cleared."""
        n = len(swa)
        at = self.index_of(full)
        put_at(self.mapping, at, 0)
        self.wrote_mapping(full, None)
        if from_tree:
            self.tree_swa -= n
        else:
            self.held_swa -= n
        if reusable:
            put_at(self.swa_state, swa, SWA_FREE)
            self.free_swa += n
            self.reuse_swa.append(swa)
        else:
            put_at(self.swa_state, swa, SWA_DEFERRED)
            self.held_swa += n
            self.deferred_swa.append(swa)

    def unfree_swa_pages(self, full: Pages, swa: Pages, *, from_tree: bool, reusable: bool) -> None:
        """Reverse of `free_swa_pages`."""
        n = len(swa)
        put_at(self.mapping, full, swa)
        self.rewrote = True
        put_at(self.swa_state, swa, SWA_BOUND)
        if reusable:
            self.free_swa -= n
            self.reuse_swa.pop()
        else:
            self.held_swa -= n
            self.deferred_swa.pop()
        if from_tree:
            self.tree_swa += n
        else:
            self.held_swa += n

    def remap(self, incoming: Pages, kept: Pages, swa: Pages) -> None:
        """The peers of held `incoming` stand beside the tree's `kept` from here on."""
        put_at(self.mapping, incoming, 0)
        put_at(self.mapping, kept, swa)
        self.wrote_mapping(incoming, None)
        self.wrote_mapping(kept, swa)
        self.held_swa -= len(swa)
        self.tree_swa += len(swa)

    def unremap(self, incoming: Pages, kept: Pages, swa: Pages) -> None:
        """Reverse of `remap`."""
        put_at(self.mapping, kept, 0)
        put_at(self.mapping, incoming, swa)
        self.rewrote = True
        self.held_swa += len(swa)
        self.tree_swa -= len(swa)

    # The end of the outermost transaction.

    def settle(self) -> PoolChanges | None:
        """Deferred pages become free; returns what the allocator has to hear, None for nothing."""
        moved = self.deferred_full or self.deferred_swa or self.reuse_full or self.reuse_swa or self.dirty
        if not moved and not len(self.spare_full) and not len(self.spare_swa):
            return None
        for full in self.deferred_full:
            put_at(self.owner, full, FREE)
            self.held_full -= len(full)
            self.free_full += len(full)
        for swa in self.deferred_swa:
            put_at(self.swa_state, swa, SWA_FREE)
            self.held_swa -= len(swa)
            self.free_swa += len(swa)
        freed_full = [*self.deferred_full, *self.reuse_full, self.spare_full]
        freed_swa = [*self.deferred_swa, *self.reuse_swa, self.spare_swa]
        mapped = self.dirty
        if mapped and (self.rewrote or not self.takes_parts):
            # Of each page what holds now, whatever was written and undone before.
            pages = concatenate([full for full, _ in mapped])
            mapped = [(pages, self.peers_at(self.index_of(pages)))]
        changes = PoolChanges.of_parts(freed_full, freed_swa, mapped)
        self.deferred_full.clear()
        self.deferred_swa.clear()
        self.dirty = []
        self.rewrote = False
        self.reuse_full = []
        self.reuse_swa = []
        self.spare_full = EMPTY
        self.spare_swa = EMPTY
        return changes

    def abandon(self) -> None:
        """The outermost transaction was undone: what was taken meanwhile goes back in one call."""
        self.dirty = []
        self.rewrote = False
        if len(self.spare_full) or len(self.spare_swa):
            full, swa = self.spare_full, self.spare_swa
            self.spare_full = EMPTY
            self.spare_swa = EMPTY
            self._give_back(full, swa)

    def _give_back(self, full: Pages, swa: Pages) -> None:
        """Tell an engine's allocator as it was promised; our own takes the pages as they are."""
        if self.vet:
            self.allocator.give_back(widened(full), widened(swa))
        else:
            self.allocator.give_back(full, swa)
