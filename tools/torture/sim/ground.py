"""What every step of a simulation stands on: the cache, its model, its journal, and how a call is made.

A call either does what the model says, or fails as the model says it must, or meets a fault that was put
there: then nothing at all may have changed, and the operation ends there.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

from kvledger.core import HybridCache, Lease, Request
from kvledger.core.errors import CacheError, JournalError, OutOfSlots
from kvledger.journal import Journal
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.faults import Injected, InjectedInterrupt, Trap
from kvledger.tools.torture.sim.finding import Finding, equal, require
from kvledger.tools.torture.sim.kv import SimulatedKV, Slots, codes_of
from kvledger.tools.torture.sim.memory import Memory
from kvledger.tools.torture.sim.model import Running, Tokens
from kvledger.tools.torture.sim.model_requests import NaiveRequests
from kvledger.tools.torture.sim.operations import Fault
from kvledger.tools.torture.sim.recording import Recording
from kvledger.tools.torture.sim.setting import Setting
from kvledger.tools.torture.sim.store import Store

MOST_REQUESTS = 5
MOST_LEASES = 5

LOOKED_AT = 3
"""A refusal in every so many operations is looked at with digests; what it left shows later, otherwise."""

P = ParamSpec("P")
T = TypeVar("T")


class Abandoned(Exception):
    """A fault ended the operation; what it had done before stands."""


@dataclass
class Before:
    """What a call that fails has to leave as it was."""

    digest: str
    sizes: Any


@dataclass
class Known:
    """What a rollback has to bring back, as it was when it was remembered."""

    model: NaiveRequests
    leases: dict[int, Lease]
    requests: dict[str, Request]
    digest: str
    savepoint: Any = None


@dataclass
class Open:
    """A transaction that is open, and the savepoints made in it."""

    context: Any
    transaction: Any
    start: Known
    savepoints: list[Known]


class Ground:
    """One seed's cache and all that stands beside it. `said` tells what was done, in words."""

    def __init__(self, setting: Setting, journal: Journal, store: Store) -> None:
        self.setting = setting
        self.page = setting.page
        self.store = store
        self.tally: Counter[str] = Counter()
        self.said: list[str] = []
        self.number = 0
        self.fault: Fault | None = None
        self._journal = journal
        self._calls = 0
        self.trap = Trap()
        self.start()

    def start(self) -> None:
        """A new process: a fresh cache, and a journal of its own."""
        setting = self.setting
        self.recording = Recording(self._journal, self.store, setting, self.trap, self.tally)
        self.memory: Memory | None = None
        if setting.memory != "own":
            self.memory = Memory(
                full_pages=setting.full_pages,
                swa_pages=setting.swa_pages,
                restores_at_once=setting.memory == "foreign at once",
                before_allocating=lambda: self.trap.spring("memory"),
            )
        self.cache = HybridCache(setting.config, sink=self.recording.tap, pool=self.memory)
        self.kv = SimulatedKV(page=self.page, full_pages=setting.full_pages, swa_pages=setting.swa_pages)
        self.model = NaiveRequests(
            page=self.page,
            window=setting.window,
            full_pages=setting.full_pages,
            swa_pages=setting.swa_pages,
            remap=setting.locked_recovery == "remap",
        )
        self.leases: dict[int, Lease] = {}
        self.requests: dict[str, Request] = {}
        self.stack: list[Open] = []
        self.probes: list[tuple[str, Tokens]] = []
        self.tally["runs"] += 1

    def abandon(self) -> None:
        """After a finding: let go of the recorder, whatever state it is in."""
        self.recording.abandon()

    def say(self, *words: object) -> None:
        """Tell what the operation does, for whoever reads a failure."""
        self.said.append(" ".join(map(str, words)))

    # Calls.

    def call(self, what: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Make a call that has to succeed, unless a fault is due in it. Raises Abandoned after a fault."""
        fault = None
        if self.fault is not None:
            if self._calls == self.fault.call:
                fault = self.fault
            self._calls += 1
        if fault is None and not self.recording.in_doubt:
            return what(*args, **named)
        before = self.picture()
        try:
            with self.trap.armed(fault):
                return what(*args, **named)
        except (Injected, InjectedInterrupt):
            if fault is None:
                raise
            self.tally[f"fault: {fault.kind}"] += 1
            self.say(f"({fault})")
        except JournalError as error:
            if not self.recording.failed:
                raise
            self.tally["fault: refused by a failed recorder"] += 1
            self.say(f"({error})")
        self.unchanged(before)
        raise Abandoned

    def settle(self) -> None:
        """What the last call freed is free now, unless a transaction is open."""
        if not self.stack:
            self.model.settle()

    def remember(self) -> None:
        """Keep the cache's digest, for the journal to be held against."""
        if not self.stack and self.recording.remembered() is None:
            self.recording.remember(self.cache.digest())

    def picture(self) -> Before:
        """The state as it is now."""
        known = None if self.stack else self.recording.remembered()
        return Before(self.cache.digest() if known is None else known, self.cache.sizes())

    def unchanged(self, before: Before) -> None:
        """After a call that failed: all is as it was."""
        require(self.cache.digest() == before.digest, "rollback", "a call that failed left a trace")
        equal(str(self.cache.sizes()), str(before.sizes), "rollback", "the sizes after a call that failed")

    def refused(self, error: type[CacheError], what: Callable[[], object]) -> CacheError:
        """The call has to raise `error`, to change nothing, and to journal nothing but a want of room."""
        looks = self.number % LOOKED_AT == 0
        before, transactions = self.picture() if looks else None, self.recording.tap.transactions
        try:
            what()
        except error as raised:
            if before is not None:
                self.unchanged(before)
            if error is not OutOfSlots:
                equal(
                    self.recording.tap.transactions, transactions, "refusal", "transactions after a refusal"
                )
            return raised
        raise Finding("refusal", f"{error.__name__} should have been raised")

    def begin_operation(self, number: int, fault: Fault | None) -> None:
        """The next operation's turn."""
        self.number, self.fault, self._calls = number, fault, 0
        self.said.clear()

    # What steps choose from, and what they say it in.

    def some_request(self, dice: Dice, *, waiting: bool = False) -> str | None:
        """One of the requests that wait, or that do not."""
        numbers = [int(name[1:]) for name, state in self.model.requests.items() if state.waiting == waiting]
        number = dice.prefer(numbers)
        return None if number is None else f"r{number}"

    def some_lease(self, dice: Dice) -> int | None:
        """One of the leases of the raw caller."""
        return dice.prefer(self.leases)

    def raw_pages(self) -> list[int]:
        """Pages that the raw caller holds."""
        return sorted(page for page, owner in self.model.held.items() if owner is None)

    def slots(self, pages: Sequence[int]) -> Slots:
        """The slots of some pages."""
        first = np.asarray(pages, dtype=np.int64)[:, None] * self.page
        return (first + np.arange(self.page)).reshape(-1)

    def pages(self, slots: Slots) -> list[int]:
        """The pages that some slots begin."""
        return [int(slot) // self.page for slot in slots[:: self.page]]

    def peers(self, slots: Slots) -> list[int]:
        """The SWA pages beside them, 0 for none."""
        return self.pages(self.cache.swa_slots(slots))

    def probe(self, namespace: str, tokens: Sequence[int]) -> None:
        """These tokens are matched after the operation."""
        self.probes.append((namespace, tuple(tokens)))

    # KV.

    @property
    def may_compute(self) -> bool:
        """No KV is written while a transaction is open."""
        return not self.stack

    def write_raw(self, namespace: str, row: Sequence[int], start: int, pages: Sequence[int]) -> None:
        """Compute the KV of `row` from `start` on, into raw pages."""
        slots = self.slots(pages)
        self.kv.write(
            codes_of(namespace, row)[start : start + len(slots)], slots, self.cache.swa_slots(slots)
        )

    def write_request(self, name: str, state: Running, upto: int) -> None:
        """Compute the KV of a request up to a position."""
        start = state.computed
        if upto > start:
            slots = self.requests[name].slots_of(start, upto)
            codes = codes_of(state.namespace, state.tokens[:upto])[start:]
            self.kv.write(codes, slots, self.cache.swa_slots(slots))

    # Eviction.

    def lose(self, *, full: int, swa: int) -> tuple[int, int]:
        """Learn what an eviction took: at least so many tokens; returns how many of each pool."""
        views = self.cache.nodes()
        live = {page: view.swa_slots is not None for view in views for page in self.pages(view.full_slots)}
        deleted = [page for page in self.model.tree.values() if page not in live]
        peers = self.model.peer
        tombstoned = [page for page in self.model.tree.values() if not live.get(page, True) and page in peers]
        taken = (
            len(deleted) * self.page,
            (sum(page in peers for page in deleted) + len(tombstoned)) * self.page,
        )
        self.model.evicted(deleted, tombstoned)
        require(taken[0] >= full and taken[1] >= swa, "eviction", f"{full, swa} were to go, {taken} went")
        return taken
