"""Transactions from the flat lists that they were handed over as, and the one way that any of them can go.

It is compiled with the core where that is (hatch_build.py).
"""

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvledger.core.errors import JournalError
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.apart.packed import Batch, expanded
from kvledger.journal.apart.plans import (
    BOOL,
    CHOICE,
    INT,
    ORIGIN,
    PAGE_ARRAY,
    SUM_ARRAY,
    TEXT,
    TOKENS,
    Field,
    Plan,
)


def add(batch: Batch, record: TransactionRecord, time_us: int, duration_us: int | None) -> None:
    """Add a transaction of whatever it may consist. Raises JournalError for what cannot even be pickled, or
    is larger than a frame can say."""
    if not batch.add(record, time_us, duration_us):
        pickled = _pickled(record, time_us, duration_us)
        try:
            batch.add_pickled(pickled, len(record.events))
        except OverflowError as error:
            raise JournalError(
                f"a transaction cannot be handed to the process that stores it: {error}"
            ) from error


def _pickled(record: TransactionRecord, time_us: int, duration_us: int | None) -> bytes:
    """Pickled, it needs no exact types, and what is wrong is said."""
    try:
        return pickle.dumps((record, time_us, duration_us), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise JournalError(
            f"a transaction cannot be handed to the process that stores it: {error}"
        ) from error


def rebuild(
    transactions: list[Any], plans: Sequence[Plan]
) -> list[tuple[TransactionRecord, int, int | None]]:
    """What a batch was given; `plans` by their numbers."""
    return [
        pickle.loads(values) if type(values) is bytes else _rebuilt(values, plans) for values in transactions
    ]


def _rebuilt(values: list[Any], plans: Sequence[Plan]) -> tuple[TransactionRecord, int, int | None]:
    at = 8
    events: list[Any] = []
    while at < len(values):
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
                parts.append(_rebuilt_field(value, field))
        events.append(plan.event_class(*parts))
    record = TransactionRecord(values[0], values[1], events, bytearray(values[3]), values[4], values[2])
    return record, values[5], values[6]


def _rebuilt_field(value: Any, field: Field) -> Any:
    way = field.way
    if value is None or way in (INT, TEXT, BOOL, TOKENS):
        return value
    if way == PAGE_ARRAY:
        return np.frombuffer(value if type(value) is bytes else expanded(value[0]), field.dtype)
    if way == SUM_ARRAY:
        return np.frombuffer(value, field.dtype)
    if way == CHOICE:
        return field.choices[value]
    return pickle.loads(value) if type(value) is bytes else value
