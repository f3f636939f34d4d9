"""How the stored cells of one class become an event: for each class a function, compiled at import.

The counterpart of encoders.py. Nearly all that is read was written by this program and is sound; for that
each class gets straight code, which tests every value as strictly as the careful way does but says nothing of
what is wrong: where a test fails it gives None, and the careful way (codec.py) finds the words, or reads what
only it can. So nothing is taken here that would be refused there.

Nothing of what is stored becomes code: the source is made of the names of fields and classes alone.
"""

import json
import struct
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, cast, get_args, get_origin

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import Origin, TokenRange
from kvledger.core.ids import RequestId
from kvledger.journal.arrays import COUNTED, COUNTED_PAGES, ONE_VALUE, VALUE_BYTES, quick_array
from kvledger.journal.encoders import compiled, in_order
from kvledger.journal.fields import FREE_TEXTS, INT64, REQUEST_FIELDS, FieldForm, is_unicode, name_fault
from kvledger.journal.sums import quick_sums
from kvledger.journal.tokens import TOKEN_BYTES

Decode = Callable[[str, bytes], Any]
"""Takes the payload and the blob; gives the event, or None where it is not sure of it."""

scan_json: Callable[[str, int], tuple[Any, int]] = cast("Any", json.JSONDecoder()).scan_once
"""Reads one JSON value at a place of a text; `json.loads` does the same and then twice as much around it."""


UNSURE = (
    StopIteration,
    KeyError,
    TypeError,
    ValueError,
    RecursionError,
    struct.error,
    JournalFormatError,
)
"""What a quick decoder may raise where it is not sure."""

ORIGINS_KEPT = 4_096
"""Origins that are remembered: the nodes of one request all have the same."""


@lru_cache(maxsize=ORIGINS_KEPT)
def origin(owner: RequestId | None, epoch: int) -> Origin:
    """The origin of these values. JournalFormatError for an owner that is no text."""
    if owner is not None and not is_unicode(owner):
        raise JournalFormatError(f"{owner!r:.80} owned no page")
    return Origin(owner, epoch)


def compile_decoder(event_class: Any, forms: Sequence[FieldForm]) -> Decode:
    """The quick decoder of an event class with these fields.

    It may raise what `UNSURE` names too where it is not sure. Cost: O(fields).
    """
    known: dict[str, Any] = {
        "_build": event_class,
        "_counted": COUNTED,
        "_is_unicode": is_unicode,
        "_name_fault": name_fault,
        "_one_value": ONE_VALUE,
        "_origin": origin,
        "_quick_array": quick_array,
        "_quick_ints": _quick_ints,
        "_quick_ranges": _quick_ranges,
        "_quick_sums": quick_sums,
        "_scan": scan_json,
    }
    bulk = any(form.place != "json" for form in forms)
    lines = [
        "_stored, _end = _scan(_payload, 0)",
        "if _end != len(_payload) or type(_stored) is not dict or type(_blob) is not bytes: return None",
        f"if len(_stored) != {len(forms)}: return None",
    ]
    lines += ["_at = 0"] if bulk else ["if _blob: return None"]
    for form in in_order(forms):
        lines.append(f"{form.name} = _stored[{form.name!r}]")
        steps = _steps(form, known)
        if form.optional:
            steps = [f"if {form.name} is not None:", *[f"    {step}" for step in steps]]
        lines += steps
    if bulk:
        lines.append("if _at != len(_blob): return None")
    lines.append(f"return _build({', '.join(form.name for form in forms)})")
    decode: Decode = compiled("decode", ["_payload", "_blob"], lines, known)
    return decode


def _steps(form: FieldForm, known: dict[str, Any]) -> list[str]:
    """Lines that test the value of a field that is there, and make of it what the event holds."""
    value, kind = form.name, form.kind
    if form.place == "pages":
        # Of what JSON knows only a list has two numbers in it. An array of one page is so frequent that the
        # call for it counts.
        return [
            f"_elements, _runs = {value}",
            "if type(_elements) is not int or type(_runs) is not int: return None",
            "_page = _one_value(_blob, _at)[0] if _elements == 1 and not _runs else -1",
            f"if 0 <= _page < {COUNTED_PAGES}:",
            f"    {value} = _counted[_page : _page + 1]",
            f"    _at += {VALUE_BYTES}",
            "else:",
            f"    {value}, _at = _quick_array(_elements, _runs, _blob, _at)",
            f"    if {value} is None: return None",
        ]
    if form.place == "sums":
        return [
            f"{value}, _at = _quick_sums({value}, _blob, _at)",
            f"if {value} is None: return None",
        ]
    if form.place == "tokens":
        return [
            f"if type({value}) is not int or {value} < 0 or {value} % {TOKEN_BYTES}: return None",
            f"{value}, _at = _blob[_at : _at + {value}], _at + {value}",
        ]
    if kind is int:
        return [f"if {_no_int(value)}: return None"]
    if kind is bool:
        return [f"if type({value}) is not bool: return None"]
    if kind is str:
        test = f"type({value}) is not str"
        if value in REQUEST_FIELDS:
            test += f" or _name_fault({value}) is not None"
        elif value not in FREE_TEXTS:
            test += f" or not ({value}.isascii() or _is_unicode({value}))"
        return [f"if {test}: return None"]
    if kind is Origin:
        return [
            f"if type({value}) is not list or len({value}) != 2: return None",
            f"_owner, _epoch = {value}",
            f"if {_no_int('_epoch')} or not (_owner is None or type(_owner) is str): return None",
            f"{value} = _origin(_owner, _epoch)",
        ]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        known[f"_{kind.__name__}"] = {member.value: member for member in kind}
        return [f"{value} = _{kind.__name__}[{value}]"]
    if get_origin(kind) is tuple:
        quick = "_quick_ranges" if get_args(kind)[0] == TokenRange else "_quick_ints"
        return [f"{value} = {quick}({value})", f"if {value} is None: return None"]
    known[f"_read_{value}"] = form.read
    return [f"{value} = _read_{value}({value})"]


def _quick_ints(value: Any) -> tuple[int, ...] | None:
    if type(value) is not list:
        return None
    for item in value:
        if type(item) is not int or item not in INT64:
            return None
    return tuple(value)


def _quick_ranges(value: Any) -> tuple[TokenRange, ...] | None:
    if type(value) is not list:
        return None
    ranges = []
    for start, end in value:
        if type(start) is not int or type(end) is not int or start not in INT64 or end not in INT64:
            return None
        ranges.append((start, end))
    return tuple(ranges)


def _no_int(value: str) -> str:
    return f"type({value}) is not int or not {INT64.start} <= {value} < {INT64.stop}"
