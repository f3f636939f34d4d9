"""Steps on journal and store: written late or at once, failing for a while or for good, killed."""

from kvledger.core.errors import JournalError
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.steps_transactions import TransactionSteps
from kvledger.tools.torture.sim.store import WAYS


class JournalSteps(TransactionSteps):
    """Each step returns whether it found something to work on."""

    def write(self, dice: Dice) -> bool:
        """Let the recorder's writer store a batch or two."""
        self.remember()
        steps = 1 + dice.below(3)
        self.say("let the writer take", steps, "batches")
        return any([self.recording.step() for _ in range(steps)])

    def flush(self, dice: Dice) -> bool:
        """The end of a scheduler's step."""
        self.say("flush")
        self.remember()
        try:
            self.recording.flush()
        except JournalError as error:
            if not self.recording.failed:
                raise
            self.tally["fault: refused by a failed recorder"] += 1
            self.say(f"({error})")
        return True

    def store_fails(self, dice: Dice) -> bool:
        """The store fails from now on: a few times, or until somebody mends it."""
        failing = self.store.failing
        if failing.on:
            return False
        failing.way = dice.choose(WAYS)
        failing.times = -1 if failing.way == "begin" and dice.one_in(2) else 1 + dice.below(3)
        self.say(f"the store fails {failing.times} times: {failing.way}")
        self.tally[f"fault: store, {failing.way}"] += 1
        return True

    def store_heals(self, dice: Dice) -> bool:
        """Somebody mends the store."""
        if not self.store.failing.on:
            return False
        self.say("the store is mended")
        self.store.failing.heal()
        return True

    def crash(self, dice: Dice) -> bool:
        """The process is killed; what is on disk is replayed and audited, and a new process begins."""
        self.say("crash and begin anew")
        self.recording.kill()
        self.tally["crashes"] += 1
        self.count_cache()
        self.start()
        return True

    def restart_after_failure(self) -> None:
        """A recorder that has failed stores nothing more: the scheduler has to begin anew."""
        self.say("begin anew after the recorder failed")
        self.recording.kill()
        self.tally["restarts after a failed recorder"] += 1
        self.count_cache()
        self.start()

    def count_cache(self) -> None:
        """Add up what the cache of this run counted."""
        told = self.cache.stats()
        for name in COUNTED:
            self.tally[COUNTED[name]] += getattr(told, name)


COUNTED = {
    "hit_tokens": "tokens reused",
    "evicted_full_tokens": "Full tokens evicted",
    "evicted_swa_tokens": "SWA tokens evicted",
    "tombstones": "tombstones",
    "recoveries": "recoveries",
    "recoveries_locked": "recoveries under a Full lock",
    "rollbacks": "rollbacks",
    "anomalies": "anomalies",
    "skipped": "skipped parts of commits",
    "resets": "resets",
}
"""Counters of the cache, and what a summary calls them."""
