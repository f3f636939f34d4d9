"""A cache and its naive model, worked side by side, transactions included.

Each step does one thing to both; `compare` then asks both everything. Whatever is undone has to bring back
digest, model and handles as they were, and what was born meanwhile has to be stale.
"""

from typing import Any

from kvledger.core.errors import (
    StaleLease,
    TransactionError,
)
from tests.property.side_by_side import MOST_DEPTH, Memory, Open, Pick
from tests.property.steps_requests import RequestSteps
from tests.reference.retention import Learned, learned


class Boom(Exception):
    """Leaves a transaction by an exception."""


class Twin(RequestSteps):
    """All steps there are."""

    def remember(self, savepoint: Any = None) -> Memory:
        return Memory(
            self.model.copy(),
            dict(self.leases),
            dict(self.requests),
            self.cache.digest(),
            self.learned(),
            savepoint,
        )

    def learned(self) -> Learned | None:
        """What orders eviction beside the tree, where there is such a thing."""
        return None if self.eviction == "lru" else learned(self.cache)

    def recall(self, memory: Memory) -> None:
        """After a rollback: all is as it was, and what was born meanwhile is stale."""
        assert self.cache.digest() == memory.digest, "a rollback did not restore the digest"
        assert self.learned() == memory.learned, "a rollback did not restore what was learned"
        unborn = [lease for number, lease in self.leases.items() if number not in memory.leases]
        for lease in unborn:
            self.refused(StaleLease, lambda lease=lease: self.cache.release(lease))  # type: ignore[misc]
        for name, handle in self.requests.items():
            if name not in memory.requests:
                self.refused(StaleLease, handle.abort)
        numbers = self.model.next_lock
        self.model = memory.model.copy()
        self.model.next_lock = numbers
        self.leases, self.requests = dict(memory.leases), dict(memory.requests)

    def begin(self, pick: Pick) -> None:
        if len(self.stack) >= MOST_DEPTH:
            return
        start = self.remember()
        context = self.cache.transaction(f"step{len(self.stack)}")
        self.stack.append(Open(context, context.__enter__(), start, []))

    def savepoint(self, pick: Pick) -> None:
        if self.stack:
            top = self.stack[-1]
            top.savepoints.append(self.remember(top.transaction.savepoint()))

    def rollback(self, pick: Pick) -> None:
        if not self.stack:
            return
        top = self.stack[-1]
        which = pick(len(top.savepoints) + 1)
        if which == len(top.savepoints):
            top.transaction.rollback(reason="all of it")
            top.savepoints = []
            self.recall(top.start)
        else:
            memory = top.savepoints[which]
            top.savepoints = top.savepoints[: which + 1]
            top.transaction.rollback(memory.savepoint, reason="to a savepoint")
            self.recall(memory)

    def end(self, pick: Pick) -> None:
        if not self.stack:
            return
        top = self.stack.pop()
        if pick(3):
            top.context.__exit__(None, None, None)
            return
        boom = Boom("on purpose")
        assert not top.context.__exit__(Boom, boom, None)
        self.recall(top.start)

    def checkpoint(self, pick: Pick) -> None:
        if self.stack:
            self.refused(TransactionError, self.cache.checkpoint)
        else:
            assert self.cache.checkpoint() == self.cache.digest()

    def reset(self, pick: Pick) -> None:
        if pick(4):
            return
        if self.stack:
            self.refused(TransactionError, self.cache.reset)
            return
        self.cache.reset()
        for lease in self.leases.values():
            self.cache.release(lease)
        for name in self.model.requests:
            self.refused(StaleLease, self.requests[name].slide)
        self.model.forget()
        self.leases, self.requests = {}, {}

    def close(self) -> None:
        """End what is open and let the audit read the whole journal."""
        while self.stack:
            self.end(lambda limit: limit - 1)
        self.compare()
        self.witness.verdict()


STEPS: tuple[str, ...] = (
    *("alloc", "free", "free_swa", "insert", "insert", "insert", "evict", "evict"),
    *("acquire", "acquire", "release", "release", "release_swa", "lock_and_lose", "contend", "contend"),
    *("insert_after", "insert_after", "advance", "advance", "advance", "bury", "bury"),
    *("open", "serve", "serve", "serve", "extend", "extend", "computed", "computed", "append"),
    *("commit", "commit", "commit", "slide", "slide", "refresh", "finish", "finish", "abort", "retract"),
    *("begin", "savepoint", "rollback", "end", "end", "checkpoint", "reset"),
)
"""What a driver chooses from; a word that stands twice is twice as likely."""

__all__ = ["STEPS", "Pick", "Twin"]
