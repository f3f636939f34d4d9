"""Transactions as bytes, on their way from a recorder to the process that stores them.

Both ends are the same program, started by one another, and nothing of this is ever stored: so the form is the
interpreter's own. Making it is what recording costs the scheduler's thread, so each class of events has a
function, compiled from its fields, that makes a flat tuple of an event, tests the exact types that a cache
uses, and copies arrays as they are; `marshal` does the rest. Where one value is of another type the batch
goes as `pickle` has it, which knows any, and what can be stored is for the encoder at the other end to say.

A frame is its length and its form, `HEADER`, and so many bytes.
"""

import marshal
import pickle
import struct
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, get_origin

import numpy as np

from kvledger.core.errors import JournalError
from kvledger.core.events import EVENTS, Origin, Pages
from kvledger.core.ids import RequestId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.arrays import PackedArray, pack_alone, quick_array
from kvledger.journal.encoders import compiled
from kvledger.journal.fields import FieldForm, forms_of
from kvledger.journal.rows import Submission

HEADER = struct.Struct("<QB")
"""Bytes that follow, and their form."""

PLAIN: Final = 1
PICKLED: Final = 2
ORDERS: Final = 3
"""What shall be recorded, and where: the first frame."""
FLUSH: Final = 4
"""A number: store what came before it now, without waiting for more, and note the number on the board."""
END: Final = 5
"""Nothing comes after it, whoever may still hold the pipe open."""
NUMBER = struct.Struct("<q")

FEW_PAGES = 1_024
"""Up to so many are copied as they are."""

_INT = frozenset((int,))
_INT64 = np.dtype(np.int64)
_UINT64 = np.dtype(np.uint64)


class _OtherTypeError(TypeError):
    """A value is of a type that a plain frame has no place for."""


def pack(batch: Sequence[Submission]) -> bytes:
    """One frame of these transactions, copied: what they hold may change afterwards.

    Raises JournalError for what cannot even be pickled. Cost: two to four microseconds for each event, and
    two passes over the bytes.
    """
    try:
        return frame(PLAIN, marshal.dumps([_taken(item) for item in batch]))
    except Exception:
        # The other way does without exact types, and says what is wrong.
        return _pickled(batch)


def _pickled(batch: Sequence[Submission]) -> bytes:
    try:
        return frame(PICKLED, pickle.dumps(list(batch), protocol=pickle.HIGHEST_PROTOCOL))
    except Exception as error:
        raise JournalError(
            f"a transaction cannot be handed to the process that stores it: {error}"
        ) from error


def unpack(form: int, body: bytes) -> list[Submission]:
    """The transactions in a frame of `form` PLAIN or PICKLED; arrays are read-only."""
    if form == PICKLED:
        pickled: list[Submission] = pickle.loads(body)
        return pickled
    return [_made(*parts) for parts in marshal.loads(body)]


def _made(
    op: str,
    request_id: RequestId | None,
    undone: bytes,
    rolled_back: bool,
    reason: str,
    time_us: int,
    duration_us: int | None,
    events: list[tuple[Any, ...]],
) -> Submission:
    built = [_BUILD[parts[0]](*parts) for parts in events]
    record = TransactionRecord(op, request_id, built, bytearray(undone), rolled_back, reason)
    return Submission(record, time_us, duration_us)


def frame(form: int, body: bytes) -> bytes:
    """`body` with its header."""
    return HEADER.pack(len(body), form) + body


def _taken(item: Submission) -> tuple[Any, ...]:
    record, time_us, duration_us = item
    undone: object = record.undone
    rolled_back: object = record.rolled_back
    if type(undone) is not bytearray or type(rolled_back) is not bool:
        raise _OtherTypeError
    op, reason = _text(record.op), _text(record.reason)
    request_id = None if record.request_id is None else _text(record.request_id)
    events = [_TAKE.get(type(event), _refuse)(event) for event in record.events]
    return op, request_id, undone, rolled_back, reason, time_us, duration_us, events


def _text(value: object) -> str:
    """A text as one of the exact type: a class of the caller's own need not be known at the other end."""
    if type(value) is str:
        return value
    if not isinstance(value, str):
        raise _OtherTypeError
    return str.__str__(value)


