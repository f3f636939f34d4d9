"""What the writing process tells the recorder: a page of memory that both see, read without asking anybody.

Numbers are aligned words of 8 bytes, each written by the writing process alone and whole at any time.
"""

import mmap
import os
import tempfile
from typing import Final

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
WORDS: Final = 14


_TEXT_AT = 8 * WORDS
_SIZE = _TEXT_AT + MOST_TEXT_BYTES


class Board:
    """The page, made by the recorder and found by the writing process under the number of an open file.

    `file` is that number, until `forget_file`; `words` are the numbers, by the names above.
    """

    def __init__(self, file: int | None = None) -> None:
        if file is None:
            self.file = _new_file()
        else:
            self.file = file
        self._memory = mmap.mmap(self.file, _SIZE)
        self.words = memoryview(self._memory)[:_TEXT_AT].cast("q")

    def forget_file(self) -> None:
        """Close the file; the page stays."""
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
    """An open file of the right size without a name; in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("kvledger-board")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, _SIZE)
    return file
