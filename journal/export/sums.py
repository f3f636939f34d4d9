"""The SHA-256 of an exported file, in a file beside it: what the chain cannot see of a file is seen by this.

The chain covers every cell, but not what a form keeps around them: page headers, statistics, padding. The sum
is written as `sha256sum` writes it and can be checked with it. It finds damage, not a forger, who would
recompute it; against him there are the chain, the database's remaining rows and anchors.
"""

import hashlib
import os
from pathlib import Path

from kvledger.core.errors import JournalFormatError

SUM_SUFFIX = ".sha256"
"""Follows the whole name of the file that is summed."""

MAX_SUM_BYTES = 4_096
"""More than 64 digits and any file name: a longer file is no sum."""


def sum_path(path: Path) -> Path:
    """Where the sum of the file `path` stands."""
    return path.with_name(path.name + SUM_SUFFIX)


def sum_of(path: Path) -> str:
    """The SHA-256 of a file as it is now, in hex. Cost: O(bytes), memory bounded."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sum(part: Path, path: Path) -> None:
    """Put the sum of `part`, which will be called `path`, on the disk; one of a file never finished goes."""
    new = part.with_name(part.name + SUM_SUFFIX)
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(f"{sum_of(part)}  {path.name}\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(sum_path(path))
    finally:
        new.unlink(missing_ok=True)


def kept_sum(path: Path) -> str | None:
    """The sum that stands beside the file `path`, None where there is none.

    Raises JournalFormatError where what stands there cannot be read.
    """
    beside = sum_path(path)
    try:
        with beside.open("rb") as file:
            found = file.read(MAX_SUM_BYTES).split(maxsplit=1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalFormatError(f"{beside} cannot be read: {error}") from error
    return found[0].decode("ascii", "replace") if found else ""
