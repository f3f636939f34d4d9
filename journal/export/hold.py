"""One at a time in a folder of exports: whoever writes a piece there, or prunes what its pieces hold.

The lock is the kernel's, on a file in the folder, and goes with the process that holds it. The file is taken
away again with the lock, so that a folder holds pieces and nothing else; one that a killed process left
behind locks nobody out.
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvledger.core.errors import JournalError

LOCK_NAME = ".kvledger.lock"
"""What the file is called; no reader takes it for a piece."""

WAIT_SECONDS = 30.0
"""How long somebody at a terminal waits for another export: most are over by then."""

WRITER_WAIT_SECONDS = 0.5
"""How long the thread of a recorder waits: meanwhile its queue fills, and it can try again later."""

POLL_SECONDS = 0.05
"""Between two looks at a lock that is taken: the kernel offers no wait with an end."""

_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


class FolderBusy(JournalError):
    """Another export or prune is at work in the folder; the same may succeed later."""


@contextmanager
def folder_held(
    folder: Path, *, wait_s: float = WAIT_SECONDS, may_be_read_only: bool = False
) -> Iterator[None]:
    """Hold `folder`, which exists, for the block: nobody else exports into it or prunes by it.

    With `may_be_read_only` a folder that cannot be written is not held: nothing changes there either. Raises
    FolderBusy when it is not free after `wait_s` seconds, JournalError where it cannot be locked.
    """
    path = folder / LOCK_NAME
    try:
        held: int | None = _taken(path, folder, time.monotonic() + wait_s)
    except OSError as error:
        if not (may_be_read_only and error.errno in _UNWRITABLE):
            raise JournalError(f"the folder {folder} cannot be locked: {error}") from error
        held = None
    try:
        yield
    finally:
        if held is not None:
            try:
                path.unlink(missing_ok=True)
            finally:
                os.close(held)


def _taken(path: Path, folder: Path, deadline: float) -> int:
    while True:
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if _locks(held) and _is_still(held, path):
                return held
        except BaseException:
            os.close(held)
            raise
        os.close(held)
        if time.monotonic() >= deadline:
            raise FolderBusy(f"another export or prune is at work in {folder}: try again when it is done")
        time.sleep(POLL_SECONDS)


def _locks(held: int) -> bool:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _is_still(held: int, path: Path) -> bool:
    """Whether the file that was locked is the one that others find: its holder may have taken it away."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(held)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
