"""The service's end of the connection to its own process: many questions under way, each one answered.

Belongs to the event loop of the service. It passes bytes on and reads none of them: what an answer costs in
the scheduler's process is one frame out and one frame in.
"""

import asyncio
from dataclasses import dataclass
from itertools import count
from typing import Any

from kvledger.api.apart.wire import OPENING, BrokenFrame, Frame, Frames, frame
from kvledger.core.errors import CacheError

Headers = list[tuple[bytes, bytes]]


class ProcessGone(CacheError):
    """The process ended, or was never there: what it was asked has no answer from it."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as HTTP has it."""

    status: int
    headers: Headers
    body: bytes


class Link(asyncio.Protocol):
    """One connection, from its making to its end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self._frames = Frames()
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._numbers = count(OPENING + 1)
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of an answer came, or several."""
        try:
            for one in self._frames.fed(data):
                waiting = self._waiting.pop(one.number, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(one)
        except BrokenFrame:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone: nobody waits any longer."""
        self._transport = None
        self.ended.set()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(ProcessGone("the process for past states ended"))

    def close(self) -> None:
        """End the connection, by which the process ends too."""
        if self._transport is not None:
            self._transport.abort()

    async def open(self, told: Any) -> None:
        """Say what to serve, and wait until it is served. Raises ProcessGone."""
        await self._asked(frame(OPENING, told))

    async def ask(self, question: Any, body: bytes) -> Answered:
        """One question to its answer. Raises ProcessGone where the process ends before it is there."""
        answer = await self._asked(frame(next(self._numbers), question, body))
        try:
            told = answer.told()
        except BrokenFrame as error:
            self.close()
            raise ProcessGone(str(error)) from error
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told["headers"]]
        return Answered(told["status"], headers, answer.body)

    async def _asked(self, question: Frame) -> Frame:
        if self._transport is None:
            raise ProcessGone("the process for past states is not there")
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[question.number] = future
        self._transport.write(question.encoded())
        try:
            return await future
        finally:
            self._waiting.pop(question.number, None)
