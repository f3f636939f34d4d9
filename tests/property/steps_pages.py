"""Steps on raw pages and the tree: the operations of the cache itself. Those on leases are next door."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kvledger.core.errors import (
    DoubleFree,
    MissingSwa,
    OutOfSlots,
)
from kvledger.tools.torture.sim.model import Lacking
from tests.property.side_by_side import Pick, SideBySide
from tests.reference.eviction import evictions, twigs
from tests.reference.retention import Span, Taken, taken_by_lru2


class PageSteps(SideBySide):
    """Each step does one thing to cache and model; one that finds nothing to work on does nothing."""

    def alloc(self, pick: Pick) -> None:
        count, full_only = 1 + pick(5), pick(4) == 0
        call = self.cache.alloc_full_only if full_only else self.cache.alloc
        for pool in ("full",) if full_only else ("full", "swa"):
            sizes = self.model.sizes(pool)
            if sizes["free"] < count * self.page:
                error = self.refused(OutOfSlots, lambda: call(count * self.page))
                assert isinstance(error, OutOfSlots)
                assert (error.pool, error.needed) == (pool, count * self.page)
                assert (error.free, error.evictable) == (sizes["free"], sizes["evictable"])
                return
        slots = call(count * self.page)
        self.model.take(self.pages(slots), self.peers(slots), None)

    def peers(self, slots: np.ndarray) -> list[int]:
        return self.pages(self.cache.swa_slots(slots))

    def free(self, pick: Pick) -> None:
        pages = self.raw_pages()
        if not pages:
            return
        chosen = pages[pick(len(pages)) :][: 1 + pick(3)]
        self.cache.free(self.slots(chosen))
        for page in chosen:
            self.model.give(page)
        self.refused(DoubleFree, lambda: self.cache.free(self.slots(chosen)))

    def free_swa(self, pick: Pick) -> None:
        pages = self.raw_pages()
        if not pages:
            return
        chosen = pages[pick(len(pages)) :][: 1 + pick(3)]
        if any(page not in self.model.peer for page in chosen):
            self.refused(DoubleFree, lambda: self.cache.free_swa(self.slots(chosen)))
            return
        self.cache.free_swa(self.slots(chosen))
        for page in chosen:
            self.model.give_swa(page)

    def insert(self, pick: Pick) -> None:
        namespace, row = self.prompt(pick)
        raw = self.raw_pages()
        reach = self.model.match(namespace, row)
        known = [
            self.model.tree[key] for key in self.model.keys(namespace, row)[: reach.full_length // self.page]
        ]
        own = pick(len(known) + 1) if pick(3) == 0 else 0
        missing = len(row) // self.page - own - len(raw)
        if missing > 0 and self.model.fits_free(missing):
            slots = self.cache.alloc(missing * self.page)
            self.model.take(self.pages(slots), self.peers(slots), None)
            raw = self.raw_pages()
        count = min(len(row) // self.page, own + len(raw))
        if count == own:
            return
        pages = [*known[:own], *raw[: count - own]]
        tokens = row[: count * self.page]
        protected = own * self.page
        dead = self.dead(pick, pages)

        def call() -> Any:
            return self.cache.insert(
                tokens, self.slots(pages), namespace, protected_len=protected, swa_evicted_len=dead
            )

        trial = self.model.copy()
        try:
            wanted = trial.insert(namespace, tokens, pages, protected=protected, dead=dead)
        except Lacking:
            self.refused(MissingSwa, call)
            return
        found = call()
        self.model = trial
        assert found.prefix_len == wanted.prefix_len
        assert [tuple(part) for part in found.adopted_full] == wanted.full
        assert [tuple(part) for part in found.adopted_swa] == wanted.swa
        self.touched(namespace, tokens, len(tokens), protected)

    def dead(self, pick: Pick, pages: Sequence[int]) -> int:
        """Mostly the tokens before the first page that has a peer, else none, or any number of pages."""
        dead = 0
        while dead < len(pages) and pages[dead] not in self.model.peer:
            dead += 1
        return (dead, 0, pick(len(pages) + 1))[max(0, pick(5) - 2)] * self.page

    def touched(self, namespace: str, row: Sequence[int], length: int, protected: int = 0) -> None:
        """The last window of the path has the newest stamps, rising from the root to the leaf.

        What lies before a protected length may have been left alone.
        """
        views = {view.id: view for view in self.cache.nodes(namespace)}
        path: list[Any] = []
        at = 0
        while at < length:
            below = next(
                view
                for view in views.values()
                if view.parent == (path[-1].id if path else None)
                and tuple(view.tokens[: self.page]) == tuple(row[at : at + self.page])
            )
            path.append(below)
            at = below.end
        window_start = max(protected, length - self.model.ceil(self.window))
        recent = [view for view in path if view.end > window_start]
        stamps = [view.last_access for view in recent]
        assert stamps == sorted(set(stamps))
        others = {view.id for view in recent}
        rest = [view.last_access for view in self.cache.nodes() if view.id not in others]
        assert not stamps or stamps[0] > max(rest, default=-1)

    def evict(self, pick: Pick) -> None:
        self.press(max(0, pick(6) - 3) * self.page, pick(6) * self.page)

    def press(self, full: int, swa: int) -> None:
        """Evict, and compare what went with the rules."""
        views = list(self.cache.nodes())
        gone = self.victims(full, swa)
        found = self.cache.evict(full_tokens=full, swa_tokens=swa)
        assert (found.full_tokens, found.swa_tokens) == (gone.full_tokens, gone.swa_tokens)
        self.lose(views, gone)

    def victims(self, full: int, swa: int) -> Taken:
        """What the rules say goes where so much is asked for."""
        if self.eviction == "lru-2":
            taken = taken_by_lru2(
                self.cache, full_tokens=full, swa_tokens=swa, window=self.window, page=self.page
            )
            self.moves["nodes cut by eviction"] += taken.cuts
            return taken
        views = list(self.cache.nodes())
        gone, _ = evictions(views, full_tokens=full, swa_tokens=swa, window=self.window)
        tree = twigs(views)
        deleted = [Span(node, tree[node].start, tree[node].end) for node in gone.deleted]
        tombstoned = [Span(node, tree[node].start, tree[node].end) for node in gone.tombstoned]
        return Taken(deleted, tombstoned, full_tokens=gone.full_tokens, swa_tokens=gone.swa_tokens)

    def lose(self, views: list[Any], gone: Taken) -> None:
        """Tell the model which pages an eviction took."""
        rows = {int(view.id): (view.start, self.pages(view.full_slots)) for view in views}

        def pages(span: Span) -> list[int]:
            start, row = rows[span.node]
            return row[(span.start - start) // self.page : (span.end - start) // self.page]

        self.model.evicted(
            [page for span in gone.deleted for page in pages(span)],
            [page for span in gone.tombstoned for page in pages(span)],
        )
