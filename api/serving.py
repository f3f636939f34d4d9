"""The server around the application: uvicorn, set up so that it tells nobody what must not be told.

Addresses are not logged, because one may hold a token. When it goes down the event streams end first: they
would never end by themselves, and uvicorn waits for every answer. A child that a process forks gets no part
of it: a socket that listens in two processes would take connections that nobody answers.
"""

import asyncio
import os
import signal
import socket
import weakref
from types import FrameType

import uvicorn
from fastapi import FastAPI

from kvledger.api.access import TokenRequired, is_loopback
from kvledger.api.connections import PatientConnection
from kvledger.api.room import MOST_CONNECTIONS, Room
from kvledger.api.settings import ApiSettings
from kvledger.api.streams import Streams
from kvledger.core.errors import CacheError

SHUTDOWN_SECONDS = 10
"""Answers that take longer are cut when the service goes down."""

KEEP_ALIVE_SECONDS = 30
"""A connection without a request is closed after this: a page that is open asks more often."""

HEADER_BYTES = 65_536
"""More than any browser sends; a longer head is refused while it is read."""

BACKLOG = 128
"""Connections that may wait to be accepted."""


_LISTENING: weakref.WeakSet[socket.socket] = weakref.WeakSet()
"""The sockets that services of this process listen at."""


def _forget_listening() -> None:
    """In a child that was forked: the parent alone listens."""
    for listening in _LISTENING:
        listening.close()


os.register_at_fork(after_in_child=_forget_listening)


EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean all of a machine's, which nobody can open, and the one that is always among them."""


class CannotListen(CacheError):
    """The address that the service was to listen at cannot be had."""


class Service(uvicorn.Server):
    """Serves one application. `listen` first; then `run`, in the main thread or in one of its own."""

    def __init__(self, app: FastAPI) -> None:
        settings: ApiSettings = app.state.settings
        streams: Streams = app.state.streams
        self._settings = settings
        self._streams = streams
        self._socket: socket.socket | None = None
        self.url = ""
        """Where it can be opened on this machine, known from `listen` on."""
        self.is_everywhere = False
        """Whether it listens at every address of this machine; then `url` has the loopback one."""
        self.was_interrupted = False
        """Whether a SIGINT ended it."""
        super().__init__(
            uvicorn.Config(
                app,
                http=PatientConnection,
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                lifespan="on",
                ws="none",
                proxy_headers=False,
                backlog=BACKLOG,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=SHUTDOWN_SECONDS,
                h11_max_incomplete_event_size=HEADER_BYTES,
            )
        )
        room: Room = app.state.room
        room.connections = self.server_state.connections

    def listen(self) -> str:
        """Take the address and return the URL: connections are accepted from here on, answered once it runs.

        Raises CannotListen, and TokenRequired where a name that sounds like this machine leads elsewhere.
        """
        host, port = self._settings.host, self._settings.port
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            made = socket.create_server(address[:2], family=family, backlog=BACKLOG)
            # asyncio sends without delay only where a socket names its protocol; with it, an answer of two
            # parts on a connection that is kept would wait 40 ms for the first one to be acknowledged.
            bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())
        except (OSError, UnicodeError) as error:
            raise CannotListen(f"cannot listen at {host!r}, port {port}: {error}") from error
        name, taken = bound.getsockname()[:2]
        if self._settings.token is None and not is_loopback(name):
            bound.close()
            raise TokenRequired(f"{host!r} is {name}, not a loopback address: set a token")
        self._socket = bound
        _LISTENING.add(bound)
        self.is_everywhere = name in EVERYWHERE
        opened = EVERYWHERE.get(name, name)
        self.url = f"http://[{opened}]:{taken}" if ":" in opened else f"http://{opened}:{taken}"
        return self.url

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `should_exit` is set or a signal comes."""
        if self._socket is None:
            self.listen()
        super().run(sockets=[self._socket] if self._socket is not None else sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came: end, and remember which it was.

        The server beneath raises it once more at the end, for whoever had the signal before. Where it was
        ignored then, which a shell without job control does to what it runs in the background, nobody hears.
        """
        self.was_interrupted = self.was_interrupted or sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then all else."""
        self._streams.end()
        if self._socket is not None:
            # asyncio loses a connection that it is accepting while the server is closed, and its socket stays
            # open: no more are taken, and those on their way are let in, which is two turns of the loop.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _ in range(2):
                await asyncio.sleep(0)
        await super().shutdown(sockets)
