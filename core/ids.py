"""Names for the integers and strings that must not be confused with one another."""

from typing import Final, NewType

NodeId = NewType("NodeId", int)
"""A radix-tree node, unique for the life of a cache; never reused, also not after a rollback."""

LeaseId = NewType("LeaseId", int)
"""The receipt of one lock, unique for the life of a cache."""

PageId = NewType("PageId", int)
"""A page of one pool, 1-based; page 0 is padding and means "none" in a mapping."""

RequestId = NewType("RequestId", str)
"""The scheduler's own name for a request, unique among its open ones."""

Seq = NewType("Seq", int)
"""Position of an event in a journal: dense, starting at 1."""

TxnId = NewType("TxnId", int)
"""Number of a transaction in a journal: dense, starting at 1."""

NAME_CHARACTERS: Final = 512
"""Longest name of a request: journals index it, PostgreSQL indexes at most 2,704 bytes of a
row, and a character takes up to four."""
