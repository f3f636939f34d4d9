"""Prefix sharing for hybrid models in the continuous batching of `transformers`, journaling on.

    from kvledger.tools.embed.transformers import shared_prefixes

    with shared_prefixes(model, full_tokens=65_536, swa_tokens=16_384, journal="run.db") as ledger:
        outputs = model.generate_batch(inputs, generation_config=generation_config)
        print(ledger.report())

`docs/embedding.md` says what is replaced, what is refused and how the calls map.
"""

from kvledger.tools.embed.transformers.report import PrefixReport
from kvledger.tools.embed.transformers.sharing import SharedPrefixes, shared_prefixes
from kvledger.tools.engine.library import UnsupportedSetup

__all__ = ["PrefixReport", "SharedPrefixes", "UnsupportedSetup", "shared_prefixes"]
