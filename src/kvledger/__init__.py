"""kvledger: a prefix cache for the KV of hybrid-attention models, with every change in a journal.

The package is assembled from the folders at the top of the repository: `kvledger.core` (the cache),
`kvledger.journal` (events on disk, replay and audit), `kvledger.api` (inspection over HTTP),
`kvledger.tools` (the command line) and `kvledger.migrations` (the journal's schema). Importing this
module alone imports none of them.
"""

from importlib.metadata import version as _version

__version__ = _version("kvledger")
