"""Connections that must not last: who sends a request too slowly, or does not take its answer, is cut.

A server has room for so many connections, and each costs its client nothing. So a request has to arrive, and
what is sent has to be taken, within a time; a connection between two requests is uvicorn's to close, and an
event stream, which has no end, sends often enough to be seen taking. What is no HTTP is answered here too, as
a problem document.
"""

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kvledger.api.problems import PROBLEM_TYPE

REQUEST_SECONDS = 20.0
"""From the beginning of a connection, or of a request on one that is kept, to the end of that request."""

TAKE_SECONDS = 20.0
"""How long a reader may take nothing while something waits to be sent to it."""


WHOLE = (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)
"""What a client's side of a connection stands at once nothing more of a request is to come."""


class PatientConnection(H11Protocol):
    """One connection, with an end to its server's patience."""

    _request_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there: its first request may take so long."""
        super().connection_made(transport)
        self._watch_request(came=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_watching_request()
        self._stop_watching_reader()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request came."""
        super().data_received(data)
        self._watch_request(came=True)

    def on_response_complete(self) -> None:
        """An answer is out: the time of the next request begins when something of it comes or has come."""
        self._stop_watching_request()
        super().on_response_complete()
        self._watch_request(came=False)

    def pause_writing(self) -> None:
        """The client takes what was sent more slowly than it is sent."""
        super().pause_writing()
        self._stop_watching_reader()
        self._watch_reader(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """It has taken most of it."""
        self._stop_watching_reader()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, and close."""
        status = HTTPStatus.BAD_REQUEST
        problem = {"type": "about:blank", "title": "No HTTP", "status": int(status), "detail": msg}
        body = json.dumps(problem).encode()
        headers = [
            (b"content-type", PROBLEM_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"connection", b"close"),
        ]
        head = h11.Response(status_code=status, headers=headers, reason=status.phrase.encode())
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _watch_request(self, *, came: bool) -> None:
        """Begin or end the time of a request, of which something `came`."""
        if self.conn.their_state in WHOLE or self.transport.is_closing():
            self._stop_watching_request()
        elif self._request_timer is None and (came or not self.cycle.response_complete):
            self._request_timer = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_watching_request(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _watch_reader(self, waiting_bytes: int) -> None:
        self._reader_timer = self.loop.call_later(TAKE_SECONDS, self._look_at_reader, waiting_bytes)

    def _look_at_reader(self, waiting_bytes: int) -> None:
        """Cut a reader of which as much waits as before; one that takes something has the same time again."""
        waiting = self.transport.get_write_buffer_size()
        if waiting >= waiting_bytes:
            self.transport.abort()
        else:
            self._watch_reader(waiting)

    def _stop_watching_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
