"""The service's end of the connection to its own process: many questions under way, each one answered.

Belongs to the event loop of the service. It passes bytes on and reads none of them: what an answer costs in
the scheduler's process is one frame out and one frame in. While questions are under way it makes sure that
the process is there: one that was stopped, or hangs, keeps its connection open and would never answer.
"""

import asyncio
from dataclasses import dataclass
from itertools import count
from typing import Any

from kvledger.api.apart.wire import NUMBERS, OPENING, THERE, BrokenFrame, Frame, Frames, frame
from kvledger.core.errors import CacheError

Headers = list[tuple[bytes, bytes]]

LOOK_SECONDS = 1.0
"""How often it is looked whether anything came, while questions are under way."""

SILENT_LOOKS = 20
"""After so many looks in a row at which nothing had come the process is given up. Its event loop answers at
once, whatever its workers do. Looks are counted, not seconds: a machine that slept wakes up to one look."""


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
        self._numbers = count()
        self._transport: asyncio.WriteTransport | None = None
        self._looking: asyncio.Task[None] | None = None
        self._heard = False
        """Whether anything came since the last look."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of an answer came, or several."""
        self._heard = True
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
        """One question to its answer.

        Raises ProcessGone where the process ends, or falls silent, before it is there.
        """
        number = next(self._numbers) % NUMBERS + 1
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look_after_it())
        answer = await self._asked(frame(number, question, body))
        try:
            told = answer.told()
        except BrokenFrame as error:
            self.close()
            raise ProcessGone(str(error)) from error
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told["headers"]]
        return Answered(told["status"], headers, answer.body)

    async def _look_after_it(self) -> None:
        """While questions are under way: ask whether anybody is there, and end a silent connection."""
        silent, self._heard = 0, False
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                if not self._waiting or self._transport is None:
                    return
                silent = 0 if self._heard else silent + 1
                self._heard = False
                if silent == 1:
                    self._transport.write(frame(THERE, {}).encoded())
                if silent > SILENT_LOOKS:
                    self.close()
                    return
        finally:
            self._looking = None

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
