"""Steps on leases: taken, continued, moved on and given back by a caller that keeps its own rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvledger.core import Lease
from kvledger.core.errors import InvalidArgument, MissingSwa, StaleLease
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.finding import equal, require
from kvledger.tools.torture.sim.ground import MOST_LEASES
from kvledger.tools.torture.sim.model import Lacking, Lock, Tokens, TooClose
from kvledger.tools.torture.sim.setting import in_runs, page_of
from kvledger.tools.torture.sim.steps_pages import PageSteps


@dataclass
class Continuation:
    """What a caller brings behind one of its leases: tokens, their pages, and how far their SWA is dead."""

    number: int
    lease: Lease
    lock: Lock
    tokens: Tokens
    pages: list[int]
    dead: int

    @property
    def row(self) -> Tokens:
        """All tokens, the locked ones included."""
        return (*self.lock.tokens, *self.tokens)


class LeaseSteps(PageSteps):
    """Each step returns whether it found something to work on."""

    def acquire(self, dice: Dice) -> bool:
        """Lock the longest prefix of a prompt."""
        if len(self.leases) >= MOST_LEASES:
            return False
        namespace, row = self.setting.prompt(dice)
        limit = dice.below(len(row) + 1) if dice.one_in(3) else None
        self.locked(namespace, row, limit)
        return True

    def locked(self, namespace: str, row: Tokens, limit: int | None) -> int:
        """Lock it: the lease's number."""
        most = "all" if limit is None else f"at most {limit}"
        self.say(f"acquire {most} of {namespace!r} {in_runs(row)}")
        self.probe(namespace, row)
        lease = self.call(self.cache.acquire, row, namespace, max_length=limit)
        number, wanted = self.model.lock(namespace, row, limit)
        self.leases[number] = lease
        lock = self.model.locks[number]
        equal((lease.length, lease.swa_from), (wanted.length, lock.swa_from), "match", "what is locked")
        equal(self.pages(lease.slots), list(wanted.pages), "match", "the pages that are locked")
        return number

    def release(self, dice: Dice) -> bool:
        """Give a lock back."""
        number = self.some_lease(dice)
        if number is None:
            return False
        self.say("release lease", number)
        lease = self.leases[number]
        self.call(self.cache.release, lease)
        del self.leases[number], self.model.locks[number]
        if dice.one_in(4):
            self.refused(StaleLease, lambda: self.cache.release(lease))
        return True

    def release_swa(self, dice: Dice) -> bool:
        """Give the SWA half of a lock back."""
        number = dice.prefer(number for number in self.leases if self.model.locks[number].swa_held)
        if number is None:
            return False
        self.say("release the SWA half of lease", number)
        self.give_up_swa(number)
        return True

    def give_up_swa(self, number: int) -> None:
        """The SWA half of a lease, which is held."""
        self.call(self.cache.release_swa, self.leases[number])
        self.model.locks[number].swa_held = False

    def lock_and_lose(self, dice: Dice) -> bool:
        """A lock whose SWA half is given up at once, and SWA pressure."""
        if len(self.leases) >= MOST_LEASES:
            return False
        namespace, row = self.setting.prompt(dice)
        number = self.locked(namespace, row, None)
        self.give_up_swa(number)
        self.press(0, 1 + dice.below(12))
        return True

    # What continues a lease.

    def continuation(self, dice: Dice) -> Continuation | None:
        """Some of what the tree has behind a lease, then something new, in raw pages that are at hand."""
        number = self.some_lease(dice)
        if number is None or not self.may_compute:
            return None
        lock = self.model.locks[number]
        behind = sorted(
            tokens[lock.length :]
            for namespace, tokens in self.model.tree
            if namespace == lock.namespace
            and len(tokens) > lock.length
            and tokens[: lock.length] == lock.tokens
        )
        row = behind[dice.below(len(behind))] if behind and dice.below(4) else ()
        for _ in range(dice.below(3) if row else 1 + dice.below(4)):
            row += page_of(dice.below(3), self.page)
        pages = self.raw_pages_for(len(row) // self.page)[: len(row) // self.page]
        dead = self.dead(dice, pages)
        if dead or dice.one_in(4):
            dead += lock.length
        new = Continuation(number, self.leases[number], lock, row[: len(pages) * self.page], pages, dead)
        self.probe(lock.namespace, new.row)
        self.write_raw(lock.namespace, new.row, lock.length, pages)
        return new

    def insert_after(self, dice: Dice) -> bool:
        """Insert what continues a lease."""
        new = self.continuation(dice)
        if new is None:
            return False
        self.say(f"insert after lease {new.number}, dead {new.dead}, {in_runs(new.tokens)}")
        self.insert_continuation(new)
        return True

    def insert_continuation(self, new: Continuation) -> bool:
        """Insert it; False where it lacks SWA."""
        trial = self.model.copy()
        try:
            wanted = trial.insert_behind(new.number, new.tokens, new.pages, dead=new.dead)
        except Lacking:
            slots = self.slots(new.pages)
            self.refused(MissingSwa, lambda: self.cache.insert_after(new.lease, new.tokens, slots, new.dead))
            return False
        found = self.call(self.cache.insert_after, new.lease, new.tokens, self.slots(new.pages), new.dead)
        self.model = trial
        equal(
            (list(found.adopted_full), list(found.adopted_swa)),
            (wanted.full, wanted.swa),
            "insert",
            "what an insert behind a lease took over",
        )
        if new.tokens:
            equal(found.prefix_len, wanted.prefix_len, "insert", "how far Full reached")
        return True

    def advance(self, dice: Dice) -> bool:
        """Insert what continues a lease, and lock that instead."""
        new = self.continuation(dice)
        if new is None:
            return False
        if dice.one_in(3) and new.tokens:
            # Somebody else publishes the same, locks it and loses SWA of it, before the lease moves.
            self.bury(dice, new)
            raw = self.raw_pages_for(len(new.pages))[: len(new.pages)]
            new = replace(new, pages=raw, tokens=new.tokens[: len(raw) * self.page], dead=0)
            self.write_raw(new.lock.namespace, new.row, new.lock.length, raw)
        self.say(f"advance lease {new.number}, dead {new.dead}, {in_runs(new.tokens)}")
        self.move(new)
        return True

    def bury(self, dice: Dice, new: Continuation) -> None:
        """Publish a continuation, lock some of it, give SWA halves back, and press."""
        self.say(f"insert after lease {new.number}, {in_runs(new.tokens)}")
        if not self.insert_continuation(replace(new, dead=0)):
            return
        middle = new.lock.length + (1 + dice.below(len(new.pages))) * self.page
        self.lock_parts(new.lock.namespace, new.row, middle)
        self.press(0, 1 + dice.below(12))

    def lock_parts(self, namespace: str, row: Sequence[int], middle: int) -> None:
        """Lock up to the middle of a row, and all of it without its SWA half."""
        for early, length in ((False, middle), (True, len(row))):
            if len(self.leases) < 2 * MOST_LEASES:
                number = self.locked(namespace, tuple(row), length)
                if early:
                    self.give_up_swa(number)

    def move(self, new: Continuation) -> None:
        """The lease moves to what the model says it moves to, or stays."""
        slots = self.slots(new.pages)
        trial = self.model.copy()
        try:
            number, refused = trial.advance(new.number, new.tokens, new.pages, dead=new.dead)
        except (Lacking, TooClose) as why:
            error = MissingSwa if isinstance(why, Lacking) else InvalidArgument
            self.refused(error, lambda: self.cache.advance(new.lease, new.tokens, slots, new.dead))
            return
        found = self.call(self.cache.advance, new.lease, new.tokens, slots, new.dead)
        self.model = trial
        equal(found.refused, refused, "insert-match", "what an advance refused")
        self.tally["tokens refused by an advance"] += refused
        if number == new.number:
            require(found.lease is new.lease, "insert-match", "a lease moved that had to stay")
            return
        del self.leases[new.number]
        self.leases[number] = found.lease
        lock = trial.locks[number]
        equal(
            (found.lease.length, found.lease.swa_from), (lock.length, lock.swa_from), "match", "the new lease"
        )
        known = [trial.tree[key] for key in trial.keys(lock.namespace, lock.tokens)]
        equal(self.pages(found.lease.slots), known, "match", "the pages of the new lease")
