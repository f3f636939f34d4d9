"""The cache: a radix tree over two KV pools in which every change is an event of a transaction."""

from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

from kvledger.core import changes, state
from kvledger.core.cache import HybridCache
from kvledger.core.caller_transaction import Transaction
from kvledger.core.config import CacheConfig, KVLayout
from kvledger.core.errors import (
    CacheError,
    DoubleFree,
    ForeignSlots,
    InvalidArgument,
    InvariantViolation,
    JournalError,
    KVUnreadable,
    MissingSwa,
    OutOfSlots,
    StaleLease,
    TransactionError,
    UnalignedLength,
    WrongThread,
)
from kvledger.core.pools import PageAllocator, PoolChanges
from kvledger.core.requests import Request
from kvledger.core.results import (
    Advanced,
    Committed,
    Evicted,
    Explanation,
    Inserted,
    Lease,
    Match,
    NodeView,
    PoolSizes,
    Sizes,
    Statistics,
)
from kvledger.core.sinks import BeginningListener, EventSink, MemorySink, TransactionRecord
from kvledger.core.transaction import Savepoint

COMPILED: Final = str(state.__file__).endswith(tuple(EXTENSION_SUFFIXES))
"""True where the core is the one that `hatch_build.py` compiles, False where it is interpreted."""

__all__ = [
    "COMPILED",
    "Advanced",
    "BeginningListener",
    "CacheConfig",
    "CacheError",
    "Committed",
    "DoubleFree",
    "EventSink",
    "Evicted",
    "Explanation",
    "ForeignSlots",
    "HybridCache",
    "Inserted",
    "InvalidArgument",
    "InvariantViolation",
    "JournalError",
    "KVLayout",
    "KVUnreadable",
    "Lease",
    "Match",
    "MemorySink",
    "MissingSwa",
    "NodeView",
    "OutOfSlots",
    "PageAllocator",
    "PoolChanges",
    "PoolSizes",
    "Request",
    "Savepoint",
    "Sizes",
    "StaleLease",
    "Statistics",
    "Transaction",
    "TransactionError",
    "TransactionRecord",
    "UnalignedLength",
    "WrongThread",
    "changes",
]
