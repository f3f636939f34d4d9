"""Event records to stored cells and back, strictly.

A stored event is (kind, version, node, request, payload, blob). The payload is canonical JSON: an object of
all the event's fields, keys sorted. Page arrays and token bytes stand in the blob, one after the other in
the order of their names; the payload holds their directory entries, `[elements, runs]` for an array and the
number of bytes for tokens. The layout is told in docs/format.md, "Stored events".

Decoding refuses what encoding cannot have written: another kind or version, a missing or surplus field, a
value of another type, a blob that is longer or shorter than the directory says. Whether stored bytes were
changed into other valid bytes is the chain's business, not this module's.
"""

import json
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, cast

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import EVENTS, Event
from kvledger.journal.arrays import pack_arrays, packed_size, unpack_array
from kvledger.journal.fields import FieldForm, forms_of

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


class _Plan:
    """What encoding and decoding need to know about one event class, found once at import."""

    def __init__(self, event_class: Any) -> None:
        forms = forms_of(event_class)
        stored = sorted(forms, key=lambda form: form.name)
        self.build: Any = event_class
        self.kind: str = event_class.kind
        self.version: int = event_class.version
        self.names = frozenset(form.name for form in forms)
        self.forms: list[FieldForm] = forms
        self.bulk: list[FieldForm] = [form for form in stored if form.place != "json"]

        names = [form.name for form in stored]
        self.values = _getter(attrgetter, names)
        self.writes = [form.write for form in stored]
        self.template = "{" + ",".join(f'"{name}":%s' for name in names) + "}"
        self.page_places = [i for i, form in enumerate(stored) if form.place == "pages"]
        self.bulk_places = [(i, form.place) for i, form in enumerate(stored) if form.place != "json"]
        self.node_place = names.index(NODE_FIELD) if NODE_FIELD in names else None
        self.request_place = next((names.index(name) for name in REQUEST_FIELDS if name in names), None)

        declared = [form.name for form in forms]
        self.pick = _getter(itemgetter, declared)
        self.reads = [form.read for form in forms]


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
    return encode_all([event])[0]


def encode_all(events: Sequence[Event]) -> list[EncodedEvent]:
    """Encode events in order.

    Raises JournalError for an object that is no event, or a field whose value its type does not allow.
    Cost: O(fields + array elements); arrays of all events are packed in one numpy pass.
    """
    staged: list[tuple[_Plan, tuple[Any, ...]]] = []
    arrays = []
    for event in events:
        plan = _PLAN_OF_CLASS.get(type(event))
        if plan is None:
            raise JournalError(f"{event!r} is no event of the vocabulary")
        values = plan.values(event)
        staged.append((plan, values))
        for place in plan.page_places:
            if values[place] is not None:
                arrays.append(values[place])
    packed = iter(pack_arrays(arrays))
    return [_encode(plan, values, packed) for plan, values in staged]


def _encode(plan: _Plan, values: tuple[Any, ...], packed: Any) -> EncodedEvent:
    node = None if plan.node_place is None else values[plan.node_place]
    request = None if plan.request_place is None else values[plan.request_place]
    blob = b""
    if plan.bulk_places:
        cells = list(values)
        pieces = []
        for place, form in plan.bulk_places:
            value = cells[place]
            if value is None:
                continue
            if form == "pages":
                elements, runs, data = next(packed)
                cells[place] = f"[{elements},{runs}]"
                pieces.append(data)
            elif type(value) is bytes and not len(value) % TOKEN_BYTES:
                cells[place] = len(value)
                pieces.append(value)
            else:
                raise JournalError(f"a {plan.kind} event holds {value!r} where int32 token ids belong")
        values = tuple(cells)
        blob = b"".join(pieces)
    try:
        texts = [write(value) for write, value in zip(plan.writes, values, strict=True)]
    except (TypeError, ValueError, AttributeError) as error:
        raise JournalError(f"a {plan.kind} event cannot be stored: {error}") from error
    if request is not None:
        check_name(request)
    payload = plan.template % tuple(texts)
    return EncodedEvent(plan.kind, plan.version, None if node is None else int(node), request, payload, blob)


def check_name(name: str) -> None:
    """Raise JournalError for a request's name that is no text UTF-8 can hold: it has a column of its own."""
    if type(name) is not str:
        raise JournalError(f"{name!r} is no name of a request")
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
    if version != plan.version:
        raise JournalFormatError(f"{kind} events are of version {plan.version} here, not {version!r}")
    try:
        stored = json.loads(payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise JournalFormatError(f"the payload of a {kind} event is no JSON: {error}") from error
    if type(stored) is not dict or stored.keys() != plan.names:
        raise JournalFormatError(f"a {kind} event is stored {_difference(plan, stored)}")
    if type(blob) is not bytes:
        raise JournalFormatError(f"the blob of a {kind} event is {blob!r}, no bytes")
    try:
        if plan.bulk:
            _take_bulk(plan, stored, blob)
        elif blob:
            raise JournalFormatError(f"{len(blob)} bytes stand beside an event without arrays")
        event: Event = plan.build(
            *[read(value) for read, value in zip(plan.reads, plan.pick(stored), strict=True)]
        )
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
