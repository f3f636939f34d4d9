"""The border of the journal: numbers, names and paths that callers give; InvalidArgument for what is none.

What a database makes of a value of another type differs from one to the next, and is told as if the store had
failed; so nothing of another type gets there.
"""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np

from kvledger.core.errors import InvalidArgument

LARGEST = 2**63 - 1
"""No seq, number, time or size of a store is greater."""

SHOWN = 40
"""Characters that a message quotes of a value."""


def check_integer(value: Any, what: str) -> int:
    """A whole number, of Python or NumPy, as an `int`. A boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidArgument(f"{what} is a whole number, not {type(value).__name__} {value!r:.{SHOWN}}")
    return int(value)


def check_number(value: Any, what: str, *, least: int = -LARGEST) -> int:
    """A whole number from `least` to what a store can hold."""
    number = check_integer(value, what)
    if not least <= number <= LARGEST:
        raise InvalidArgument(f"{what} is from {least} to {LARGEST}, not {number!r:.{SHOWN}}")
    return number


def check_place(value: Any, what: str, *, least: int | None = None) -> int:
    """A whole number that names a place in a journal; one beyond all of them is the last, or the first.

    One below `least` is refused.
    """
    number = check_integer(value, what)
    if least is not None and number < least:
        raise InvalidArgument(f"{what} is {least} or more, not {number!r:.{SHOWN}}")
    return max(-LARGEST, min(number, LARGEST))


def check_flag(value: Any, what: str) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what} is True or False, not {type(value).__name__} {value!r:.{SHOWN}}")
    return value


def check_text(value: Any, what: str) -> str:
    """A text that every database's column can hold: no zero in it, and no half of a surrogate pair."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is a text, not {type(value).__name__} {value!r:.{SHOWN}}")
    try:
        held = b"\0" not in value.encode()
    except UnicodeEncodeError:
        held = False
    if not held:
        raise InvalidArgument(f"{value!r:.{SHOWN}} is no {what} that a journal can hold")
    return value


def check_path(value: Any, what: str) -> Path:
    """A path that a file system can be asked for, with `~` and `~user` replaced by that home."""
    if not isinstance(value, str | os.PathLike):
        raise InvalidArgument(f"{what} is a path, not {type(value).__name__} {value!r:.{SHOWN}}")
    try:
        path = Path(value)
        if b"\0" in os.fsencode(path):
            raise ValueError("it has a zero in it")
        path = path.expanduser()
        path.exists()
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        # A path of bytes; half a surrogate pair; a user without a home; too long a name, or no access, and
        # that is told by whoever opens it.
        if isinstance(error, OSError) and error.errno != errno.ENAMETOOLONG:
            return path
        raise InvalidArgument(f"{what} {str(value)!r:.{SHOWN}} is no path: {error}") from error
    return path
