"""Steps on requests: what the usual scheduler does, one method at a time and in the usual order."""

from kvledger.core.errors import InvalidArgument, OutOfSlots, StaleLease
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.finding import equal, require
from kvledger.tools.torture.sim.ground import MOST_REQUESTS
from kvledger.tools.torture.sim.setting import in_runs
from kvledger.tools.torture.sim.steps_leases import LeaseSteps

LONGEST_PAGES = 12
"""No row grows beyond that: a model of one dictionary entry a page is slow with long ones."""


class RequestSteps(LeaseSteps):
    """Each step returns whether it found something to work on."""

    def open(self, dice: Dice) -> bool:
        """Open a request on its longest reusable prefix."""
        return self.opened(dice) is not None

    def opened(self, dice: Dice) -> str | None:
        """Open one: its name."""
        if len(self.model.requests) >= MOST_REQUESTS:
            return None
        namespace, row = self.setting.prompt(dice)
        name = f"r{self.number}"
        self.say(f"open {name} {namespace!r} {in_runs(row)}")
        self.probe(namespace, row)
        count = 1 + dice.below(8 * self.page)
        fits = self.cache.can_fit(row, count, namespace)
        handle = self.call(self.cache.open_request, name, row, namespace)
        wanted = self.model.open(name, namespace, row)
        self.requests[name] = handle
        equal(handle.prefix_len, wanted.protected, "match", f"the prefix of {name}")
        equal(self.pages(handle.slots), wanted.row, "row", f"the row of {name}")
        equal(fits, self.model.fits(self.model.pages_for(wanted, count)), "admission", "can_fit")
        return name

    def extend(self, dice: Dice) -> bool:
        """Reserve slots for some or all of the tokens that have none."""
        name = self.some_request(dice)
        if name is None:
            return False
        state = self.model.requests[name]
        left = len(state.tokens) - state.reserved
        if not left:
            return False
        self.extended(name, left if dice.below(2) else 1 + dice.below(left))
        return True

    def extended(self, name: str, count: int) -> bool:
        """Reserve slots for `count` tokens; False where there is no room."""
        self.settle()
        state, handle = self.model.requests[name], self.requests[name]
        self.say(f"extend {name} by {count}")
        needed = self.model.pages_for(state, count)
        if not self.model.fits(needed):
            self.refused(OutOfSlots, lambda: handle.extend(count))
            self.tally["no room"] += 1
            return False
        full, swa = self.model.lacking(needed)
        had = len(state.row)
        self.call(handle.extend, count)
        if full or swa:
            self.lose(full=full, swa=swa)
        slots = handle.slots_of(had * self.page, handle.reserved) if needed else self.slots([])
        self.model.extend(name, count, self.pages(slots), self.peers(slots))
        return True

    def computed(self, dice: Dice) -> bool:
        """The KV of some more tokens is there."""
        name = self.some_request(dice)
        if name is None or not self.may_compute:
            return False
        state = self.model.requests[name]
        more = state.reserved - state.computed
        self.compute(name, state.reserved if dice.below(3) else state.computed + dice.below(more + 1))
        return True

    def compute(self, name: str, upto: int) -> None:
        """A forward pass over a request's tokens up to a position."""
        state = self.model.requests[name]
        self.say(f"compute {name} up to {upto}")
        self.write_request(name, state, upto)
        self.requests[name].computed(upto)
        state.computed = max(state.computed, upto)

    def commit(self, dice: Dice) -> bool:
        """Publish some or all that is computed."""
        name = self.some_request(dice)
        if name is None:
            return False
        state, handle = self.model.requests[name], self.requests[name]
        upto = None if dice.below(3) else dice.below(state.computed + 1)
        if dice.one_in(4) and handle.branch_len <= state.computed:
            upto = handle.branch_len
        self.committed(name, upto)
        return True

    def committed(self, name: str, upto: int | None) -> None:
        """Publish up to a position; None: all."""
        state, handle = self.model.requests[name], self.requests[name]
        self.say(f"commit {name} up to {'all' if upto is None else upto}")
        length = self.model.commit_length(state, upto)
        if length > state.protected and self.model.too_close(state, length):
            self.refused(InvalidArgument, lambda: handle.commit(upto))
            return
        trial = self.model.copy()
        wanted = trial.commit(name, upto)
        found = self.call(handle.commit, upto)
        self.model = trial
        equal(
            (found.length, list(found.row_changed), found.refused),
            wanted,
            "insert-match",
            f"commit of {name}",
        )
        equal(self.pages(handle.slots), trial.requests[name].row, "row", f"the row of {name}")
        self.tally["tokens refused by a commit"] += found.refused
        self.tally["rows changed by a commit"] += bool(found.row_changed)

    def append(self, dice: Dice) -> bool:
        """A token or a page of them is generated."""
        name = self.some_request(dice, waiting=dice.one_in(4))
        return name is not None and self.appended(name, [dice.below(2)] * (1 + dice.below(self.page)))

    def appended(self, name: str, tokens: list[int]) -> bool:
        """Add tokens to a request, unless it is long enough."""
        state = self.model.requests[name]
        if len(state.tokens) > LONGEST_PAGES * self.page:
            return False
        self.say(f"append {in_runs(tokens)} to {name}")
        self.call(self.requests[name].append, tokens)
        state.tokens.extend(tokens)
        return True

    def slide(self, dice: Dice) -> bool:
        """Give back what left the window."""
        name = self.some_request(dice)
        if name is not None:
            self.slid(name)
        return name is not None

    def slid(self, name: str) -> None:
        """Give back what left one request's window."""
        self.say("slide", name)
        trial = self.model.copy()
        wanted = trial.slide(name)
        equal(self.call(self.requests[name].slide), wanted, "window", f"the tokens that {name} gave back")
        self.model = trial

    def refresh(self, dice: Dice) -> bool:
        """Match a request again that waits, or one that may not."""
        name = self.some_request(dice, waiting=dice.below(3) > 0)
        if name is None:
            return False
        state, handle = self.model.requests[name], self.requests[name]
        self.say("refresh", name)
        if self.model.own_pages(state):
            self.refused(InvalidArgument, handle.refresh)
            return True
        self.call(handle.refresh)
        self.model.refresh(name)
        equal(handle.prefix_len, state.protected, "match", f"the prefix of {name}")
        equal(self.pages(handle.slots), state.row, "row", f"the row of {name}")
        return True

    def finish(self, dice: Dice) -> bool:
        """A request ends and publishes what it computed."""
        name = self.some_request(dice, waiting=dice.one_in(6))
        if name is not None:
            self.ended(name, publish=True)
        return name is not None

    def abort(self, dice: Dice) -> bool:
        """A request ends and publishes nothing."""
        name = self.some_request(dice, waiting=dice.one_in(6))
        if name is not None:
            self.ended(name, publish=False)
        return name is not None

    def ended(self, name: str, *, publish: bool) -> None:
        """One request ends."""
        handle = self.requests[name]
        self.say("finish" if publish else "abort", name)
        self.call(handle.finish if publish else handle.abort)
        self.model.leave(name, publish=publish)
        del self.requests[name]
        self.tally["requests finished" if publish else "requests aborted"] += 1
        if self.number % 4 == 0:
            self.refused(StaleLease, handle.slide)

    def retract(self, dice: Dice) -> bool:
        """A request gives its slots back and waits."""
        name = self.some_request(dice)
        if name is not None:
            self.retracted(name)
        return name is not None

    def retracted(self, name: str) -> None:
        """One request gives its slots back and waits."""
        self.say("retract", name)
        self.call(self.requests[name].retract)
        self.model.leave(name, publish=True, wait=True)
        require(self.requests[name].waiting, "retract", f"{name} does not wait")
        self.tally["retractions"] += 1

    # Whole stories, so that states worth trying come up often enough.

    def serve(self, dice: Dice) -> bool:
        """A request from its prompt to all its KV, published."""
        name = self.opened(dice)
        if name is None:
            return False
        state = self.model.requests[name]
        if not self.extended(name, len(state.tokens) - state.reserved):
            if dice.below(4):
                self.ended(name, publish=False)
            return True
        if self.may_compute:
            self.compute(name, len(state.tokens))
            if dice.below(3):
                self.committed(name, None)
        return True

    def decode(self, dice: Dice) -> bool:
        """Some steps of a request: a token, its slot, its KV, and what left the window."""
        name = self.some_request(dice)
        if name is None or not self.may_compute:
            return False
        for _ in range(1 + dice.below(3)):
            state = self.model.requests[name]
            if state.reserved == len(state.tokens) and not self.appended(name, [dice.below(2)]):
                break
            if not self.extended(name, len(self.model.requests[name].tokens) - state.reserved):
                if dice.below(2):
                    self.retracted(name)
                break
            self.compute(name, self.model.requests[name].reserved)
            self.slid(name)
        return True

    def contend(self, dice: Dice) -> bool:
        """Somebody publishes what a request has computed, locks it and loses SWA of it, before it commits."""
        name = self.some_request(dice)
        if name is None or not self.may_compute:
            return False
        state = self.model.requests[name]
        row = state.tokens[: self.model.floor(state.computed)]
        pages = len(row) // self.page
        if not pages or not self.model.fits_free(pages):
            return False
        self.say(f"somebody else publishes the first {len(row)} tokens of {name}")
        slots = self.call(self.cache.alloc, len(row))
        self.model.take(self.pages(slots), self.peers(slots), None)
        self.write_raw(state.namespace, row, 0, self.pages(slots))
        self.call(self.cache.insert, row, slots, state.namespace)
        self.model.insert(state.namespace, row, self.pages(slots), protected=0, dead=0)
        self.lock_parts(state.namespace, row, dice.below(pages + 1) * self.page)
        self.press(0, 1 + dice.below(12))
        if dice.below(2):
            self.committed(name, None)
        return True
