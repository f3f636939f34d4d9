"""How one field of an event reads as JSON: a writer and a strict reader for each type the vocabulary uses.

The tables are built from the type hints of the event classes, so a new event needs no code here; a field of
an unknown type is refused at import. Page arrays, checksums and token bytes are not JSON: the codec puts them
in the blob, and only their directory entry passes through here.
"""

import dataclasses
import json
import operator
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from kvledger.core import events as vocabulary
from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import Origin
from kvledger.core.ids import NAME_CHARACTERS, RequestId

Write = Callable[[Any], str]
Read = Callable[[Any], Any]

INT64 = range(-(2**63), 2**63)

REQUEST_FIELDS = ("request_id", "owner")
"""The fields that name the request an event is about; no event has both."""

FREE_TEXTS = ("reason", "error")
"""Fields that may quote whatever an exception says, half a surrogate pair included; no other text has one."""

MAX_NESTING = 32
"""Lists and objects within one another in a JSON field: a configuration has three, and what is nested by the
hundred can be read or written at one place and not at another, by how deep the calls are there."""

NAMES_KEPT = 4_096
"""Names of requests that are known to be sound: one request has many events."""

_digits: Write = int.__repr__
_text: Write = json.encoder.encode_basestring_ascii
_document: Write = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


class FieldForm(NamedTuple):
    """How a field is stored. `place` says whether its bulk goes to the blob, `kind` is its values' type.

    `write` takes whatever the field may hold and refuses the rest.
    """

    name: str
    kind: Any
    optional: bool
    place: Literal["json", "pages", "tokens", "sums"]
    write: Write
    read: Read


def canonical_json(value: Any) -> str:
    """The one JSON text of `value`: keys sorted, no blanks, ASCII only.

    JournalError if there is none, or it is nested more than `MAX_NESTING` deep. Cost: O(values).
    """
    level = [value]
    for _ in range(MAX_NESTING + 1):
        level = [inner for item in level if isinstance(item, dict | list | tuple) for inner in _within(item)]
        if not level:
            break
    else:
        raise JournalError(f"JSON that is nested more than {MAX_NESTING} deep is not stored")
    try:
        return _document(value)
    except (TypeError, ValueError) as error:
        raise JournalError(f"{value!r} cannot be stored as JSON: {error}") from error


