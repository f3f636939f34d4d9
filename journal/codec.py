"""Event records to stored cells and back, strictly.

A stored event is (kind, version, node, request, payload, blob). The payload is canonical JSON: an object of
all the event's fields, keys sorted. Page arrays and token bytes stand in the blob, one after the other in
the order of their names; the payload holds their directory entries, `[elements, runs]` for an array and the
number of bytes for tokens. The layout is told in docs/format.md, "Stored events".

Decoding takes older versions of an event through their upcasters (kvledger.journal.versions) and refuses
what encoding cannot have written: another kind, a newer version, a missing or surplus field, a
value of another type, a blob that is longer or shorter than the directory says. Whether stored bytes were
changed into other valid bytes is the chain's business, not this module's.
"""

import json
from collections.abc import Callable, Iterable
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any, NamedTuple, cast

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import EVENTS, Event
from kvledger.core.ids import NAME_CHARACTERS
from kvledger.journal.arrays import PackedArrays, pack_together, packed_size, unpack_array
from kvledger.journal.fields import FieldForm, QuickForm, forms_of
from kvledger.journal.versions import UPCASTERS, StoredPayload

scan_json: Callable[[str, int], tuple[Any, int]] = cast("Any", json.JSONDecoder()).scan_once
"""Reads one JSON value at a place of a text; `json.loads` does the same and then twice as much around it."""

TOKEN_BYTES = 4
NODE_FIELD = "node"
REQUEST_FIELDS = ("request_id", "owner")
"""The fields that name the request an event is about; no event has both."""


class EncodedEvent(NamedTuple):
    """The cells of one event row. `node` and `request_id` repeat fields of the payload, for look-ups."""

    kind: str
    version: int
    node: int | None
    request_id: str | None
    payload: str
    blob: bytes


EncodedCells = tuple[str, int, int | None, str | None, str, bytes]
"""What an `EncodedEvent` holds, as the plain tuple that is cheaper to make."""


class _Shape:
    """How events of one class are written whose fields hold values of these types.

    A class has few shapes: an optional field is there or not. Most values stand in the template as they are,
    `writes` has the places of the others. `quick`: the types alone vouch for every value. `ready`: and the
    template is all there is to write.
    """

    __slots__ = (
        "kind",
        "node_place",
        "pages",
        "quick",
        "ready",
        "request_place",
        "template",
        "tokens",
        "version",
        "writes",
    )

    def __init__(self, plan: "_Plan", types: tuple[type, ...]) -> None:
        pairs = list(zip(plan.stored, types, strict=True))
        self.quick = all(kind in form.quick for form, kind in pairs)
        hows = [form.quick.get(kind) or QuickForm("%s", form.write) for form, kind in pairs]
        fields = [f'"{form.name}":{how.spec}' for form, how in zip(plan.stored, hows, strict=True)]
        self.template = "{" + ",".join(fields) + "}"
        self.writes = [(place, how.write) for place, how in enumerate(hows) if how.write is not None]
        self.pages = [i for i, (form, kind) in enumerate(pairs) if _is_bulk("pages", form, kind)]
        self.tokens = [i for i, (form, kind) in enumerate(pairs) if _is_bulk("tokens", form, kind)]
        self.ready = self.quick and not (self.writes or self.pages or self.tokens)
        self.kind = plan.kind
        self.version = plan.version
        self.node_place = plan.node_place
        self.request_place = plan.request_place


def _is_bulk(place: str, form: FieldForm, kind: type) -> bool:
    return form.place == place and not (form.optional and kind is NoneType)


class _Plan:
    """What encoding and decoding need to know about one event class, found once at import."""

    def __init__(self, event_class: Any) -> None:
        forms = forms_of(event_class)
        self.stored = sorted(forms, key=lambda form: form.name)
        self.build: Any = event_class
        self.kind: str = event_class.kind
        self.version: int = event_class.version
        self.names = frozenset(form.name for form in forms)
        self.bulk: list[FieldForm] = [form for form in self.stored if form.place != "json"]

        names = [form.name for form in self.stored]
        self.values = _getter(attrgetter, names)
        self.node_place = names.index(NODE_FIELD) if NODE_FIELD in names else None
        self.request_place = next((names.index(name) for name in REQUEST_FIELDS if name in names), None)
        self.shapes: dict[tuple[type, ...], _Shape] = {}

        self.pick = _getter(itemgetter, [form.name for form in forms])
        self.reads = [(form.name, form.read) for form in forms if form.place == "json"]

    def shape(self, types: tuple[type, ...]) -> _Shape:
        """The shape for these types of values. Kept only if it is quick, of which there are not many."""
        shape = self.shapes.get(types)
        if shape is None:
            shape = _Shape(self, types)
            if shape.quick:
                self.shapes[types] = shape
        return shape


