"""One field of one event changed, as somebody would who wants a journal to say something else."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

import numpy as np

from kvledger.core.events import Origin
from kvledger.core.ids import NodeId, RequestId
from kvledger.journal.records import StoredTransaction

Journal = list[StoredTransaction]

INSTEAD_OF_NONE: dict[str, Any] = {
    "parent": NodeId(1),
    "lease": 1,
    "request_id": RequestId("r1"),
    "owner": RequestId("r0"),
    "row_start": 0,
    "node": NodeId(1),
    "swa_pages": np.array([1], np.int32),
    "parent_stamp": 5,
    "swa_origin": Origin(None, 1),
    "swa_sums": np.array([1], np.uint64),
}
"""What an optional field says after an edit that found it empty."""


@dataclass(frozen=True)
class Place:
    """Where one live event stands: which journal of several, which transaction, which event of it."""

    journal: int
    transaction: int
    event: int


def live_events(journals: Iterable[Journal]) -> Iterator[tuple[type, Place]]:
    """Every event that was not undone, by type."""
    for number, journal in enumerate(journals):
        for at, transaction in enumerate(journal):
            for ordinal, stored in enumerate(transaction.events):
                if not stored.undone:
                    yield type(stored.event), Place(number, at, ordinal)


def fields_of(kind: type) -> list[str]:
    """The fields of an event type."""
    return [field.name for field in fields(kind)]


def with_field(journal: Journal, place: Place, name: str, value: Any) -> Journal:
    """The journal with one field of one event replaced."""
    transaction = journal[place.transaction]
    events = list(transaction.events)
    stored = events[place.event]
    events[place.event] = replace(stored, event=replace(stored.event, **{name: value}))
    changed = list(journal)
    changed[place.transaction] = replace(transaction, events=tuple(events))
    return changed


def other_value(value: Any, name: str, chance: random.Random, *, page: int) -> Any:
    """Another value of the same type, near the old one: lies that are far off are found sooner."""
    if value is None:
        return INSTEAD_OF_NONE[name]
    for kind, other in _OTHERS:
        if isinstance(value, kind):
            return other(value, chance, page)
    raise TypeError(f"no edit is known for a {type(value).__name__}")


def _other_number(value: int, chance: random.Random, page: int) -> int:
    return int(value) + chance.choice([1, -1, page, -page, 7 * page])


def _other_array(value: Any, chance: random.Random, page: int) -> Any:
    if not len(value):
        return np.array([1], value.dtype)
    how = chance.randrange(3)
    if how == 0:
        return value[:-1]
    changed, at = value.copy(), chance.randrange(len(value))
    if how == 1 and value[at] != value[at - 1]:
        changed[[at, at - 1]] = value[[at - 1, at]]
    else:
        # Checksums have no sign: taking one away from them is adding all ones.
        changed[at] += np.array(chance.choice([1, -1])).astype(value.dtype)
    return changed


def _other_bytes(value: bytes, chance: random.Random, page: int) -> bytes:
    changed = bytearray(value or b"\0\0\0\0")
    changed[chance.randrange(len(changed))] ^= 1
    return bytes(changed)


def _other_tuple(value: tuple[Any, ...], chance: random.Random, page: int) -> tuple[Any, ...]:
    if not value:
        return ((0, page),)
    if chance.random() < 0.5:
        return value[:-1]
    first = value[0]
    return ((first[0] + page, first[1]) if isinstance(first, tuple) else first + 1, *value[1:])


def _other_origin(value: Origin, chance: random.Random, page: int) -> Origin:
    if chance.random() < 0.5:
        return Origin(RequestId("somebody else"), value.epoch)
    return Origin(value.request_id, value.epoch + chance.choice([1, -1]))


def _other_mapping(value: dict[str, Any], chance: random.Random, page: int) -> dict[str, Any]:
    name = chance.choice(sorted(value))
    return {**value, name: value[name] + 1 if isinstance(value[name], int) else None}


def _other_member(value: StrEnum, chance: random.Random, page: int) -> StrEnum:
    return chance.choice([member for member in type(value) if member is not value])


_OTHERS: list[tuple[Any, Callable[[Any, random.Random, int], Any]]] = [
    (bool, lambda value, chance, page: not value),
    (StrEnum, _other_member),
    (int | np.integer, _other_number),
    (np.ndarray, _other_array),
    (str, lambda value, chance, page: value + "x"),
    (bytes, _other_bytes),
    (tuple, _other_tuple),
    (Origin, _other_origin),
    (dict, _other_mapping),
]
"""By type of value, most special first: how to lie about it."""
