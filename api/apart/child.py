"""The process itself: the same application over the same store, asked over its standard input.

It follows the journal as `kvledger serve` does, writes nothing and listens nowhere. It ends when the other
side of its connection is gone, or, should something else hold that open, when its parent is another one than
it was told: in every case without a word, and in seconds.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from kvledger.api.apart.wire import OPENING, THERE, BrokenFrame, Frame, Frames, frame
from kvledger.api.app import create_app
from kvledger.api.library import Library
from kvledger.api.settings import ApiSettings
from kvledger.api.told.hiding import Hiding
from kvledger.journal import Journal
from kvledger.journal.database import store_url

log = logging.getLogger("kvledger.api")

READ_BYTES = 65_536

PARENT_SECONDS = 1.0
"""How often it is looked whose child this is."""

LEAVE_SECONDS = 2.0
"""How long a state that is being computed, and the closing of the store, may take at the end."""

UNMETERED = 1_000_000_000
"""Requests a second: what may be asked was counted where it was asked."""

HERE = "127.0.0.1"
"""By what name and whose address the application is asked: who may ask was decided on the other side."""


def main() -> None:
    """Serve what standard input says until that ends."""
    # Whoever stops the scheduler from a terminal means the scheduler.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=os.dup(0))
    frames = Frames()
    orders = _orders(connection, frames)
    if orders is None:
        return
    hide = Hiding.of(orders["hiding"])
    store = Journal(store_url(orders["database"]))
    library = Library(
        store, first=orders["journal"], hide=hide, followed=orders["limits"]["followed_journals"]
    )
    settings = ApiSettings(
        host=HERE,
        token=None,
        reveal_tokens=hide.reveals,
        requests_per_second=UNMETERED,
        allowed_hosts=(),
        **orders["limits"],
    )
    app = create_app(settings, library)
    connection.setblocking(False)
    asyncio.run(_serve(app, connection, frames, parent=orders["parent"]))


def _orders(connection: socket.socket, frames: Frames) -> dict[str, Any] | None:
    """The first frame; None where the other side is gone before it came."""
    while data := connection.recv(READ_BYTES):
        for one in frames.fed(data):
            told: dict[str, Any] = one.told()
            return told
    return None


async def _serve(app: FastAPI, connection: socket.socket, frames: Frames, *, parent: int) -> None:
    loop = asyncio.get_running_loop()
    async with app.router.lifespan_context(app):
        answering = Answering(app, frames)
        await loop.create_unix_connection(lambda: answering, sock=connection)
        answering.send(frame(OPENING, {}))
        while not answering.ended.is_set() and os.getppid() == parent:
            try:
                await asyncio.wait_for(answering.ended.wait(), PARENT_SECONDS)
            except TimeoutError:
                continue
        _leave_soon()
    os._exit(0)


def _leave_soon() -> None:
    """End after LEAVE_SECONDS whatever is still done: nobody waits for it, and threads could hold it up."""
    threading.Timer(LEAVE_SECONDS, os._exit, args=(0,)).start()


class Answering(asyncio.Protocol):
    """This end of the connection: each question is put to the application as a request."""

    def __init__(self, app: ASGIApp, frames: Frames) -> None:
        self.ended = asyncio.Event()
        self._app = app
        self._frames = frames
        self._transport: asyncio.WriteTransport | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        if isinstance(transport, asyncio.WriteTransport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Part of a question came, or several."""
        try:
            for one in self._frames.fed(data):
                if one.number == THERE:
                    self.send(frame(THERE, {}))
                    continue
                task = asyncio.get_running_loop().create_task(self._answer(one))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        except BrokenFrame:
            log.exception("the process for past states was sent what is no question, and ends")
            self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The service is gone."""
        self._transport = None
        self.ended.set()

    def send(self, answer: Frame) -> None:
        """Send a frame, if there still is somebody."""
        if self._transport is not None:
            self._transport.write(answer.encoded())

    async def _answer(self, question: Frame) -> None:
        started: MutableMapping[str, Any] = {}
        parts: list[bytes] = []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": question.body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                parts.append(message.get("body", b""))

        try:
            await self._app(_scope(question.told(), len(question.body)), receive, send)
        except Exception:
            # The application answered already that it failed at this (headers.py).
            log.exception("the process for past states failed at a question")
        if not started:
            # Nobody may wait for what does not come: the service answers itself once this process is gone.
            self.ended.set()
            return
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in started["headers"]]
        self.send(frame(question.number, {"status": started["status"], "headers": headers}, b"".join(parts)))


def _scope(told: Any, body_bytes: int) -> dict[str, Any]:
    """A question as the application takes it."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told["headers"]]
    headers += [(b"host", HERE.encode()), (b"content-length", str(body_bytes).encode())]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": told["method"],
        "scheme": "http",
        "path": told["path"],
        "raw_path": told["raw_path"].encode("latin-1"),
        "query_string": told["query"].encode("latin-1"),
        "root_path": "",
        "headers": headers,
        "client": (HERE, 0),
        "server": (HERE, 80),
        "state": {},
    }
