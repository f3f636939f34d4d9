"""Transactions as one flat list of what `marshal` knows, and back: the innermost loop of handing over.

It is compiled with the core where that is (hatch_build.py), so it knows of the fields what it is told. What
is long is not copied: it stands aside, and its number is in its place.
"""

import pickle
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from kvledger.core.errors import JournalError
from kvledger.core.sinks import TransactionRecord

Piece = bytes | memoryview
"""Bytes; a memoryview is one of single bytes."""

INT: Final = 0
BOOL: Final = 1
TEXT: Final = 2
TOKENS: Final = 3
ARRAY: Final = 4
CHOICE: Final = 5
"""A member of an enumeration of texts."""
ORIGIN: Final = 6
"""Takes two places in the list: its request and its epoch."""
NUMBERS: Final = 7
"""A tuple, of ints or of ranges most often."""
OTHER: Final = 8
"""A container of whatever it may be."""

FEW_TOKEN_BYTES: Final = 1_024
FEW_ARRAY_BYTES: Final = 8_192
"""Up to so many bytes go the way of `marshal`: to set them aside takes longer."""

_Array: Final[Any] = np.ndarray


@final
class Field:
    """A field of an event: its name, which of the ways above it goes, and whether it may be None.

    `type` is the class of a choice, an origin or a container, `dtype` that of an array.
    """

    def __init__(self, name: str, way: int, optional: bool, type_: Any, dtype: Any) -> None:
        self.name: Final = name
        self.way: Final = way
        self.optional: Final = optional
        self.type: Final = type_
        self.dtype: Final = dtype


@final
class Plan:
    """What an event of one class consists of; `number` stands for the class."""

    def __init__(self, number: int, event_class: Any, fields: list[Field]) -> None:
        self.number: Final = number
        self.event_class: Final = event_class
        self.fields: Final = fields


@final
class Batch:
    """Transactions that wait, flat: `values` begins with the lengths of what stands `aside`.

    Each is eight values of its own and its events; one that holds anything but the exact types that belong
    there is one value, as `pickle` has it, which knows any. `count` and `events` say how many they are.
    """

    def __init__(self, plans: dict[Any, Plan]) -> None:
        self._plans: Final = plans
        self._lengths: Final[list[int]] = []
        self.values: Final[list[Any]] = [self._lengths]
        self.aside: Final[list[Piece]] = []
        self.count = 0
        self.events = 0
        self._marked_values = 1
        self._marked_aside = 0
        self._marked_count = 0
        self._marked_events = 0

    def add(self, record: TransactionRecord, time_us: int, duration_us: int | None) -> None:
        """Add a transaction, copied but for what is long: that must not change.

        All of it is added or nothing, unless it is interrupted: then `mark` is to be called before it, and
        `take_back` after it. Raises JournalError for what cannot even be pickled.
        """
        values, aside = len(self.values), len(self.aside)
        count = len(record.events)
        try:
            self._add(record, time_us, duration_us)
        except (TypeError, KeyError, AttributeError, RecursionError, pickle.PicklingError):
            # Pickled, it needs no exact types, and what is wrong is said.
            self._cut(values, aside)
            self.values.append(_pickled(record, time_us, duration_us))
        self.count += 1
        self.events += count

    def mark(self) -> None:
        """Note how far it is."""
        self._marked_values, self._marked_aside = len(self.values), len(self.aside)
        self._marked_count, self._marked_events = self.count, self.events

    def take_back(self) -> None:
        """Forget what was added since `mark`."""
        self._cut(self._marked_values, self._marked_aside)
        self.count, self.events = self._marked_count, self._marked_events

    def _cut(self, values: int, aside: int) -> None:
        del self.values[values:]
        del self.aside[aside:]
        del self._lengths[aside:]

    def _add(self, record: TransactionRecord, time_us: int, duration_us: int | None) -> None:
        undone: Any = record.undone
        rolled_back: Any = record.rolled_back
        events: Any = record.events
        if type(undone) is not bytearray or type(rolled_back) is not bool or type(events) is not list:
            raise TypeError("a transaction's marks")
        request_id: Any = record.request_id
        values = self.values
        values.append(_text(record.op))
        values.append(None if request_id is None else _text(request_id))
        values.append(_text(record.reason))
        values.append(bytes(undone))
        values.append(rolled_back)
        values.append(time_us)
        values.append(duration_us)
        values.append(len(events))
        for event in events:
            plan = self._plans[type(event)]
            values.append(plan.number)
            for at, value in enumerate(event.values()):
                self._add_field(value, plan.fields[at])

    def _add_field(self, value: Any, field: Field) -> None:
        way = field.way
        values = self.values
        if value is None and field.optional:
            values.append(None)
            if way == ORIGIN:
                values.append(None)
        elif way == INT:
            if type(value) is not int:
                raise TypeError(field.name)
            values.append(value)
        elif way == ARRAY:
            if type(value) is not _Array or value.dtype is not field.dtype or value.ndim != 1:
                raise TypeError(field.name)
            size: int = value.nbytes
            if size <= FEW_ARRAY_BYTES:
                values.append(value.tobytes())
            else:
                self._set_aside(np.ascontiguousarray(value).data.cast("B"), size)
        elif way == NUMBERS:
            if type(value) is not tuple:
                raise TypeError(field.name)
            values.append(value if _are_numbers(value) else pickle.dumps(value))
        elif way == TEXT:
            if type(value) is not str:
                raise TypeError(field.name)
            values.append(value)
        elif way == ORIGIN:
            if type(value) is not field.type:
                raise TypeError(field.name)
            request_id, epoch = value.request_id, value.epoch
            if (request_id is not None and type(request_id) is not str) or type(epoch) is not int:
                raise TypeError(field.name)
            values.append(request_id)
            values.append(epoch)
        elif way == CHOICE:
            if type(value) is not field.type:
                raise TypeError(field.name)
            values.append(value._value_)
        elif way == TOKENS:
            if type(value) is not bytes:
                raise TypeError(field.name)
            if len(value) <= FEW_TOKEN_BYTES:
                values.append(value)
            else:
                self._set_aside(value, len(value))
        elif way == BOOL:
            if type(value) is not bool:
                raise TypeError(field.name)
            values.append(value)
        else:
            if type(value) is not field.type:
                raise TypeError(field.name)
            values.append(pickle.dumps(value))

    def _set_aside(self, piece: Piece, size: int) -> None:
        self.values.append(len(self.aside))
        self.aside.append(piece)
        self._lengths.append(size)


