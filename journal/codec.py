"""Event records to stored cells and back, strictly.

A stored event is (kind, version, node, request, payload, blob). The payload is canonical JSON: an object of
all the event's fields, keys sorted. Page arrays and token bytes stand in the blob, one after the other in
the order of their names; the payload holds their directory entries, `[elements, runs]` for an array, the
number of bytes for tokens and the number of checksums for those. The layout is told in docs/format.md,
"Stored events".

Decoding takes older versions of an event through their upcasters (kvledger.journal.versions) and refuses
what encoding cannot have written: another kind, a newer version, a missing or surplus field, a
value of another type, a blob that is longer or shorter than the directory says. Whether stored bytes were
changed into other valid bytes is the chain's business, not this module's.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, cast

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import EVENTS, Event
from kvledger.journal.arrays import pack_together, packed_size, unpack_array
from kvledger.journal.decoders import UNSURE, compile_decoder, scan_json
from kvledger.journal.encoders import Names, Texts, array_getter, compile_encoder
from kvledger.journal.fields import FieldForm, forms_of
from kvledger.journal.sums import sums_size, unpack_sums
from kvledger.journal.tokens import TOKEN_BYTES
from kvledger.journal.versions import UPCASTERS, StoredPayload


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


class EncodedColumns(NamedTuple):
    """The same of many events, column by column: they go to the database and into the hash that way."""

    kinds: list[str]
    versions: list[int]
    nodes: list[int | None]
    requests: list[str | None]
    payloads: list[str]
    blobs: list[bytes]


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

        self.encode = compile_encoder(event_class, forms)
        self.arrays = array_getter(forms)
        self.decode = compile_decoder(event_class, forms)

        self.pick = _getter(itemgetter, [form.name for form in forms])
        self.reads = [(form.name, form.read) for form in forms if form.place == "json"]


def _getter(make: Any, names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A getter of several things at once that also gives a tuple when there is but one."""
    get = make(*names)
    if len(names) > 1:
        return cast("Callable[[Any], tuple[Any, ...]]", get)
    return lambda source: (get(source),)


_PLANS: dict[str, _Plan] = {kind: _Plan(event_class) for kind, event_class in EVENTS.items()}
_DECODE = {(kind, plan.version): plan.decode for kind, plan in _PLANS.items()}
_ENCODE = {EVENTS[kind]: plan.encode for kind, plan in _PLANS.items()}
_ARRAYS = {EVENTS[kind]: plan.arrays for kind, plan in _PLANS.items()}


def encode(event: Event) -> EncodedEvent:
    """Encode one event; see `encode_columns`, which is the cheaper way to encode many."""
    return EncodedEvent(*encode_all([event])[0])


def encode_all(events: Iterable[Event]) -> list[EncodedCells]:
    """Encode events in order, each as the cells of an `EncodedEvent`; errors and cost as `encode_columns`."""
    return list(zip(*encode_columns(list(events)), strict=True))


def encode_columns(events: Sequence[Event]) -> EncodedColumns:
    """Encode events in order.

    Raises JournalError for an object that is no event, or a field whose value its type does not allow.
    Cost: O(fields + array elements); arrays of all events are packed in one numpy pass.
    """
    arrays: list[Any] = []
    for event in events:
        try:
            get = _ARRAYS[type(event)]
        except KeyError:
            raise JournalError(f"{event!r} is no event of the vocabulary") from None
        if get is not None:
            arrays += get(event)
    elements, runs, ends, data = pack_together(arrays)
    entry = map("[%d,%d]".__mod__, zip(elements, runs, strict=True)).__next__

    # One flat list of all parts: a tuple kept for each event is work for the garbage collector.
    parts: list[Any] = []
    texts, names = Texts(), Names()
    for event in events:
        try:
            parts += _ENCODE[type(event)](event, entry, texts, names)
        except (TypeError, ValueError, AttributeError) as error:
            raise JournalError(f"a {event.kind} event cannot be stored: {error}") from error
    blobs: list[bytes] = []
    begin = taken = 0
    for count, tokens in zip(parts[5::7], parts[6::7], strict=True):
        if count:
            taken += count
            end = ends[taken]
            blobs.append(data[begin:end] + tokens if tokens else data[begin:end])
            begin = end
        else:
            blobs.append(tokens)
    return EncodedColumns(parts[0::7], parts[1::7], parts[2::7], parts[3::7], parts[4::7], blobs)


def decode(kind: str, version: int, payload: str, blob: bytes) -> Event:
    """Rebuild an event from its stored cells; arrays come back as read-only int32[n].

    Raises JournalFormatError, in one sentence, for anything that `encode` cannot have written.
    Cost: O(fields + array elements).
    """
    quick = _DECODE.get((kind, version))
    if quick is not None:
        try:
            event: Event | None = quick(payload, blob)
            if event is not None:
                return event
        except UNSURE:
            pass
    plan = _PLANS.get(kind)
    if plan is None:
        raise JournalFormatError(f"event kind {kind!r} is unknown to this version")
    return _decode_carefully(plan, version, payload, blob)


def _decode_carefully(plan: _Plan, version: int, payload: str, blob: bytes) -> Event:
    """As `decode`, which comes here with whatever is not what this program stores every day."""
    kind = plan.kind
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
        built: Event = plan.build(*plan.pick(stored))
    except JournalFormatError as error:
        raise JournalFormatError(f"a {kind} event cannot be read: {error}") from error
    return built


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
        elif form.place == "sums":
            size = sums_size(entry)
        else:
            size = packed_size(entry)
        if taken + size > len(blob):
            raise JournalFormatError(f"{form.name} ends at byte {taken + size} of a blob of {len(blob)}")
        if form.place == "tokens":
            stored[form.name] = blob[taken : taken + size]
        elif form.place == "sums":
            stored[form.name] = unpack_sums(entry, blob, taken)
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
