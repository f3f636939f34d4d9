"""What must be true after every operation, every few operations, and when everything has ended."""

import numpy as np

from kvledger.tools.torture.sim.finding import Finding, equal, require
from kvledger.tools.torture.sim.kv import codes_of
from kvledger.tools.torture.sim.setting import NAMESPACES, in_runs
from kvledger.tools.torture.sim.steps_journal import JournalSteps

REMEMBERED = 4
"""After every so many operations the cache's digest is kept, for a crash to be held against."""


class Checks(JournalSteps):
    """The cache against its model, its KV, its memory, and its own books."""

    def check_operation(self) -> None:
        """Cheap: the pools add up, and what was worked on matches as the model says."""
        self.settle()
        self.check_sizes()
        for namespace, tokens in self.probes:
            self.check_match(namespace, tokens)
        self.probes.clear()
        if self.number % REMEMBERED == 0:
            self.remember()

    def check_sizes(self) -> None:
        """The pools add up, and to what the model has."""
        sizes = self.cache.sizes()
        for name, pool in (("full", sizes.full), ("swa", sizes.swa)):
            parts = (pool.free, pool.evictable, pool.protected, pool.held)
            require(min(parts) >= 0 and sum(parts) == pool.total, "sizes", f"{name} does not add up: {pool}")
            wanted = self.model.sizes(name)
            for part, size in wanted.items():
                if getattr(pool, part) != size:
                    raise Finding("sizes", f"{name} is {pool}, and should be {wanted}")

    def check_match(self, namespace: str, tokens: tuple[int, ...]) -> None:
        """A match is what the model says."""
        found, wanted = self.cache.match_prefix(tokens, namespace), self.model.match(namespace, tokens)
        equal(
            (found.length, found.full_length, found.branch_length),
            (wanted.length, wanted.full_length, wanted.branch_length),
            "match",
            f"the match of {namespace!r} {in_runs(tokens)}",
        )
        equal(self.pages(found.slots), list(wanted.pages), "match", "the pages that match")
        if self.setting.eviction == "lru":
            equal(found.publish_length, found.branch_length, "match", "where to publish first")

    def walk(self) -> None:
        """All of it: the cache's own full check, every node, row and lease, and all KV. O(state)."""
        self.cache.check()
        if self.memory is not None and not self.stack:
            self.memory.check(self.cache)
        self.check_tree()
        self.check_rows()
        self.check_leases()
        self.tally["full walks"] += 1

    def check_tree(self) -> None:
        """Each page of each node: its place, its peer, its locks, its KV."""
        seen = 0
        full_locks, swa_locks = self.model.lock_counts()
        for namespace in sorted(set(NAMESPACES)):
            rows: dict[int, tuple[int, ...]] = {}
            views = self.cache.nodes(namespace)
            for view in sorted(views, key=lambda view: view.start):
                above = () if view.parent is None else rows[int(view.parent)]
                row = rows[int(view.id)] = (*above, *view.tokens.tolist())
                equal(view.start, len(above), "tree", f"the start of node {view.id}")
                what = f"node {view.id}"
                codes = codes_of(namespace, row)[view.start :]
                self.kv.check_full(codes, view.full_slots, f"whoever matches {what}")
                if view.swa_slots is not None:
                    self.kv.check_swa(codes, view.swa_slots, f"whoever matches {what}")
                for i, full in enumerate(self.pages(view.full_slots)):
                    key = (namespace, row[: view.start + (i + 1) * self.page])
                    peer = None if view.swa_slots is None else int(view.swa_slots[i * self.page]) // self.page
                    equal(full, self.model.tree.get(key), "tree", f"page {i} of {what}")
                    equal(peer, self.model.peer.get(full), "tree", f"the peer of page {full} of {what}")
                    locks = (full_locks[key], swa_locks[key])
                    equal((view.full_lock, view.swa_lock), locks, "locks", f"the locks of {what}")
                    seen += 1
        equal(seen, len(self.model.tree), "tree", "the number of pages in the tree")

    def check_rows(self) -> None:
        """Each request: its row, its progress, and the KV that it reads."""
        for name, state in self.model.requests.items():
            handle = self.requests[name]
            slots = handle.slots
            equal(self.pages(slots), state.row, "row", f"the row of {name}")
            equal(len(slots), state.reserved, "row", f"the slots of {name}")
            equal(handle.protected_len, state.protected, "row", f"the protected length of {name}")
            if state.waiting:
                require(handle.waiting, "row", f"{name} does not wait")
                continue
            equal(
                (handle.computed_len, handle.frontier),
                (state.computed, state.frontier),
                "row",
                f"the progress of {name}",
            )
            codes = codes_of(state.namespace, state.tokens[: state.computed])
            self.kv.check_full(codes, slots[: state.computed], name)
            start = max(0, state.computed - self.setting.window)
            window = self.cache.swa_slots(slots[start : state.computed])
            self.kv.check_swa(codes[start:], window, name)

    def check_leases(self) -> None:
        """Each raw lease: the KV under it, both sides."""
        for number, lease in self.leases.items():
            lock = self.model.locks[number]
            codes = codes_of(lock.namespace, lock.tokens)
            known = [self.model.tree[key] for key in self.model.keys(lock.namespace, lock.tokens)]
            equal(self.pages(lease.slots), known, "locked-full", f"the pages under lease {number}")
            self.kv.check_full(codes, lease.slots, f"lease {number}")
            if lock.swa_held:
                window = self.cache.swa_slots(lease.slots[lock.swa_from :])
                self.kv.check_swa(codes[lock.swa_from :], window, f"lease {number}")

    def wind_up(self) -> None:
        """Everything ends: every page has to be free again, and the journal has to say the same."""
        self.begin_operation(self.number + 1, None)
        self.store.failing.heal()
        self.end_all()
        if self.recording.failed:
            self.restart_after_failure()
        self.check_operation()
        self.walk()
        for name in list(self.requests):
            self.ended(name, publish=int(name[1:]) % 2 == 0)
        for number in list(self.leases):
            self.call(self.cache.release, self.leases[number])
            del self.leases[number], self.model.locks[number]
        if self.raw_pages():
            raw = self.raw_pages()
            self.call(self.cache.free, self.slots(raw))
            for page in raw:
                self.model.give(page)
        self.check_operation()
        self.walk()
        self.press(self.setting.full_pages, self.setting.swa_pages)
        self.check_operation()
        self.walk()
        sizes = self.cache.sizes()
        for name, pool in (("full", sizes.full), ("swa", sizes.swa)):
            equal(pool.free, pool.total, "leak", f"the {name} tokens that are free after everything ended")
        equal(len(self.cache.nodes()), 0, "leak", "the number of nodes after everything was evicted")
        mapping = self.cache.swa_slots(np.arange(self.page, (self.setting.full_pages + 1) * self.page))
        require(not mapping.any(), "leak", "a page that is free maps to something")
        self.call(self.cache.checkpoint)
        self.recording.close(self.cache.digest())
        self.count_cache()
