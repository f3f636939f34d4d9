"""Steps on the caller's own transactions, on the whole cache, and calls that nobody should make."""

from typing import Any

from kvledger.core.errors import (
    CacheError,
    InvalidArgument,
    JournalError,
    StaleLease,
    TransactionError,
    UnalignedLength,
)
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.faults import Injected, InjectedInterrupt
from kvledger.tools.torture.sim.finding import equal
from kvledger.tools.torture.sim.ground import Known, Open
from kvledger.tools.torture.sim.steps_requests import RequestSteps

MOST_DEPTH = 3


class TransactionSteps(RequestSteps):
    """Each step returns whether it found something to work on."""

    def known(self, savepoint: Any = None) -> Known:
        """All that a rollback to here has to bring back."""
        return Known(
            self.model.copy(), dict(self.leases), dict(self.requests), self.cache.digest(), savepoint
        )

    def recall(self, known: Known) -> None:
        """After a rollback: all is as it was, and what was born meanwhile is stale."""
        equal(self.cache.digest(), known.digest, "rollback", "the digest after a rollback")
        for number, lease in self.leases.items():
            if number not in known.leases:
                self.refused(StaleLease, lambda lease=lease: self.cache.release(lease))  # type: ignore[misc]
        for name, handle in self.requests.items():
            if name not in known.requests:
                self.refused(StaleLease, handle.abort)
        numbers = self.model.next_lock
        self.model = known.model.copy()
        self.model.next_lock = numbers
        self.leases, self.requests = dict(known.leases), dict(known.requests)
        self.tally["rollbacks by the caller"] += 1

    def begin(self, dice: Dice) -> bool:
        """Open a transaction, or one inside the one that is open."""
        if len(self.stack) >= MOST_DEPTH:
            return False
        self.say("begin a transaction")
        start = self.known()
        context = self.cache.transaction(f"step {len(self.stack)}")
        self.stack.append(Open(context, self.call(context.__enter__), start, []))
        return True

    def savepoint(self, dice: Dice) -> bool:
        """Make a savepoint."""
        if not self.stack:
            return False
        self.say("make a savepoint")
        top = self.stack[-1]
        top.savepoints.append(self.known(top.transaction.savepoint()))
        return True

    def rollback(self, dice: Dice) -> bool:
        """Go back to a savepoint, or to the beginning."""
        if not self.stack:
            return False
        top = self.stack[-1]
        which = dice.below(len(top.savepoints) + 1)
        if which == len(top.savepoints):
            self.say("roll the transaction back")
            self.call(top.transaction.rollback, reason="all of it")
            top.savepoints = []
            self.recall(top.start)
        else:
            self.say("roll back to savepoint", which)
            known = top.savepoints[which]
            self.call(top.transaction.rollback, known.savepoint, reason="to a savepoint")
            top.savepoints = top.savepoints[: which + 1]
            self.recall(known)
        return True

    def end(self, dice: Dice) -> bool:
        """End the innermost transaction: two times in three well."""
        if not self.stack:
            return False
        self.leave(well=dice.below(3) > 0)
        return True

    def leave(self, *, well: bool) -> None:
        """Leave the innermost transaction, well or by an exception."""
        top = self.stack.pop()
        self.say("end the transaction" if well else "leave the transaction by an exception")
        try:
            if well:
                with self.trap.armed(self.fault):
                    top.context.__exit__(None, None, None)
                return
            error = Injected("on purpose")
            top.context.__exit__(Injected, error, None)
        except (Injected, InjectedInterrupt):
            if self.fault is not None:
                self.tally[f"fault: {self.fault.kind}"] += 1
            self.say(f"({self.fault})")
        except JournalError as error:
            if not self.recording.failed:
                raise
            self.tally["fault: refused by a failed recorder"] += 1
            self.say(f"({error})")
        self.recall(top.start)

    def end_all(self) -> None:
        """No transaction stays open."""
        while self.stack:
            self.leave(well=True)

    def reset(self, dice: Dice) -> bool:
        """Drop everything but raw pages."""
        self.say("reset")
        if self.stack:
            self.refused(TransactionError, self.cache.reset)
            return True
        self.call(self.cache.reset)
        leases, requests = self.leases, self.requests
        self.model.forget()
        self.leases, self.requests = {}, {}
        for lease in leases.values():
            self.call(self.cache.release, lease)
        for handle in requests.values():
            self.refused(StaleLease, handle.slide)
        for handle in requests.values():
            self.call(handle.abort)
        return True

    def misuse(self, dice: Dice) -> bool:
        """A call that cannot be right is refused and leaves nothing behind."""
        kind = dice.below(5)
        self.say("misuse", kind)
        calls: tuple[tuple[type[CacheError], Any], ...] = (
            (InvalidArgument, lambda: self.cache.match_prefix([1 << 40])),
            (InvalidArgument, lambda: self.cache.evict(full_tokens=-1)),
            (InvalidArgument, lambda: self.cache.open_request("empty", [])),
            (InvalidArgument, lambda: self.cache.node(1 << 40)),
            (UnalignedLength, lambda: self.cache.alloc(1))
            if self.page > 1
            else (InvalidArgument, lambda: self.cache.alloc(-1)),
        )
        self.refused(*calls[kind])
        return True

    def checkpoint(self, dice: Dice) -> bool:
        """The digest goes into the journal; the audit has to reproduce it."""
        self.say("checkpoint")
        if self.stack:
            self.refused(TransactionError, self.cache.checkpoint)
        else:
            equal(self.call(self.cache.checkpoint), self.cache.digest(), "digest", "a checkpoint's digest")
        return True
