"""The life that most variants are tried in: every kind of call on a small cache, in a seeded order.

Prompts share heads in two namespaces, pools are short of room, callers of raw pages and requests meet in the
same prefixes, transactions are rolled back in part and in whole, and a reset stands in the middle.
"""

import random
from collections.abc import Callable

import numpy as np

from kvledger.core import HybridCache, Lease, Request
from kvledger.core.errors import InvalidArgument, OutOfSlots
from tests.planted.evidence import See

NAMESPACES = ("", "", "a")
HEADS = 3
HEAD_PAGES = 8


class _Life:
    def __init__(self, cache: HybridCache, dice: random.Random) -> None:
        self.cache = cache
        self.page = cache.config.page_size
        self.dice = dice
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.leases: list[Lease] = []
        self.opened = 0

    def prompt(self) -> tuple[list[int], str]:
        """A head that many share, cut somewhere, and a short tail of few kinds of tokens; and whose it is."""
        dice = self.dice
        which = dice.randrange(HEADS)
        head = [which * 100 + number for number in range(HEAD_PAGES * self.page)]
        kept = head[: dice.choice((len(head), len(head), dice.randrange(1, len(head) + 1)))]
        tail = [900 + dice.randrange(2) for _ in range(dice.randrange(1, 4 * self.page + 2))]
        return kept + tail, dice.choice(NAMESPACES)

    def open(self) -> None:
        """A request comes, is prefilled and publishes; or gives up for want of room."""
        tokens, namespace = self.prompt()
        self.opened += 1
        request = self.cache.open_request(f"r{self.opened}", np.array(tokens, np.int32), namespace)
        if self.dice.random() < 0.15:
            self.waiting.append(request)
            return
        self.prefill(request)

    def prefill(self, request: Request) -> None:
        """Slots and KV for all the tokens that have none."""
        try:
            request.extend(request.num_tokens - request.reserved)
        except OutOfSlots:
            self.waiting.append(request)
            return
        request.computed()
        if request.branch_len > request.prefix_len and self.dice.random() < 0.5:
            request.commit(upto=request.branch_len)
        if self.dice.random() < 0.8:
            request.commit()
        self.running.append(request)

    def decode(self) -> None:
        """Tokens for everybody, and what left the window goes."""
        more = self.dice.randrange(1, 2 * self.page + 2)
        for request in list(self.running):
            request.append([900 + self.dice.randrange(2) for _ in range(more)])
            try:
                request.extend(more)
            except OutOfSlots:
                self.running.remove(request)
                request.retract()
                self.waiting.append(request)
                continue
            request.computed()
            request.slide()

    def publish(self) -> None:
        """Somebody publishes in the middle, if it may."""
        if self.running:
            try:
                self.dice.choice(self.running).commit()
            except InvalidArgument:
                return

    def leave(self) -> None:
        """Somebody leaves, in one way or another."""
        if self.running:
            request = self.running.pop(self.dice.randrange(len(self.running)))
            how = self.dice.choice(("finish", "finish", "abort", "retract"))
            getattr(request, how)()
            if how == "retract":
                self.waiting.append(request)

    def resume(self) -> None:
        """Somebody who waits matches again, and is prefilled or goes."""
        if self.waiting:
            request = self.waiting.pop(0)
            if self.dice.random() < 0.2:
                request.abort()
                return
            request.refresh()
            if self.dice.random() < 0.3:
                self.waiting.append(request)
            else:
                self.prefill(request)

    def insert(self) -> None:
        """A caller with rows of its own inserts, perhaps without the SWA of the beginning."""
        tokens, namespace = self.prompt()
        tokens = tokens[: len(tokens) // self.page * self.page]
        try:
            slots = self.cache.alloc(len(tokens))
        except OutOfSlots:
            return
        dead = self.dice.choice((0, 0, len(tokens) // (2 * self.page) * self.page))
        if dead:
            self.cache.free_swa(slots[:dead])
        self.cache.insert(tokens, slots, namespace, swa_evicted_len=dead)

    def lock(self) -> None:
        """A caller locks a prefix; or advances one, or gives one back, the whole or its SWA half first."""
        dice = self.dice
        if len(self.leases) > 2:
            lease = self.leases.pop(dice.randrange(len(self.leases)))
            if dice.random() < 0.3:
                self.cache.release_swa(lease)
                self.cache.evict(swa_tokens=self.page)
            self.cache.release(lease)
            return
        tokens, namespace = self.prompt()
        lease = self.cache.acquire(tokens, namespace)
        if dice.random() < 0.4:
            try:
                slots = self.cache.alloc(2 * self.page)
            except OutOfSlots:
                self.leases.append(lease)
                return
            advanced = self.cache.advance(lease, [950] * (2 * self.page), slots)
            if advanced.refused:
                self.cache.free(slots[len(slots) - advanced.refused :])
            lease = advanced.lease
        if dice.random() < 0.5:
            self.cache.release_swa(lease)
            self.cache.evict(swa_tokens=dice.randrange(1, 9 * self.page))
            self.cache.release(lease)
            return
        self.leases.append(lease)

    def evict(self) -> None:
        """Somebody makes room."""
        full, swa = self.dice.choice(((0, 3), (0, 6), (2, 0), (4, 4)))
        self.cache.evict(full * self.page, swa * self.page)

    def hold(self) -> None:
        """Raw pages come and go, some of them in Full only."""
        try:
            slots = self.cache.alloc(2 * self.page)
            alone = self.cache.alloc_full_only(self.page)
        except OutOfSlots:
            return
        self.cache.free_swa(slots[self.page :])
        self.cache.free(slots)
        self.cache.free(alone)

    def undo(self) -> None:
        """A transaction of the caller's, a part of it undone, at times all of it."""
        tokens, namespace = self.prompt()
        tokens = tokens[: len(tokens) // self.page * self.page]
        try:
            with self.cache.transaction("group") as t:
                self.cache.evict(swa_tokens=2 * self.page)
                first = self.cache.alloc(self.page)
                place = t.savepoint()
                self.cache.insert(tokens, self.cache.alloc(len(tokens)), namespace)
                self.cache.evict(3 * self.page, 4 * self.page)
                with self.cache.transaction("inner"):
                    self.cache.free(first)
                    self.cache.release(self.cache.acquire(tokens, namespace))
                t.rollback(place, reason="another way")
                self.cache.free(first)
                if self.dice.random() < 0.3:
                    raise LookupError("the caller changed its mind")
        except (OutOfSlots, LookupError):
            return

    def reset(self) -> None:
        """All that hangs on the tree goes; who was served closes."""
        self.cache.reset()
        for request in self.running + self.waiting:
            request.abort()
        for lease in self.leases:
            self.cache.release(lease)
        self.running, self.waiting, self.leases = [], [], []

    def close(self) -> None:
        """Everybody leaves, and the tree is emptied."""
        for request in self.running + self.waiting:
            request.abort()
        for lease in self.leases:
            self.cache.release(lease)
        self.cache.evict(self.cache.config.full_tokens, self.cache.config.swa_tokens)


STEPS: tuple[tuple[Callable[[_Life], None], int], ...] = (
    (_Life.open, 8),
    (_Life.decode, 8),
    (_Life.publish, 3),
    (_Life.leave, 5),
    (_Life.resume, 4),
    (_Life.insert, 3),
    (_Life.lock, 4),
    (_Life.evict, 2),
    (_Life.hold, 1),
    (_Life.undo, 2),
)


def life(cache: HybridCache, see: See, *, seed: int = 1, steps: int = 150) -> None:
    """Live through so many steps; in the end everybody leaves and nothing is left."""
    one = _Life(cache, random.Random(seed))
    names, weights = zip(*STEPS, strict=True)
    for step in range(steps):
        one.dice.choices(names, weights)[0](one)
        see()
        if step == steps * 2 // 3:
            one.reset()
            see()
    one.close()
    see()
