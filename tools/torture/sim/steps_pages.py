"""Steps on raw pages and the tree: what a scheduler with rows of its own does, on cache and model alike."""

from collections.abc import Sequence
from typing import Any

from kvledger.core.errors import DoubleFree, MissingSwa, OutOfSlots
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.finding import equal
from kvledger.tools.torture.sim.ground import Ground
from kvledger.tools.torture.sim.model import Lacking
from kvledger.tools.torture.sim.setting import in_runs


class PageSteps(Ground):
    """Each step returns whether it found something to work on."""

    def alloc(self, dice: Dice) -> bool:
        """Take some raw pages, one time in four without SWA."""
        count, full_only = 1 + dice.below(5), dice.one_in(4)
        call = self.cache.alloc_full_only if full_only else self.cache.alloc
        self.say("alloc_full_only" if full_only else "alloc", count, "pages")
        for pool in ("full",) if full_only else ("full", "swa"):
            sizes = self.model.sizes(pool)
            if sizes["free"] < count * self.page:
                self.no_room(lambda: call(count * self.page), pool, count)
                return True
        slots = self.call(call, count * self.page)
        self.model.take(self.pages(slots), self.peers(slots), None)
        return True

    def no_room(self, call: Any, pool: str, pages: int) -> None:
        """A call has to be refused for lack of room in a pool."""
        sizes = self.model.sizes(pool)
        error: Any = self.refused(OutOfSlots, call)
        told = (error.pool, error.needed, error.free, error.evictable)
        equal(told, (pool, pages * self.page, sizes["free"], sizes["evictable"]), "refusal", "OutOfSlots")

    def some_raw_pages(self, dice: Dice) -> list[int]:
        """A few of the raw pages that are held."""
        pages = self.raw_pages()
        return pages[dice.below(len(pages)) :][: 1 + dice.below(3)] if pages else []

    def free(self, dice: Dice) -> bool:
        """Give raw pages back."""
        chosen = self.some_raw_pages(dice)
        if not chosen:
            return False
        self.say("free pages", *chosen)
        self.call(self.cache.free, self.slots(chosen))
        for page in chosen:
            self.model.give(page)
        if dice.one_in(4):
            self.refused(DoubleFree, lambda: self.cache.free(self.slots(chosen)))
        return True

    def free_swa(self, dice: Dice) -> bool:
        """Give the SWA side of raw pages back."""
        chosen = self.some_raw_pages(dice)
        if not chosen:
            return False
        self.say("free the SWA of pages", *chosen)
        if any(page not in self.model.peer for page in chosen):
            self.refused(DoubleFree, lambda: self.cache.free_swa(self.slots(chosen)))
            return True
        self.call(self.cache.free_swa, self.slots(chosen))
        for page in chosen:
            self.model.give_swa(page)
        return True

    def raw_pages_for(self, wanted: int) -> list[int]:
        """The raw pages that are held, more of them where there is room for as many as are wanted."""
        self.settle()
        raw = self.raw_pages()
        missing = wanted - len(raw)
        if missing > 0 and self.model.fits_free(missing):
            slots = self.call(self.cache.alloc, missing * self.page)
            self.model.take(self.pages(slots), self.peers(slots), None)
            raw = self.raw_pages()
        return raw

    def dead(self, dice: Dice, pages: Sequence[int]) -> int:
        """Mostly the tokens before the first page that has a peer, else none, or any number of pages."""
        dead = 0
        while dead < len(pages) and pages[dead] not in self.model.peer:
            dead += 1
        return (dead, 0, dice.below(len(pages) + 1))[max(0, dice.below(5) - 2)] * self.page

    def insert(self, dice: Dice) -> bool:
        """Give the tree a row in raw pages, perhaps behind a protected part that is the tree's own."""
        namespace, row = self.setting.prompt(dice)
        behind = dice.one_in(3)
        reach = self.model.match(namespace, row)
        keys = self.model.keys(namespace, row)
        known = [self.model.tree[key] for key in keys[: reach.full_length // self.page]]
        own = dice.below(len(known) + 1) if behind else 0
        raw = self.raw_pages_for(len(keys) - own)
        count = min(len(keys), own + len(raw))
        if count == own or not self.may_compute:
            return False
        pages = [*known[:own], *raw[: count - own]]
        tokens, protected, dead = row[: count * self.page], own * self.page, self.dead(dice, pages)
        self.say(f"insert {count} pages, protected {protected}, dead {dead}, {namespace!r} {in_runs(tokens)}")
        self.probe(namespace, tokens)
        self.write_raw(namespace, tokens, protected, pages[own:])
        trial = self.model.copy()
        try:
            wanted = trial.insert(namespace, tokens, pages, protected=protected, dead=dead)
        except Lacking:
            self.refused(
                MissingSwa, lambda: self.cache.insert(tokens, self.slots(pages), namespace, protected, dead)
            )
            return True
        found = self.call(self.cache.insert, tokens, self.slots(pages), namespace, protected, dead)
        self.model = trial
        equal(
            (found.prefix_len, list(found.adopted_full), list(found.adopted_swa)),
            (wanted.prefix_len, wanted.full, wanted.swa),
            "insert",
            "what an insert took over",
        )
        return True

    def evict(self, dice: Dice) -> bool:
        """Make room."""
        self.press(max(0, dice.below(6) - 3), dice.below(6))
        return True

    def press(self, full_pages: int, swa_pages: int) -> None:
        """Evict so many pages, as far as they are there."""
        self.settle()
        full, swa = full_pages * self.page, swa_pages * self.page
        self.say(f"evict {full} Full and {swa} SWA tokens")
        full = min(full, self.model.sizes("full")["evictable"])
        swa = min(swa, self.model.sizes("swa")["evictable"])
        found = self.call(
            self.cache.evict, full_tokens=full_pages * self.page, swa_tokens=swa_pages * self.page
        )
        taken = self.lose(full=full, swa=swa)
        equal((found.full_tokens, found.swa_tokens), taken, "eviction", "what an eviction says it freed")

    def match(self, dice: Dice) -> bool:
        """Ask what would match."""
        namespace, row = self.setting.prompt(dice)
        self.say(f"match {namespace!r} {in_runs(row)}")
        self.probe(namespace, row)
        told = self.cache.explain(row, namespace)
        wanted = self.model.match(namespace, row)
        equal(
            (told.length, told.full_length), (wanted.length, wanted.full_length), "match", "what is explained"
        )
        return True
