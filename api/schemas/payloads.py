"""The facts of each kind of event, as pydantic models made from the event classes: none can fall behind.

Page arrays become runs, token bytes and checksums a count (with what they are where the service reveals it),
a namespace its label.
The example of each kind was recorded, and stands in `payload_examples.json`.
"""

import dataclasses
import json
from importlib import resources
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import ConfigDict, Field, create_model

from kvledger.api.schemas.common import Answer, Checksums, OriginOut, Runs, Tokens
from kvledger.core import events as vocabulary
from kvledger.core.events import EVENTS, Origin

UNTOLD = frozenset({"head_tokens"})
"""A store keeps a split's tokens with the node that was split, and says nothing of them at the split."""

_EXAMPLES: dict[str, Any] = json.loads(
    (resources.files("kvledger.api.schemas") / "payload_examples.json").read_text(encoding="utf-8")
)


def told_fields(event_class: Any) -> tuple[str, ...]:
    """The fields of an event that its payload has, in their order."""
    return tuple(field.name for field in dataclasses.fields(event_class) if field.name not in UNTOLD)


def _told_type(hint: Any) -> Any:
    """The type that a field of the vocabulary has in a payload."""
    if get_origin(hint) in (Union, UnionType):
        (arm,) = [arm for arm in get_args(hint) if arm is not NoneType]
        return _told_type(arm) | None
    hint = getattr(hint, "__supertype__", hint)
    if hint == vocabulary.Sums:
        return Checksums
    if get_origin(hint) is np.ndarray:
        return Runs
    if get_origin(hint) is tuple and get_args(hint)[1:] == (Ellipsis,):
        item: Any = get_args(hint)[0]
        item = getattr(item, "__supertype__", item)
        return tuple[item, ...]
    told: dict[Any, Any] = {bytes: Tokens, Origin: OriginOut}
    return told.get(hint, hint)


def payload_model(event_class: Any) -> type[Answer]:
    """The model of the payload of one event class."""
    hints = get_type_hints(event_class, vars(vocabulary))
    fields: dict[str, Any] = {"kind": (Literal[event_class.kind], event_class.kind)}
    for name in told_fields(event_class):
        fields[name] = (_told_type(hints[name]), ...)
    example = _EXAMPLES.get(event_class.kind)

    class Base(Answer):
        model_config = ConfigDict(json_schema_extra={"examples": [example]} if example else None)

    made: type[Answer] = create_model(
        f"{event_class.__name__}Data",
        __base__=Base,
        __doc__=event_class.__doc__,
        __module__=__name__,
        **fields,
    )
    return made


PAYLOADS: dict[str, type[Answer]] = {kind: payload_model(event_class) for kind, event_class in EVENTS.items()}
"""The model of every event's payload, by kind."""

if TYPE_CHECKING:
    Payload = Answer
else:
    Payload = Annotated[Union[tuple(PAYLOADS.values())], Field(discriminator="kind")]  # noqa: UP007
"""Any event's payload, discriminated by `kind`."""
