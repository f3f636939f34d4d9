"""Transactions as bytes, on their way from a recorder to the process that stores them.

Both ends are the same program, started by one another, and nothing of this is ever stored: so the form is the
interpreter's own. Making it is what recording costs the scheduler's thread, so transactions become flat lists
of the exact types that a cache uses, as `marshal` reads them (packed.py). What can be stored is for the
encoder at the other end to say.

A frame is its length and its form, `HEADER`, and so many bytes; it is given in pieces.
"""

import marshal
import struct
from enum import StrEnum
from typing import Any, Final, get_origin

import numpy as np

from kvledger.core.events import EVENTS, Origin
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.apart.flat import rebuild
from kvledger.journal.apart.packed import Batch
from kvledger.journal.apart.plans import (
    BOOL,
    CHOICE,
    HEADER,
    INT,
    NUMBERS,
    ORIGIN,
    OTHER,
    PAGE_ARRAY,
    SUM_ARRAY,
    TEXT,
    TOKENS,
    Field,
    Piece,
    Plan,
)
from kvledger.journal.arrays import PAGES
from kvledger.journal.fields import FieldForm, forms_of
from kvledger.journal.rows import Submission

BATCH: Final = 1
ORDERS: Final = 2
"""What shall be recorded, and where: the first frame."""
FLUSH: Final = 3
"""A number: store what came before it now, without waiting for more, and note the number on the board."""
END: Final = 4
"""Nothing comes after it, whoever may still hold the pipe open."""
NUMBER = struct.Struct("<q")


def new_batch() -> Batch:
    """What transactions are added to, before they go together in a frame of BATCH."""
    return Batch(PACKINGS, BATCH, TransactionRecord)


def unpack(body: bytes) -> list[Submission]:
    """The transactions in a frame of BATCH; arrays are read-only."""
    return [Submission(*item) for item in rebuild(marshal.loads(body), _NUMBERED)]


def frame(form: int, *body: Piece) -> list[Piece]:
    """`body` with its header."""
    return [HEADER.pack(sum(map(len, body)), form), *body]


def _field(form: FieldForm) -> Field:
    kind = form.kind
    way, type_ = OTHER, get_origin(kind)
    dtype: np.dtype[Any] | None = None
    if form.place == "pages":
        way, dtype = PAGE_ARRAY, PAGES
    elif form.place == "sums":
        way, dtype = SUM_ARRAY, np.dtype(np.uint64)
    elif form.place == "tokens":
        way = TOKENS
    elif kind in (int, bool, str):
        way = {int: INT, bool: BOOL, str: TEXT}[kind]
    elif kind is Origin:
        way, type_ = ORIGIN, kind
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        way, type_ = CHOICE, kind
    elif type_ is tuple:
        way = NUMBERS
    return Field(form.name, way, form.optional, type_, dtype)


_NUMBERED = [
    Plan(number, event_class, [_field(form) for form in forms_of(event_class)])
    for number, event_class in enumerate(EVENTS.values())
]
PACKINGS = {plan.event_class: plan.packing() for plan in _NUMBERED}
"""What a batch is told of the classes of events."""