def _getter(make: Any, names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A getter of several things at once that also gives a tuple when there is but one."""
    get = make(*names)
    if len(names) > 1:
        return cast("Callable[[Any], tuple[Any, ...]]", get)
    return lambda source: (get(source),)


_PLANS: dict[str, _Plan] = {kind: _Plan(event_class) for kind, event_class in EVENTS.items()}
_PLAN_OF_CLASS: dict[type, _Plan] = {event_class: _PLANS[kind] for kind, event_class in EVENTS.items()}


def encode(event: Event) -> EncodedEvent:
    """Encode one event; see `encode_all`, which is the cheaper way to encode many."""
    return EncodedEvent(*encode_all([event])[0])


def encode_all(events: Iterable[Event]) -> list[EncodedCells]:
    """Encode events in order, each as the cells of an `EncodedEvent`.

    Raises JournalError for an object that is no event, or a field whose value its type does not allow.
    Cost: O(fields + array elements); arrays of all events are packed in one numpy pass.
    """
    shapes: list[_Shape] = []
    rows: list[tuple[Any, ...]] = []
    arrays: list[Any] = []
    plan_of = _PLAN_OF_CLASS.get
    for event in events:
        plan = plan_of(type(event))
        if plan is None:
            raise JournalError(f"{event!r} is no event of the vocabulary")
        values = plan.values(event)
        types = tuple(map(type, values))
        shape = plan.shapes.get(types) or plan.shape(types)
        shapes.append(shape)
        rows.append(values)
        for place in shape.pages:
            arrays.append(values[place])
    return _write_all(shapes, rows, pack_together(arrays))


def _write_all(
    shapes: Iterable[_Shape], rows: Iterable[tuple[Any, ...]], packed: PackedArrays
) -> list[EncodedCells]:
    elements, runs, ends, data = packed
    taken = 0
    checked: set[str] = set()
    encoded: list[EncodedCells] = []
    for shape, values in zip(shapes, rows, strict=True):
        node = None if shape.node_place is None else values[shape.node_place]
        request = None if shape.request_place is None else values[shape.request_place]
        blob = b""
        if not shape.ready:
            cells = list(values)
            try:
                for place, write in shape.writes:
                    cells[place] = write(cells[place])
                if not shape.quick and node is not None:
                    node = int(node)
            except (TypeError, ValueError, AttributeError) as error:
                raise JournalError(f"a {shape.kind} event cannot be stored: {error}") from error
            if shape.pages:
                begin = ends[taken]
                for place in shape.pages:
                    cells[place] = f"[{elements[taken]},{runs[taken]}]"
                    taken += 1
                blob = data[begin : ends[taken]]
            for place in shape.tokens:
                tokens = values[place]
                if type(tokens) is not bytes or len(tokens) % TOKEN_BYTES:
                    raise JournalError(f"a {shape.kind} event holds {tokens!r} where int32 token ids belong")
                cells[place] = len(tokens)
                blob += tokens
            values = tuple(cells)
        if request is not None and not (shape.quick and request in checked):
            check_name(request)
            checked.add(request)
        encoded.append((shape.kind, shape.version, node, request, shape.template % values, blob))
    return encoded


def check_name(name: str) -> None:
    """Raise JournalError for a request's name that no database's column can hold."""
    if type(name) is not str:
        raise JournalError(f"{name!r} is no name of a request")
    if "\0" in name or len(name) > NAME_CHARACTERS:
        raise JournalError(
            f"the request's name {name[:40]!r} cannot be stored: "
            f"it has a zero or over {NAME_CHARACTERS} characters"
        )
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise JournalError(f"the request's name {name!r} cannot be stored: {error}") from error


def decode(kind: str, version: int, payload: str, blob: bytes) -> Event:
    """Rebuild an event from its stored cells; arrays come back as read-only int64[n].

    Raises JournalFormatError, in one sentence, for anything that `encode` cannot have written.
    Cost: O(fields + array elements).
    """
    plan = _PLANS.get(kind)
    if plan is None:
        raise JournalFormatError(f"event kind {kind!r} is unknown to this version")
    try:
        stored, end = scan_json(payload, 0)
        if end != len(payload):
            raise ValueError(f"more stands after character {end}")
    except StopIteration:
        raise JournalFormatError(f"the payload of a {kind} event is no JSON: nothing can be read") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise JournalFormatError(f"the payload of a {kind} event is no JSON: {error}") from error
    if version != plan.version and type(stored) is dict and type(blob) is bytes:
        stored, blob = UPCASTERS.upcast(kind, version, to=plan.version, stored=StoredPayload(stored, blob))
    if type(stored) is not dict or stored.keys() != plan.names:
        raise JournalFormatError(f"a {kind} event is stored {_difference(plan, stored)}")
    if type(blob) is not bytes:
        raise JournalFormatError(f"the blob of a {kind} event is {blob!r}, no bytes")
    try:
        if plan.bulk:
            _take_bulk(plan, stored, blob)
        elif blob:
            raise JournalFormatError(f"{len(blob)} bytes stand beside an event without arrays")
        for name, read in plan.reads:
            stored[name] = read(stored[name])
        event: Event = plan.build(*plan.pick(stored))
    except JournalFormatError as error:
        raise JournalFormatError(f"a {kind} event cannot be read: {error}") from error
    return event


def _take_bulk(plan: _Plan, stored: dict[str, Any], blob: bytes) -> None:
    """Replace the directory entries in `stored` by the arrays and bytes they stand for."""
    taken = 0
    for form in plan.bulk:
        entry = stored[form.name]
        if entry is None and form.optional:
            continue
        if form.place == "tokens":
            if type(entry) is not int or entry < 0 or entry % TOKEN_BYTES:
                raise JournalFormatError(f"{form.name} has {entry!r} as its number of bytes")
            size = entry
        else:
            size = packed_size(entry)
        if taken + size > len(blob):
            raise JournalFormatError(f"{form.name} ends at byte {taken + size} of a blob of {len(blob)}")
        if form.place == "tokens":
            stored[form.name] = blob[taken : taken + size]
        else:
            stored[form.name] = unpack_array(entry, blob, taken)
        taken += size
    if taken != len(blob):
        raise JournalFormatError(f"the blob has {len(blob)} bytes, its directory names {taken}")


def _difference(plan: _Plan, stored: Any) -> str:
    if type(stored) is not dict:
        return f"as {type(stored).__name__}, not as an object"
    missing = sorted(plan.names - stored.keys())
    surplus = sorted(stored.keys() - plan.names)
    parts = [f"without {', '.join(missing)}"] if missing else []
    if surplus:
        parts.append(f"with unknown fields {', '.join(surplus)}")
    return " and ".join(parts)
