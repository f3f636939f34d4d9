"""The memory that a recorder and its writing process both see: numbers that tell, and the ring between them.

Numbers are aligned words of 8 bytes, whole at any time, each written by the writing process alone. The ring
(ring.py) has counters of its own.
"""

import fcntl
import mmap
import os
from typing import Final

from kvledger.journal.apart.ring import COUNTERS

MOST_TEXT_BYTES: Final = 8_192
"""Longer words are cut."""


STARTING: Final = 0
RECORDING: Final = 1
CLOSED: Final = 2
"""Everything that it was handed is stored."""
FAILED: Final = 3
"""Nothing more is stored; `Board.text` says why."""
UNKEPT: Final = 4
"""Everything is stored, but the journal was not kept up; `Board.text` says why."""

PHASE: Final = 0
"""How far the writing process is: one of those above. Plain numbers, for every `append` looks at it."""
JOURNAL_ID: Final = 1
DURABLE_SEQ: Final = 2
GAPS: Final = 3
"""Events that the writing process added, each of which names what was dropped before it."""
DEGRADED: Final = 4
DROPPED_EVENTS: Final = 5
FLUSHED: Final = 6
"""The number in the last FLUSH frame that was followed."""
EVENTS: Final = 7
TRANSACTIONS: Final = 8
BYTES: Final = 9
BATCHES: Final = 10
CPU_NS: Final = 11
"""What it has stored, as `WriterCounters`, and the CPU time of the process."""
UNAVAILABLE: Final = 12
"""Whether it failed because the store did not answer."""
TEXT_BYTES: Final = 13
ASLEEP: Final = 14
"""Whether it looks at the ring only now and then, until it is woken."""
WORDS: Final = 15

RING_BYTES: Final = 2**23
"""What may be under way; more flows through in parts."""

LOWEST_FILE: Final = 3
"""The first number that is no standard stream's."""

_COUNTERS_AT = 8 * WORDS
_TEXT_AT = _COUNTERS_AT + 8 * COUNTERS
_RING_AT = 2**14
_SIZE = _RING_AT + RING_BYTES


class Board:
    """The memory, made by the recorder and found by the writing process under the number of an open file.

    `file` is that number, until `forget_file`; `words` are the numbers, by the names above; `ring` and
    `counters` are what the ring's ends are made of.
    """

    def __init__(self, file: int | None = None) -> None:
        if file is None:
            self.file = _new_file()
        else:
            self.file = file
        # All of it is there from the beginning, where the system can: no step pays for another page.
        try:
            how = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            self._memory = mmap.mmap(self.file, _SIZE, how)
        except BaseException:
            self.forget_file()
            raise
        everything = memoryview(self._memory)
        self.words = everything[:_COUNTERS_AT].cast("q")
        self.counters = everything[_COUNTERS_AT:_TEXT_AT].cast("q")
        self.ring = everything[_RING_AT:]

    def forget_file(self) -> None:
        """Close the file; the memory stays."""
        os.close(self.file)

    @property
    def text(self) -> str:
        """Why it failed."""
        return self._memory[_TEXT_AT : _TEXT_AT + self.words[TEXT_BYTES]].decode(errors="replace")

    def end(self, phase: int, why: str) -> None:
        """Write a last phase and its reason; the first one stays."""
        if self.words[PHASE] >= CLOSED:
            return
        text = why.encode(errors="backslashreplace")[:MOST_TEXT_BYTES]
        self._memory[_TEXT_AT : _TEXT_AT + len(text)] = text
        self.words[TEXT_BYTES] = len(text)
        self.words[PHASE] = phase


def _new_file() -> int:
    """An open file of the right size, without a name and in memory: keys and tokens pass through it."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system has no files in memory (memfd_create)")
    made = os.memfd_create("kvledger")
    try:
        os.ftruncate(made, _SIZE)
        # Not under the number of a standard stream that is closed here: the process has its own there.
        return fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, LOWEST_FILE)
    finally:
        os.close(made)
