"""How the stored cells of one class become an event: for each class a function, compiled at import.

The counterpart of encoders.py. Nearly all that is read was written by this program and is sound; for that
each class gets straight code, which tests every value as strictly as the careful way does but says nothing of
what is wrong: where a test fails it gives None, and the careful way (codec.py) finds the words, or reads what
only it can. So nothing is taken here that would be refused there.

Nothing of what is stored becomes code: the source is made of the names of fields and classes alone.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

from kvledger.core.events import Origin
from kvledger.journal.arrays import quick_array
from kvledger.journal.encoders import compiled, in_order
from kvledger.journal.fields import INT64, FieldForm
from kvledger.journal.sums import quick_sums
from kvledger.journal.tokens import TOKEN_BYTES

Decode = Callable[[dict[str, Any], bytes], Any]
"""Takes the payload as an object and the blob; gives the event, or None where it is not sure of it."""


ORIGINS_KEPT = 4_096
"""Origins that are remembered: the nodes of one request all have the same."""

origin = lru_cache(maxsize=ORIGINS_KEPT)(Origin)


def compile_decoder(event_class: Any, forms: Sequence[FieldForm]) -> Decode:
    """The quick decoder of an event class with these fields.

    It may raise KeyError, TypeError and JournalFormatError too where it is not sure. Cost: O(fields).
    """
    known: dict[str, Any] = {
        "_build": event_class,
        "_origin": origin,
        "_quick_array": quick_array,
        "_quick_sums": quick_sums,
    }
    bulk = any(form.place != "json" for form in forms)
    lines = [f"if len(_stored) != {len(forms)}: return None"]
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
    decode: Decode = compiled("decode", ["_stored", "_blob"], lines, known)
    return decode


def _steps(form: FieldForm, known: dict[str, Any]) -> list[str]:
    """Lines that test the value of a field that is there, and make of it what the event holds."""
    value, kind = form.name, form.kind
    if form.place in ("pages", "sums"):
        quick = "_quick_array" if form.place == "pages" else "_quick_sums"
        return [
            f"{value}, _at = {quick}({value}, _blob, _at)",
            f"if {value} is None: return None",
        ]
    if form.place == "tokens":
        return [
            f"if type({value}) is not int or {value} < 0 or {value} % {TOKEN_BYTES}: return None",
            f"{value}, _at = _blob[_at : _at + {value}], _at + {value}",
        ]
    if kind is int:
        return [f"if {_no_int(value)}: return None"]
    if kind is bool or kind is str:
        return [f"if type({value}) is not {kind.__name__}: return None"]
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
    known[f"_read_{value}"] = form.read
    return [f"{value} = _read_{value}({value})"]


def _no_int(value: str) -> str:
    return f"type({value}) is not int or not {INT64.start} <= {value} < {INT64.stop}"
