"""How the events of one class become text: for each class a function, compiled from its fields at import.

A cache builds its events from values of few exact types, and the writer encodes every one of them. So each
class gets straight code, without a look-up for any field, which tests the types first: where they are the
exact ones it fills a template, otherwise the event takes the careful way, field by field, which knows what
else a field may hold and refuses the rest. Both give the same text (kvledger.journal.fields).

Nothing of an event's values becomes code: the source is made of the names of fields and classes alone.
"""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, get_origin

from kvledger.core.errors import JournalError
from kvledger.core.events import Origin
from kvledger.journal.fields import REQUEST_FIELDS, FieldForm, name_fault
from kvledger.journal.sums import pack_sums
from kvledger.journal.tokens import TOKEN_BYTES

NODE_FIELD = "node"

EncodedParts = tuple[str, int, int | None, str | None, str, int, bytes]
"""Of one event: kind, version, node, request, payload, how many page arrays it has, and its other bytes: of
tokens or checksums, whose fields come after those of page arrays in the order of their names."""

Encode = Callable[[Any, Callable[[], str], "Texts", "Texts"], EncodedParts]
"""Takes the event, what gives the directory entry of the next page array, texts, and names of requests."""

quote: Callable[[str], str] = json.encoder.encode_basestring_ascii


class Texts(dict[str, str]):
    """Texts as JSON, each written once: a batch says the same few names again and again."""

    def __missing__(self, text: str) -> str:
        self[text] = quoted = quote(text)
        return quoted


class Names(Texts):
    """The same for names of requests. Raises JournalError for one that no database's column can hold."""

    def __missing__(self, text: str) -> str:
        check_name(text)
        return super().__missing__(text)


def check_name(name: str) -> None:
    """Raise JournalError for a request's name that no database's column can hold."""
    if type(name) is not str:
        raise JournalError(f"{name!r} is no name of a request")
    fault = name_fault(name)
    if fault is not None:
        raise JournalError(f"the request's name {name[:40]!r} cannot be stored: {fault}")


def in_order(forms: Sequence[FieldForm]) -> list[FieldForm]:
    """Fields in the order in which they are stored."""
    return sorted(forms, key=lambda form: form.name)


def array_getter(forms: Sequence[FieldForm]) -> Callable[[Any], Sequence[Any]] | None:
    """What gives the page arrays of an event of the class with these fields, in order; None if it has none.

    An optional array that is None is left out; any other value is given as it is.
    """
    pages = [form for form in in_order(forms) if form.place == "pages"]
    if not pages:
        return None
    arrays = [
        f"*(() if _event.{form.name} is None else (_event.{form.name},))"
        if form.optional
        else f"_event.{form.name}"
        for form in pages
    ]
    get: Callable[[Any], Sequence[Any]] = compiled(
        "arrays", ["_event"], [f"return ({', '.join(arrays)},)"], {}
    )
    return get


def compile_encoder(event_class: Any, forms: Sequence[FieldForm]) -> Encode:
    """The encoder of an event class with these fields.

    It raises JournalError for a name of a request that cannot be stored, and what a field's `write` raises
    for a value that the field cannot hold. Cost: O(fields).
    """
    known: dict[str, Any] = {
        "_Origin": Origin,
        "_careful": _careful_encoder(event_class, forms),
        "_pack_sums": pack_sums,
    }
    stored = in_order(forms)
    quick = [_quick(form, known) for form in stored]
    template = "{" + ",".join(f'"{form.name}":%s' for form in stored) + "}"
    lines = [f"{form.name} = _event.{form.name}" for form in stored]
    tests = [test for test, _ in quick if test]
    if tests:
        lines += [f"if not ({' and '.join(tests)}):", "    return _careful(_event, _entry, _text, _name)"]
    place = _Places(stored)
    cells = "".join(f"{cell}, " for _, cell in quick)
    lines.append(
        f"return {event_class.kind!r}, {event_class.version}, {place.node}, {place.request}, "
        f"{template!r} % ({cells}), {place.arrays}, {place.tokens}"
    )
    encode: Encode = compiled("encode", ["_event", "_entry", "_text", "_name"], lines, known)
    return encode


