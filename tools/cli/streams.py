"""Standard streams whose reader may leave: a command returns its own status, whoever still listens.

Libraries end the process with a status of their own when a pipe breaks, and Python fails once more on what
is buffered while it shuts down. Output that cannot be written for another reason is `OutputLost`.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast


class OutputLost(Exception):
    """A result that could not be written."""


class Outlet:
    """A text stream that goes nowhere from the moment it cannot be written. All else is the stream's.

    `lost` is why, where that is more than a reader who left. It is not raised, as libraries swallow what a
    write raises, or end the process for it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        """Write `text`, or drop it."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Let what is buffered, and all that follows, go nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            self.lost = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def outlets() -> Iterator[None]:
    """Put an `Outlet` before stdout and stderr. Raises OutputLost at the end where a result did not arrive.

    A stream that was closed before the program started goes nowhere too.
    """
    out, errors = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        # Python has None for a stream that is closed, whatever its type says.
        results, complaints = Outlet(out or nowhere), Outlet(errors or nowhere)
        sys.stdout, sys.stderr = cast(TextIO, results), cast(TextIO, complaints)
        try:
            yield
        finally:
            results.flush()
            complaints.flush()
            sys.stdout, sys.stderr = out, errors
    if results.lost is not None:
        reason = results.lost.strerror or results.lost
        raise OutputLost(f"the output cannot be written: {reason}") from results.lost