def _within(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


@lru_cache(maxsize=NAMES_KEPT)
def name_fault(name: str) -> str | None:
    """Why no database's column can hold the name of a request, or None where it can."""
    if "\0" in name or len(name) > NAME_CHARACTERS:
        return f"it has a zero or over {NAME_CHARACTERS} characters"
    return None if is_unicode(name) else "it has half a surrogate pair"


def is_unicode(text: str) -> bool:
    """Whether the text can be written as UTF-8: JSON may hold halves of surrogate pairs, no cache does."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def forms_of(event_class: type) -> list[FieldForm]:
    """The stored forms of an event class's fields, in the order they are declared."""
    hints = get_type_hints(event_class, vars(vocabulary))
    return [_form(field.name, hints[field.name]) for field in dataclasses.fields(event_class)]


def _form(name: str, hint: Any) -> FieldForm:
    optional = False
    if get_origin(hint) in (Union, UnionType):
        (hint,) = [arm for arm in get_args(hint) if arm is not NoneType]
        optional = True
    hint = getattr(hint, "__supertype__", hint)
    place: Literal["json", "pages", "tokens", "sums"] = "json"
    write: Write = str
    read: Read = _accept
    if hint == vocabulary.Sums:
        place = "sums"
    elif get_origin(hint) is np.ndarray:
        place = "pages"
    elif hint is bytes:
        place = "tokens"
    else:
        write, read = _json_form(name, hint)
    if optional:
        write, read = _or_null(write), _or_none(read)
    return FieldForm(name, hint, optional, place, write, read)


def _json_form(name: str, hint: Any) -> tuple[Write, Read]:
    if hint is int:
        return _write_int, _read_int
    if hint is bool:
        return _write_bool, _read_exactly(bool)
    if hint is str:
        if name in FREE_TEXTS:
            return _text, _read_str
        return _text, _read_name if name in REQUEST_FIELDS else _read_text
    if hint is Origin:
        return _write_origin, _read_origin
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _write_enum(hint), _read_enum(hint)
    if get_origin(hint) is tuple and get_args(hint)[1:] == (Ellipsis,):
        item = get_args(hint)[0]
        if item == vocabulary.TokenRange:
            return _write_ranges, _read_ranges
        if getattr(item, "__supertype__", item) is int:
            return _write_ints, _read_ints
    if get_origin(hint) is dict and get_args(hint)[0] is str:
        return canonical_json, _read_counters if get_args(hint)[1] is int else _read_document
    raise TypeError(f"the journal has no stored form for fields of type {hint!r}")


def _or_null(write: Write) -> Write:
    return lambda value: "null" if value is None else write(value)


def _or_none(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _accept(value: Any) -> Any:
    return value


def _write_int(value: Any) -> str:
    # operator.index lets numpy's integers through and refuses a float, which "%d" would cut.
    return _digits(operator.index(value))


def _write_bool(value: Any) -> str:
    return "true" if value else "false"


def _write_enum(kind: type[StrEnum]) -> Write:
    texts = {member.value: _text(member.value) for member in kind}

    def write(value: Any) -> str:
        try:
            return texts[value]
        except KeyError:
            raise ValueError(f"{value!r} is no {kind.__name__}") from None

    return write


def _write_ints(value: Any) -> str:
    try:
        # A plain int's repr refuses everything else, and a whole tuple is one call.
        return f"[{','.join(map(_digits, value))}]"
    except TypeError:
        return f"[{','.join(map(_write_int, value))}]"


def _write_ranges(value: Any) -> str:
    return f"[{','.join([f'[{_write_int(start)},{_write_int(end)}]' for start, end in value])}]"


def _write_origin(value: Any) -> str:
    request = value.request_id
    return f"[{'null' if request is None else _text(request)},{_write_int(value.epoch)}]"


def _read_int(value: Any) -> int:
    if type(value) is not int or value not in INT64:
        raise JournalFormatError(f"{value!r} stands where a 64-bit integer belongs")
    return value


def _read_exactly(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise JournalFormatError(f"{value!r} stands where a {kind.__name__} belongs")
        return value

    return read


_read_str = _read_exactly(str)


def _read_text(value: Any) -> str:
    text: str = _read_str(value)
    if not is_unicode(text):
        raise JournalFormatError(f"{text!r:.80} is no text: it has half a surrogate pair")
    return text


def _read_name(value: Any) -> str:
    name: str = _read_str(value)
    fault = name_fault(name)
    if fault is not None:
        raise JournalFormatError(f"{name!r:.80} is no name of a request: {fault}")
    return name


def _read_document(value: Any) -> dict[str, Any]:
    """What `canonical_json` can write again: JSON's own grammar knows NaN and any depth here."""
    if type(value) is not dict:
        raise JournalFormatError(f"{value!r:.80} stands where a dict belongs")
    try:
        canonical_json(value)
    except JournalError as error:
        raise JournalFormatError(f"what stands where an object belongs was never stored: {error}") from error
    return value


def _read_enum(kind: type[StrEnum]) -> Read:
    members = {member.value: member for member in kind}

    def read(value: Any) -> Any:
        member = members.get(value) if type(value) is str else None
        if member is None:
            raise JournalFormatError(f"{value!r} is no {kind.__name__}: it is one of {', '.join(members)}")
        return member

    return read


def _read_ints(value: Any) -> tuple[int, ...]:
    return tuple([_read_int(item) for item in _items(value)])


def _read_ranges(value: Any) -> tuple[tuple[int, int], ...]:
    ranges = []
    for item in _items(value):
        if type(item) is not list or len(item) != 2:
            raise JournalFormatError(f"{item!r} stands where a range [start, end] belongs")
        ranges.append((_read_int(item[0]), _read_int(item[1])))
    return tuple(ranges)


def _read_origin(value: Any) -> Origin:
    if type(value) is not list or len(value) != 2 or not (value[0] is None or _is_text(value[0])):
        raise JournalFormatError(f"{value!r} stands where an origin [request or null, epoch] belongs")
    return Origin(None if value[0] is None else RequestId(value[0]), _read_int(value[1]))


def _is_text(value: Any) -> bool:
    return type(value) is str and is_unicode(value)


def _read_counters(value: Any) -> dict[str, int]:
    if type(value) is not dict:
        raise JournalFormatError(f"{value!r} stands where an object of counters belongs")
    return {name: _read_int(count) for name, count in value.items()}


def _items(value: Any) -> list[Any]:
    if type(value) is not list:
        raise JournalFormatError(f"{value!r} stands where a list belongs")
    return value