class _Places:
    """Expressions for what an event has beside its payload, over variables with the names of its fields."""

    def __init__(self, stored: Sequence[FieldForm]) -> None:
        names = [form.name for form in stored]
        self.node = NODE_FIELD if NODE_FIELD in names else "None"
        self.request = next((name for name in REQUEST_FIELDS if name in names), "None")
        pages = [form for form in stored if form.place == "pages"]
        tokens = [form for form in stored if form.place in ("tokens", "sums")]
        self.arrays = (
            " + ".join(f"({form.name} is not None)" if form.optional else "1" for form in pages) or "0"
        )
        self.tokens = " + ".join(map(_bytes_of, tokens)) or "b''"


def _bytes_of(form: FieldForm) -> str:
    """What a field whose bytes are not packed with the page arrays adds behind them, as source."""
    if form.place == "sums":
        return f"(b'' if {form.name} is None else _pack_sums({form.name}))"
    return f"({form.name} or b'')"


def _quick(form: FieldForm, known: dict[str, Any]) -> tuple[str, str]:
    """The short way of a field as source: what must hold ("" if nothing), and the cell for the template."""
    test, cell = _quick_value(form, known)
    if form.optional:
        test = test and f"({form.name} is None or {test})"
        cell = f"('null' if {form.name} is None else {cell})"
    return test, cell


def _quick_value(form: FieldForm, known: dict[str, Any]) -> tuple[str, str]:
    """The same for a value that is there. `known` gets what the source has to know by name."""
    value, kind = form.name, form.kind
    if form.place == "pages":
        return "", "_entry()"
    if form.place == "sums":
        return "", f"len({value})"
    if form.place == "tokens":
        return f"type({value}) is bytes and not len({value}) % {TOKEN_BYTES}", f"len({value})"
    if kind is int:
        return f"type({value}) is int", value
    if kind is bool:
        return f"type({value}) is bool", f"('true' if {value} else 'false')"
    if kind is str:
        return f"type({value}) is str", f"{'_name' if value in REQUEST_FIELDS else '_text'}[{value}]"
    if kind is Origin:
        owner = f"{value}.request_id"
        test = f"type({value}) is _Origin and type({value}.epoch) is int"
        return (
            f"{test} and ({owner} is None or type({owner}) is str)",
            f"'[%s,%s]' % ('null' if {owner} is None else _text[{owner}], {value}.epoch)",
        )
    base = get_origin(kind) or kind
    known[f"_{base.__name__}"] = base
    if issubclass(base, StrEnum):
        known[f"_{base.__name__}_texts"] = {member.value: quote(member.value) for member in base}
        return f"type({value}) is _{base.__name__}", f"_{base.__name__}_texts[{value}._value_]"
    known[f"_write_{value}"] = form.write
    written = f"_write_{value}({value})"
    if base is tuple:
        written = f"({written} if {value} else '[]')"
    return f"type({value}) is _{base.__name__}", written


def _careful_encoder(event_class: Any, forms: Sequence[FieldForm]) -> Encode:
    """The encoder for values of any types: it asks each field's `write`."""
    stored = in_order(forms)

    def encode(event: Any, entry: Callable[[], str], text: Texts, name: Texts) -> EncodedParts:
        pieces: list[str] = []
        node: int | None = None
        request: str | None = None
        arrays, tokens = 0, b""
        for form in stored:
            value = getattr(event, form.name)
            absent = form.optional and value is None
            if form.place == "json" or absent:
                written = form.write(value)
            elif form.place == "pages":
                written = entry()
                arrays += 1
            elif form.place == "sums":
                tokens += pack_sums(value)
                written = str(len(value))
            elif type(value) is bytes and not len(value) % TOKEN_BYTES:
                written = str(len(value))
                tokens += value
            else:
                raise TypeError(f"it holds {value!r} where int32 token ids belong")
            pieces.append(f'"{form.name}":{written}')
            if form.name == NODE_FIELD and value is not None:
                node = int(value)
            if form.name in REQUEST_FIELDS and value is not None:
                check_name(value)
                request = value
        return event_class.kind, event_class.version, node, request, f"{{{','.join(pieces)}}}", arrays, tokens

    return encode


def compiled(function: str, parameters: Sequence[str], lines: Sequence[str], known: dict[str, Any]) -> Any:
    """The function with this body, which sees `known` as its globals.

    All names in it but those of fields begin with an underscore, which no field does.
    """
    source = "\n    ".join([f"def {function}({', '.join(parameters)}):", *lines])
    exec(compile(source, f"<{function} of kvledger.journal>", "exec"), known)
    return known[function]
