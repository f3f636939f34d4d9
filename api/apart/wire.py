"""What goes between a service and its own process: questions one way, answers the other, over one socket.

A frame is three 32-bit integers, most significant byte first: the number of the question, and how many bytes
its head and its body have; then both. The head is JSON, the body is what HTTP carries, and nobody looks into
it on the way. Number 0 is no question: in the first such frame the service says what to serve, and the
process that it does; in each that follows the service asks whether the process is there, which says so before
whatever it is busy with. Both ends are one program, so a frame that is none is a fault, and ends the
connection.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kvledger.core.errors import CacheError

PREFIX = struct.Struct(">III")

HEAD_BYTES = 2**20
"""Of a head: addresses and headers are bounded far below this."""

BODY_BYTES = 2**28
"""Of a body: the largest answer has some megabytes."""

OPENING = 0
"""The number of what is said before the first question."""

THERE = OPENING
"""The number of the same between questions: whether anybody is there."""

NUMBERS = 2**32 - 1
"""Numbers that questions have, from 1 on; then they begin anew, and those under way are far fewer."""


class BrokenFrame(CacheError):
    """What came over the connection is no frame."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One question or answer: its number, its head as JSON, its body."""

    number: int
    head: bytes
    body: bytes = b""

    def encoded(self) -> bytes:
        """The frame as it is sent."""
        return PREFIX.pack(self.number, len(self.head), len(self.body)) + self.head + self.body

    def told(self) -> Any:
        """What the head says. Raises BrokenFrame where it is no JSON."""
        try:
            return json.loads(self.head)
        except ValueError as error:
            raise BrokenFrame(f"the head of frame {self.number} is no JSON: {error}") from error


def frame(number: int, head: Any, body: bytes = b"") -> Frame:
    """A frame whose head says `head`."""
    return Frame(number, json.dumps(head, separators=(",", ":")).encode(), body)


class Frames:
    """Puts frames together from bytes as they come."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def fed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole with `data`, in order. Raises BrokenFrame."""
        self._waiting += data
        while len(self._waiting) >= PREFIX.size:
            number, head, body = PREFIX.unpack_from(self._waiting)
            if head > HEAD_BYTES or body > BODY_BYTES:
                raise BrokenFrame(f"frame {number} claims a head of {head} and a body of {body} bytes")
            end = PREFIX.size + head + body
            if len(self._waiting) < end:
                return
            with memoryview(self._waiting) as whole:
                found = Frame(
                    number, bytes(whole[PREFIX.size : PREFIX.size + head]), bytes(whole[end - body : end])
                )
            del self._waiting[:end]
            yield found
