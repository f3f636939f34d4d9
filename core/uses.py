"""What operations tell the order of eviction: which prefixes were asked for and published.

The ledger keeps these records until its outermost transaction commits, and a rollback takes them out again
like any change. Only then is anything learned from them (`learning`): what was learned is never undone.
"""

from typing import NamedTuple

from kvledger.core.node import Node


class Matched(NamedTuple):
    """A request matched the path that ends with `node`."""

    node: Node


class Published(NamedTuple):
    """A row brought the tokens [base, end), `pages` of them, which end in or with `node`.

    `left` is the node at whose end it left what was there, where it did; `other` the one way on from there.
    """

    node: Node
    base: int
    end: int
    pages: int
    left: Node | None
    other: Node | None


class Forgotten(NamedTuple):
    """A reset: whatever was learned before is of no use."""


Use = Matched | Published | Forgotten
