"""checkpoint: replay arrives at the digest the cache wrote down; and what a reset must leave behind."""

from kvledger.core.events import CacheReset, Checkpoint
from kvledger.journal.audit.check import Check, Context


class Checkpoints(Check):
    """Compares digests, which catches any change of the cache that emitted no event."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._generation_before = 0
        self.before = {CacheReset: self._before_reset}
        self.after = {Checkpoint: self._after_checkpoint}

    def _after_checkpoint(self, event: Checkpoint, subject: None) -> None:
        self.counts["checkpoints"] += 1
        digest = self.state.digest()
        if digest == event.digest:
            self.counts["checkpoints_reproduced"] += 1
        else:
            self.findings.add(
                "checkpoint", f"the cache's digest is {event.digest[:16]}..., replay's is {digest[:16]}..."
            )

    def _before_reset(self, event: CacheReset, subject: None) -> None:
        state = self.state
        self.counts["resets"] += 1
        if state.nodes or state.leases or state.requests or event.generation != state.generation + 1:
            self.findings.add(
                "well-formed",
                f"a reset from generation {state.generation} to {event.generation} leaves "
                f"{len(state.nodes)} nodes, {len(state.leases)} leases and {len(state.requests)} requests",
            )