def _pickled(record: TransactionRecord, time_us: int, duration_us: int | None) -> bytes:
    try:
        return pickle.dumps((record, time_us, duration_us), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise JournalError(
            f"a transaction cannot be handed to the process that stores it: {error}"
        ) from error


def _text(value: Any) -> str:
    """A text as one of the exact type: a class of the caller's own need not be known at the other end."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise TypeError("a transaction's text")
    return str.__str__(value)


def _are_numbers(values: tuple[Any, ...]) -> bool:
    for value in values:
        if type(value) is int:
            continue
        if type(value) is not tuple:
            return False
        for number in value:
            if type(number) is not int:
                return False
    return True


def rebuild(
    values: list[Any], aside: Sequence[bytes], plans: Sequence[Plan]
) -> list[tuple[TransactionRecord, int, int | None]]:
    """What a batch was given; `plans` by their numbers."""
    found: list[tuple[TransactionRecord, int, int | None]] = []
    at = 1
    while at < len(values):
        if type(values[at]) is bytes:
            found.append(pickle.loads(values[at]))
            at += 1
            continue
        op, request_id, reason, undone, rolled_back, time_us, duration_us, count = values[at : at + 8]
        at += 8
        events: list[Any] = []
        for _ in range(count):
            plan = plans[values[at]]
            at += 1
            parts: list[Any] = []
            for field in plan.fields:
                value = values[at]
                at += 1
                if field.way == ORIGIN:
                    epoch = values[at]
                    at += 1
                    parts.append(None if epoch is None else field.type(value, epoch))
                else:
                    parts.append(_rebuilt_field(value, field, aside))
            events.append(plan.event_class(*parts))
        record = TransactionRecord(op, request_id, events, bytearray(undone), rolled_back, reason)
        found.append((record, time_us, duration_us))
    return found


def _rebuilt_field(value: Any, field: Field, aside: Sequence[bytes]) -> Any:
    way = field.way
    if value is None or way in (INT, TEXT, BOOL):
        return value
    if way == ARRAY:
        return np.frombuffer(value if type(value) is bytes else aside[value], field.dtype)
    if way == TOKENS:
        return value if type(value) is bytes else aside[value]
    if way == CHOICE:
        return field.type(value)
    return pickle.loads(value) if type(value) is bytes else value
