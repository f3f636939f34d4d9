"""A stream of bytes through memory that two processes see: one writes, the other reads, nobody is asked.

What is written costs one copy, and no call of the system. Two counters beside the ring say how many bytes
were ever published and read; what lies between them is under way. A writer that is killed leaves what it had
published.

Compiled with the core where that is.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, final

from kvledger.journal.apart.plans import Piece

PUBLISHED: Final = 0
READ: Final = 1
"""The counters: the first is the writer's, the second the reader's."""
COUNTERS: Final = 2


@final
class _Fence:
    """What was written to memory before `pass_` is there for whoever sees what was written after it.

    Releasing a lock orders what came before it, and taking it again what comes after.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._lock.acquire()

    def pass_(self) -> None:
        self._lock.release()
        self._lock.acquire()


@final
class RingWriter:
    """The end that writes. `memory` are bytes, `counters` two of 8 bytes.

    One writes at a time, under the recorder's lock: this, or a batch that is compiled and copies itself
    (packed.py).
    """

    def __init__(self, memory: memoryview, counters: memoryview) -> None:
        self._memory: Final = memory
        self._size: Final = len(memory)
        self._counters: Final = counters
        self._fence: Final = _Fence()

    def write(self, pieces: Sequence[Piece], wait: Callable[[], object]) -> None:
        """Copy `pieces`, one after the other. While there is no room `wait` is called, and may raise.

        The reader sees all of them or none, where there is room for all.
        """
        size = 0
        for piece in pieces:
            size += len(piece)
        written = self._written()
        at = written % self._size
        if size > self._size - at or size > self._room(written):
            self._write_in_parts(pieces, wait)
            return
        for piece in pieces:
            end = at + len(piece)
            self._memory[at:end] = piece
            at = end
        self._publish(written + size)

    def is_read(self) -> bool:
        """Whether the reader took everything."""
        read: int = self._counters[READ]
        return read == self._written()

    def _write_in_parts(self, pieces: Sequence[Piece], wait: Callable[[], object]) -> None:
        """The same across the ring's end, and where it is too full."""
        written = self._written()
        room = self._room(written)
        for piece in pieces:
            left = memoryview(piece)
            while left:
                if not room:
                    self._publish(written)
                    wait()
                    room = self._room(written)
                    continue
                at = written % self._size
                count = min(len(left), room, self._size - at)
                self._memory[at : at + count] = left[:count]
                written, room, left = written + count, room - count, left[count:]
        self._publish(written)

    def _written(self) -> int:
        # Never kept: a batch that is compiled publishes too.
        written: int = self._counters[PUBLISHED]
        return written

    def _room(self, written: int) -> int:
        read: int = self._counters[READ]
        return self._size - (written - read)

    def _publish(self, written: int) -> None:
        self._fence.pass_()
        self._counters[PUBLISHED] = written
        # Whoever writes looks next whether the reader sleeps, and the reader said so before it looked here.
        self._fence.pass_()


@final
class RingReader:
    """The end that reads; there is one."""

    def __init__(self, memory: memoryview, counters: memoryview) -> None:
        self._memory: Final = memory
        self._size: Final = len(memory)
        self._counters: Final = counters
        self._fence: Final = _Fence()

    def read(self) -> bytes:
        """Everything that was published and not read yet, copied."""
        # What the reader said of itself before, that it sleeps above all, is seen by who publishes later.
        self._fence.pass_()
        read: int = self._counters[READ]
        published: int = self._counters[PUBLISHED]
        count = published - read
        if not count:
            return b""
        self._fence.pass_()
        at = read % self._size
        data = bytes(self._memory[at : at + count])
        data += self._memory[: count - len(data)]
        self._fence.pass_()
        self._counters[READ] = published
        return data