def _refuse(event: Any) -> tuple[Any, ...]:
    raise _OtherTypeError


def _cell(form: FieldForm, known: dict[str, Any]) -> tuple[str, str, str]:
    """Of a field: the test of its exact type, what it is in the tuple, and how it is made again."""
    name, kind = form.name, form.kind
    if form.place in ("pages", "sums"):
        dtype = "_int64" if form.place == "pages" else "_uint64"
        test = f"type({name}) is _array and {name}.dtype is {dtype} and {name}.ndim == 1"
        cell, made = f"{name}.tobytes()", f"_of_bytes({name}, {dtype})"
        if form.place == "pages":
            cell = f"({cell} if len({name}) <= {FEW_PAGES} else _shortened({name}))"
            made = f"({made} if type({name}) is bytes else _lengthened(*{name}))"
    elif form.place == "tokens":
        test, cell, made = f"type({name}) is bytes", name, name
    elif kind in (int, bool, str):
        test, cell, made = f"type({name}) is {kind.__name__}", name, name
    elif kind is Origin:
        test = f"type({name}) is _Origin and type({name}.epoch) is int"
        test += f" and ({name}.request_id is None or type({name}.request_id) is str)"
        cell, made = f"({name}.request_id, {name}.epoch)", f"_Origin(*{name})"
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        known[f"_{kind.__name__}"] = kind
        test, cell, made = f"type({name}) is _{kind.__name__}", f"{name}._value_", f"_{kind.__name__}({name})"
    else:
        base = get_origin(kind)
        # What is within may be of any type; most are empty, or the numbers of nodes.
        test = f"type({name}) is {base.__name__}"
        cell, made = (
            f"(_pickle({name}) if {name} else None)",
            f"({base.__name__}() if {name} is None else _unpickle({name}))",
        )
        if base is tuple:
            cell = f"({name} if _are_ints({name}) else _pickle({name}))"
            made = f"({name} if type({name}) is tuple else _unpickle({name}))"
    if form.optional:
        test = f"({name} is None or {test})"
        cell = f"(None if {name} is None else {cell})"
        made = f"(None if {name} is None else {made})"
    return test, cell, made


def _are_ints(values: tuple[Any, ...]) -> bool:
    return set(map(type, values)) <= _INT


def _shortened(pages: Pages) -> bytes | PackedArray:
    """Many pages, as runs where they are few: less to copy three times."""
    packed = pack_alone(pages)
    return pages.tobytes() if packed is None else packed


def _lengthened(elements: int, runs: int, data: bytes) -> Pages:
    pages, _ = quick_array(elements, runs, data, 0)
    if pages is None:
        raise JournalError(f"{elements} pages in {runs} runs came in {len(data)} bytes")
    return pages


def _compile(event_class: Any) -> tuple[Callable[[Any], tuple[Any, ...]], Callable[..., Any]]:
    """What makes a tuple of an event of this class, and an event of the tuple."""
    forms = forms_of(event_class)
    known: dict[str, Any] = {
        "_Event": event_class,
        "_Origin": Origin,
        "_OtherType": _OtherTypeError,
        "_are_ints": _are_ints,
        "_array": np.ndarray,
        "_int64": _INT64,
        "_lengthened": _lengthened,
        "_of_bytes": np.frombuffer,
        "_pickle": pickle.dumps,
        "_shortened": _shortened,
        "_uint64": _UINT64,
        "_unpickle": pickle.loads,
    }
    cells = [_cell(form, known) for form in forms]
    names = [form.name for form in forms]
    lines = [f"{name} = _event.{name}" for name in names]
    if cells:
        lines += [f"if not ({' and '.join(test for test, _, _ in cells)}):", "    raise _OtherType"]
    lines.append(f"return ({', '.join([repr(event_class.kind), *(cell for _, cell, _ in cells)])},)")
    take = compiled("take", ["_event"], lines, known)
    build = compiled(
        "build", ["_kind", *names], [f"return _Event({', '.join(made for _, _, made in cells)})"], known
    )
    return take, build


_COMPILED = {kind: _compile(event_class) for kind, event_class in EVENTS.items()}
_TAKE = {EVENTS[kind]: take for kind, (take, _) in _COMPILED.items()}
_BUILD = {kind: build for kind, (_, build) in _COMPILED.items()}
