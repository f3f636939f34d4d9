"""Questions to the cache of a scheduler of `transformers`."""

from kvledger.tools.embed.transformers import SharedPrefixes


def idle(ledger: SharedPrefixes) -> bool:
    """Whether nobody holds or locks anything, as when every request has left."""
    with ledger.cache() as cache:
        sizes = cache.sizes()
    return not any((sizes.full.held, sizes.full.protected, sizes.swa.held, sizes.swa.protected))
