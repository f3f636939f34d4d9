"""The cache: a radix tree over two KV pools in which every change is an event of a transaction."""

from kvledger.core import changes
from kvledger.core.cache import HybridCache
from kvledger.core.config import CacheConfig, KVLayout
from kvledger.core.errors import (
    CacheError,
    DoubleFree,
    ForeignSlots,
    InvalidArgument,
    InvariantViolation,
    JournalError,
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
from kvledger.core.sinks import EventSink, MemorySink, TransactionRecord
from kvledger.core.transaction import Savepoint, Transaction

__all__ = [
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
