"""The event decoder under any bytes: an event that is stored again as it must be, or a refusal.

An input is the cells of one stored event, `kind\\nversion\\npayload\\nblob`: a payload is canonical JSON and
has no line break of its own.
"""

import dataclasses
from unittest.mock import patch

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import Event
from kvledger.journal import arrays, codec, sums
from kvledger.journal.codec import EncodedEvent, decode, encode

FREE_TEXTS = ("reason", "error")

ELEMENTS = 2**16
"""Longest array here instead of 2**26, which eight bytes can ask for: half a gigabyte in each run is slow."""

TOO_DEEP = "recursion"
"""In the refusal of JSON that nests deeper than this interpreter can follow."""

MOST_DIGITS = 24
"""Of a version that is taken for a number."""


COMPILED = tuple(codec._DECODE.values())
"""Functions that no import brought: coverage is told of them apart."""

WORDS = {word.encode() for plan in codec._PLANS.values() for word in (plan.kind, *plan.names)}
"""What inputs are made of."""


def cells_of(data: bytes) -> tuple[str, int, str, bytes]:
    """Kind, version, payload and blob; bytes that are no UTF-8 become halves of surrogate pairs."""
    kind, version, payload, blob = (data.split(b"\n", 3) + [b""] * 3)[:4]
    digits = version[:MOST_DIGITS]
    return (
        kind.decode(errors="surrogateescape"),
        int(digits) if digits.isdigit() else 1,
        payload.decode(errors="surrogateescape"),
        blob,
    )


def data_of(cells: EncodedEvent) -> bytes:
    """The input that stands for these cells."""
    return b"\n".join([cells.kind.encode(), b"%d" % cells.version, cells.payload.encode(), cells.blob])


def one(data: bytes) -> None:
    """Both ways of decoding agree; what they give is encoded, and comes back as the same bytes for ever."""
    with patch.object(arrays, "MAX_ELEMENTS", ELEMENTS), patch.object(sums, "MAX_ELEMENTS", ELEMENTS):
        kind, version, payload, blob = cells_of(data)
        event, refusal = _decoded(kind, version, payload, blob)
        slowly, sentence = _decoded_carefully(kind, version, payload, blob)
        if TOO_DEEP in refusal + sentence:
            return  # how much is too deep depends on how deep the calls are here
        assert refusal == sentence
        if event is None or slowly is None:
            return
        _check_texts(event)
        stored = encode(event)
        assert encode(slowly) == stored
        assert encode(decode(stored.kind, stored.version, stored.payload, stored.blob)) == stored


def _check_texts(event: Event) -> None:
    """Names and namespaces go into digests and columns as UTF-8; only what an exception said need not."""
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        for text in (value, getattr(value, "request_id", None)):
            if isinstance(text, str) and field.name not in FREE_TEXTS:
                text.encode()


def _decoded(kind: str, version: int, payload: str, blob: bytes) -> tuple[Event | None, str]:
    try:
        return decode(kind, version, payload, blob), ""
    except JournalFormatError as error:
        return None, str(error)


def _decoded_carefully(kind: str, version: int, payload: str, blob: bytes) -> tuple[Event | None, str]:
    plan = codec._PLANS.get(kind)
    if plan is None:
        return None, f"event kind {kind!r} is unknown to this version"
    try:
        return codec._decode_carefully(plan, version, payload, blob), ""
    except JournalFormatError as error:
        return None, str(error)
