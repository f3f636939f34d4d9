"""Cursors: where a list goes on, as opaque text.

A cursor names its list, so that one of another list is refused, and the place of the last item that was
shown. It holds nothing that its reader did not see.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from kvledger.api.problems import Refusal, invalid
from kvledger.api.schemas.common import SEQ_MAX

CURSOR_CHARACTERS = 1_024
"""Longest cursor: a list's name and a request's id, escaped and encoded, take less than this."""


def encode_cursor(name: str, *place: int | str) -> str:
    """The cursor of the list `name` after the item at `place`."""
    text = json.dumps([name, *place], separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode(errors="surrogatepass")).decode().rstrip("=")


def decode_cursor(name: str, cursor: str, *, types: Sequence[type]) -> tuple[Any, ...]:
    """The place in a cursor of the list `name`: values of these types. Raises a 422 refusal for any other."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise _broken(name) from error
    if not isinstance(found, list) or len(found) != 1 + len(types) or found[0] != name:
        raise _broken(name)
    place = found[1:]
    for value, kind in zip(place, types, strict=True):
        if type(value) is not kind or (isinstance(value, int) and not 0 <= value <= SEQ_MAX):
            raise _broken(name)
    return tuple(place)


def _broken(name: str) -> Refusal:
    return invalid(f"the cursor is none of this list ({name}): give `next` of its last page, unchanged")
