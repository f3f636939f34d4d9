"""What an event of each class consists of, and which way each of its fields goes to the process that stores.

It is compiled with the core where that is (hatch_build.py), so it knows of the fields what it is told.
"""

import struct
from typing import Any, Final, final

Piece = bytes | memoryview
"""Bytes; a memoryview is one of single bytes."""

HEADER: Final = struct.Struct("<QB")
"""What each frame begins with (frames.py): how many bytes follow, and their form."""

INT: Final = 0
BOOL: Final = 1
TEXT: Final = 2
TOKENS: Final = 3
PAGE_ARRAY: Final = 4
"""An array of int32, which may go as its runs."""
SUM_ARRAY: Final = 5
"""An array of uint64, which goes as its bytes: checksums do not follow one another."""
CHOICE: Final = 6
"""A member of an enumeration of texts."""
ORIGIN: Final = 7
"""Takes two places in the list: its request and its epoch."""
NUMBERS: Final = 8
"""A tuple, of ints or of ranges most often."""
OTHER: Final = 9
"""A container of whatever it may be."""

OPTIONAL: Final = 64
"""Beside a way: it may be None."""

Packing = tuple[int, Any, bytes, tuple[Any, ...]]
"""A plan as what packs looks at it: the number of the class, its method `values`, and the way and the type or
dtype of each field."""


@final
class Field:
    """A field of an event: its name, which of the ways above it goes, and whether it may be None.

    `type` is the class of a choice, an origin or a container, `dtype` that of an array; `choices` are the
    members of the class of a choice, by their texts.
    """

    def __init__(self, name: str, way: int, optional: bool, type_: Any, dtype: Any) -> None:
        self.name: Final = name
        self.way: Final = way
        self.optional: Final = optional
        self.type: Final = type_
        self.dtype: Final = dtype
        self.choices: Final[dict[str, Any]] = dict(type_._value2member_map_) if way == CHOICE else {}


@final
class Plan:
    """What an event of one class consists of; `number` stands for the class."""

    def __init__(self, number: int, event_class: Any, fields: list[Field]) -> None:
        self.number: Final = number
        self.event_class: Final = event_class
        self.fields: Final = fields

    def packing(self) -> Packing:
        """The same for what packs."""
        ways = [field.way | (OPTIONAL if field.optional else 0) for field in self.fields]
        types = [field.dtype if field.way in (PAGE_ARRAY, SUM_ARRAY) else field.type for field in self.fields]
        return self.number, self.event_class.values, bytes(ways), tuple(types)
