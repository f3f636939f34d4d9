"""Events as documents: pydantic models, discriminated by `kind`, for JSON that leaves the journal.

The models are made from the event classes, so they cannot fall behind the vocabulary. Page arrays are shown
as half-open ranges, in order, because that is what an allocator hands out and what a person can read; as
plain values on request. Token ids, namespaces and checksums of KV are private: a reader sees how many tokens
and checksums there are and a namespace of null, unless it asks to have them revealed.
"""

import dataclasses
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from kvledger.core import events as vocabulary
from kvledger.core.events import EVENTS, Event, Origin
from kvledger.journal.records import StoredEvent
from kvledger.journal.tokens import TokenPolicy

ArrayForm = Literal["ranges", "values"]
PRIVATE_TEXT = "namespace"


class PageList(BaseModel):
    """Page numbers in order: `count` of them, as half-open `ranges` or as plain `values`."""

    model_config = ConfigDict(frozen=True)

    count: int
    ranges: list[tuple[int, int]] | None = None
    values: list[int] | None = None


class TokenList(BaseModel):
    """Token ids: how many, and which if they were to be revealed.

    Under a token policy that keeps no tokens the count is null, and `hash` is that of the prefix they end, if
    one was kept.
    """

    model_config = ConfigDict(frozen=True)

    count: int | None = None
    values: list[int] | None = None
    hash: str | None = None


class SumList(BaseModel):
    """Checksums of KV: how many, and which, 16 hexadecimal digits each, if tokens were to be revealed.

    Whoever has the model can try tokens until their KV sums up to the same. Under a token policy that keeps
    no tokens they are keyed hashes, which tell nothing.
    """

    model_config = ConfigDict(frozen=True)

    count: int
    values: list[str] | None = None


class OriginView(BaseModel):
    """The forward that computed some KV: its request, or null for a raw insert, and its epoch."""

    model_config = ConfigDict(frozen=True)

    request_id: str | None
    epoch: int


def _shown_type(name: str, hint: Any) -> Any:
    """The type that a field of the vocabulary has in a document."""
    if get_origin(hint) in (Union, UnionType):
        (arm,) = [arm for arm in get_args(hint) if arm is not NoneType]
        return _shown_type(name, arm) | None
    hint = getattr(hint, "__supertype__", hint)
    if name == PRIVATE_TEXT:
        return str | None
    if hint == vocabulary.Sums:
        return SumList
    if get_origin(hint) is np.ndarray:
        return PageList
    if hint is bytes:
        return TokenList
    return OriginView if hint is Origin else hint


def _model(event_class: Any) -> type[BaseModel]:
    hints = get_type_hints(event_class, vars(vocabulary))
    fields: dict[str, Any] = {
        "kind": (Literal[event_class.kind], event_class.kind),
        "version": (Literal[event_class.version], event_class.version),
    }
    for field in dataclasses.fields(event_class):
        fields[field.name] = (_shown_type(field.name, hints[field.name]), ...)
    made: type[BaseModel] = create_model(
        f"{event_class.__name__}View",
        __config__=ConfigDict(frozen=True, extra="forbid"),
        __doc__=event_class.__doc__,
        __module__=__name__,
        **fields,
    )
    return made


EVENT_VIEWS: dict[str, type[BaseModel]] = {kind: _model(event_class) for kind, event_class in EVENTS.items()}
"""The document model of every event, by kind."""

EventView: Any = Annotated[Union[tuple(EVENT_VIEWS.values())], Field(discriminator="kind")]  # noqa: UP007
"""Any event's document; a type for response models, discriminated by `kind`."""

EVENT_VIEW: TypeAdapter[Any] = TypeAdapter(EventView)
"""Validates a document of any kind and describes all of them as one JSON schema."""


def view_event(
    event: Event, *, reveal: bool = False, arrays: ArrayForm = "ranges", policy: TokenPolicy = "full"
) -> BaseModel:
    """The document of one event. `reveal` shows token ids and namespaces, as far as `policy`, the journal's
    token policy, kept them. Cost: O(array elements).
    """
    shown: dict[str, Any] = {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name == PRIVATE_TEXT:
            value = value if reveal else None
        elif isinstance(value, np.ndarray):
            if value.dtype == np.uint64:
                value = _sums(value, reveal=reveal or policy != "full")
            else:
                value = _pages(value, arrays)
        elif isinstance(value, bytes):
            value = _tokens(value, reveal=reveal, policy=policy)
        elif isinstance(value, Origin):
            value = OriginView(request_id=value.request_id, epoch=value.epoch)
        shown[field.name] = value
    return EVENT_VIEWS[event.kind](**shown)


def view_stored(
    stored: StoredEvent, *, reveal: bool = False, arrays: ArrayForm = "ranges", policy: TokenPolicy = "full"
) -> dict[str, Any]:
    """JSON-ready values of an event at its place in the journal: seq, undone, event."""
    event = view_event(stored.event, reveal=reveal, arrays=arrays, policy=policy).model_dump(mode="json")
    return {"seq": int(stored.seq), "undone": stored.undone, "event": event}


def _tokens(value: bytes, *, reveal: bool, policy: TokenPolicy) -> TokenList:
    if policy != "full":
        return TokenList(hash=value.hex() or None)
    return TokenList(
        count=len(value) // 4, values=np.frombuffer(value, dtype="<i4").tolist() if reveal else None
    )


def _sums(values: vocabulary.Sums, *, reveal: bool) -> SumList:
    shown = [f"{value:016x}" for value in values.tolist()] if reveal else None
    return SumList(count=values.size, values=shown)


def _pages(values: vocabulary.Pages, form: ArrayForm) -> PageList:
    if form == "values":
        return PageList(count=values.size, values=values.tolist())
    if not values.size:
        return PageList(count=0, ranges=[])
    # The end of a range may be one past int32.
    wide = values.astype(np.int64)
    breaks = np.flatnonzero(wide[1:] != wide[:-1] + 1) + 1
    starts = wide[np.concatenate(([0], breaks))]
    ends = wide[np.concatenate((breaks - 1, [wide.size - 1]))] + 1
    ranges = list(zip(starts.tolist(), ends.tolist(), strict=True))
    return PageList(count=values.size, ranges=ranges)
