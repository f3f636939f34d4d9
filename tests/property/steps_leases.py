"""Steps on leases: taken, continued, moved on and given back by a caller that keeps its own rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvledger.core import Lease
from kvledger.core.errors import InvalidArgument, MissingSwa, StaleLease
from kvledger.tools.torture.sim.model import Lacking, Lock, Tokens, TooClose
from tests.property.side_by_side import MOST_LEASES, Pick
from tests.property.steps_pages import PageSteps


@dataclass
class Continuation:
    """What a caller brings behind one of its leases."""

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
    """Each step does one thing to a lease in cache and model."""

    def acquire(self, pick: Pick) -> None:
        if len(self.leases) >= MOST_LEASES:
            return
        namespace, row = self.prompt(pick)
        limit = pick(len(row) + 1) if pick(3) == 0 else None
        lease = self.cache.acquire(row, namespace, max_length=limit)
        number, wanted = self.model.lock(namespace, row, limit)
        self.leases[number] = lease
        assert lease.length == wanted.length
        assert lease.swa_from == self.model.locks[number].swa_from
        assert self.pages(lease.slots) == list(wanted.pages)
        self.touched(namespace, row, lease.length)

    def release(self, pick: Pick) -> None:
        if not self.leases:
            return
        number = list(self.leases)[pick(len(self.leases))]
        lease = self.leases.pop(number)
        self.cache.release(lease)
        del self.model.locks[number]
        self.stale(lease)

    def stale(self, lease: Lease) -> None:
        """Nothing can be done with a lease any more."""
        self.refused(StaleLease, lambda: self.cache.release(lease))
        self.refused(StaleLease, lambda: self.cache.advance(lease, [], []))

    def release_swa(self, pick: Pick) -> None:
        held = [number for number in self.leases if self.model.locks[number].swa_held]
        if not held:
            return
        number = held[pick(len(held))]
        self.cache.release_swa(self.leases[number])
        self.model.locks[number].swa_held = False

    # What continues a lease.

    def continuation(self, pick: Pick) -> Continuation | None:
        """Some of what the tree has behind a lease, then something new, in raw pages that are at hand."""
        if not self.leases:
            return None
        number = list(self.leases)[pick(len(self.leases))]
        row = self.known_behind(pick, self.model.locks[number])
        for _ in range(pick(3) if row else 1 + pick(4)):
            kind = pick(3)
            row += (*[min(kind, 1)] * (self.page - 1), kind)
        return self.brought(pick, number, row)

    def brought(self, pick: Pick, number: int, row: Tokens) -> Continuation:
        """As much of `row` behind a lease as there are raw pages for, and how far their SWA is dead."""
        lock = self.model.locks[number]
        wanted = len(row) // self.page
        raw = self.raw_pages()
        if wanted > len(raw) and self.model.fits_free(wanted - len(raw)):
            slots = self.cache.alloc((wanted - len(raw)) * self.page)
            self.model.take(self.pages(slots), self.peers(slots), None)
            raw = self.raw_pages()
        first = pick(max(0, len(raw) - wanted) + 1) if pick(2) else max(0, len(raw) - wanted)
        pages = raw[first : first + wanted]
        dead = self.dead(pick, pages)
        if dead or not pick(4):
            dead += lock.length
        self.probe(lock.namespace, (*lock.tokens, *row))
        return Continuation(number, self.leases[number], lock, row[: len(pages) * self.page], pages, dead)

    def known_behind(self, pick: Pick, lock: Lock) -> Tokens:
        """The tokens of a page of the tree behind a lock, from the lock's end on; now and then none."""
        behind = sorted(
            tokens[lock.length :]
            for namespace, tokens in self.model.tree
            if namespace == lock.namespace
            and len(tokens) > lock.length
            and tokens[: lock.length] == lock.tokens
        )
        return behind[pick(len(behind))] if behind and pick(4) else ()

    def insert_after(self, pick: Pick) -> None:
        new = self.continuation(pick)
        if new is not None:
            self.insert_continuation(new)

    def insert_continuation(self, new: Continuation) -> None:
        def call() -> Any:
            return self.cache.insert_after(
                new.lease, new.tokens, self.slots(new.pages), swa_evicted_len=new.dead
            )

        trial = self.model.copy()
        try:
            wanted = trial.insert_behind(new.number, new.tokens, new.pages, dead=new.dead)
        except Lacking:
            self.refused(MissingSwa, call)
            return
        found = call()
        self.model = trial
        assert [tuple(part) for part in found.adopted_full] == wanted.full
        assert [tuple(part) for part in found.adopted_swa] == wanted.swa
        if not new.tokens:
            assert (found.prefix_len, found.node_id) == (new.lease.length, new.lease.node_id)
            return
        assert found.prefix_len == wanted.prefix_len
        self.touched(new.lock.namespace, new.row, len(new.row), new.lock.length)
        self.moves["inserts behind a lease"] += 1

    def advance(self, pick: Pick) -> None:
        new = self.continuation(pick)
        if new is not None:
            self.move(new)

    def move(self, new: Continuation) -> None:
        def call() -> Any:
            return self.cache.advance(new.lease, new.tokens, self.slots(new.pages), swa_evicted_len=new.dead)

        trial = self.model.copy()
        try:
            number, refused = trial.advance(new.number, new.tokens, new.pages, dead=new.dead)
        except Lacking:
            self.refused(MissingSwa, call)
            return
        except TooClose:
            self.refused(InvalidArgument, call)
            self.moves["too close to what was given back"] += 1
            return
        before = self.cache.digest()
        found = call()
        self.model = trial
        assert found.refused == refused
        if number == new.number:
            assert found.lease is new.lease
            assert self.cache.digest() == before, "an advance that was refused left a trace"
            self.moves["refused as a whole"] += bool(refused)
            return
        self.moved(new, number, found.lease)
        self.moves["advances"] += 1
        self.moves["refused in part"] += bool(refused)

    def moved(self, new: Continuation, number: int, lease: Lease) -> None:
        """The new lease is what the model locks, the old one is stale."""
        lock = self.model.locks[number]
        assert (lease.length, lease.swa_from) == (lock.length, lock.swa_from)
        known = [self.model.tree[key] for key in self.model.keys(lock.namespace, lock.tokens)]
        assert self.pages(lease.slots) == known
        assert lease.last_slot == lease.slots[-1]
        self.stale(self.leases.pop(new.number))
        self.leases[number] = lease
        self.touched(lock.namespace, new.row, lease.length)
        self.recovered(new.pages[: (lease.length - new.lock.length) // self.page], known)

    def recovered(self, brought: Sequence[int], known: Sequence[int]) -> None:
        """Count moves that changed slots of the caller's row, for the walks are meant to try them."""
        if list(brought) != list(known[len(known) - len(brought) :]):
            self.moves["rows changed"] += 1

    def bury(self, pick: Pick) -> None:
        """Somebody publishes what continues a lease, locks it and loses SWA of it, before the lease moves."""
        new = self.continuation(pick)
        if new is None or not new.tokens:
            return
        self.insert_continuation(replace(new, dead=0))
        middle = new.lock.length + (1 + pick(len(new.pages))) * self.page
        for early, length in ((False, middle), (True, len(new.row))):
            if len(self.leases) < 2 * MOST_LEASES:
                number, _ = self.model.lock(new.lock.namespace, new.row, length)
                self.leases[number] = self.cache.acquire(new.row, new.lock.namespace, max_length=length)
                if early:
                    self.cache.release_swa(self.leases[number])
                    self.model.locks[number].swa_held = False
        self.press(0, (1 + pick(12)) * self.page)
        self.compare()
        self.move(self.brought(pick, new.number, new.tokens))
