"""What must be true of a cache and its journal after every operation, whatever the operation was.

A witness holds a cache and the sink it writes to. `look()` walks the cache with `check()`, adds up the
pools, and folds what was journaled since the last look with code that shares nothing with the cache: the
two digests must be one. `verdict()` lets the audit read the whole journal.
"""

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.sinks import MemorySink
from kvledger.journal.audit import audit
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import Fold


def open_cache(
    *, page: int = 1, window: int = 4, full: int = 64, swa: int = 64, **policies: object
) -> tuple[HybridCache, MemorySink]:
    """Build a small journaled cache; sizes are tokens, the defaults those of the worked cases."""
    sink = MemorySink()
    config = CacheConfig.model_validate(
        {"page_size": page, "sliding_window": window, "full_tokens": full, "swa_tokens": swa, **policies}
    )
    return HybridCache(config, sink=sink), sink


class Witness:
    """Follows one cache from its first transaction and compares it with its journal."""

    def __init__(self, cache: HybridCache, sink: MemorySink) -> None:
        self.cache = cache
        self.sink = sink
        self.fold = Fold()
        self.folded = 0

    def look(self) -> None:
        """Compare cache, pools and journal; only between transactions, never inside one."""
        self.look_inside()
        for transaction in number_transactions(self.sink.transactions)[self.folded :]:
            self.fold.apply(transaction)
            self.folded += 1
        assert self.fold.state.digest() == self.cache.digest(), "replay and cache disagree"

    def look_inside(self) -> None:
        """Compare what can be compared while a transaction is open."""
        self.cache.check()
        sizes = self.cache.sizes()
        for name, pool in (("full", sizes.full), ("swa", sizes.swa)):
            parts = (pool.free, pool.evictable, pool.protected, pool.held)
            assert all(part >= 0 for part in parts), f"{name}: a negative size in {pool}"
            assert pool.total == sum(parts), f"{name}: {pool} does not add up"

    def verdict(self) -> None:
        """Audit everything that was journaled; the findings are the message of a failure."""
        verdict = audit(number_transactions(self.sink.transactions))
        assert verdict.verdict == "pass", "\n".join(finding.sentence for finding in verdict.findings)
