"""Room for so many connections: while there are more, what comes is refused (503) and told when to come back.

The server beneath has such a limit too, whose answer is a bare line of text. It stays, further up, as the end
of what this layer can answer kindly. The probe of the process is answered up to there. A connection over
which something was refused is closed, because it is connections that are too many.
"""

import logging
from collections.abc import Sized

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kvledger.api.access import OPEN_PATHS
from kvledger.api.limits import throw_away
from kvledger.api.problems import problem_response, unavailable

log = logging.getLogger("kvledger.api")

CONNECTIONS = 512
"""A process has 1,024 descriptors by default, and the scheduler beside an Inspector needs some of them."""

MOST_CONNECTIONS = CONNECTIONS + 128
"""Where the server's own limit stands: from here on it answers 503 itself, without a document. So many more
may wait for a refusal at the same time."""

RETRY_SECONDS = 5
"""When to come back: a connection that asks for nothing is closed after some tens of seconds, so that each
second some are."""


class Room:
    """How many connections there are, and how many there may be. Without a server nobody counts them."""

    def __init__(self, *, limit: int = CONNECTIONS) -> None:
        self.limit = limit
        self.connections: Sized = ()
        """The server's open connections; whoever starts it puts them here."""
        self._was_full = False

    def is_full(self) -> bool:
        """Whether there are more than there may be. Logs when that begins."""
        full = len(self.connections) > self.limit
        if full and not self._was_full:
            log.warning("more than %s connections are open: what comes is refused", self.limit)
        self._was_full = full
        return full


class RoomLayer:
    """Refuses what comes while `room` is full; the probe of the process is let through."""

    def __init__(self, app: ASGIApp, *, room: Room) -> None:
        self._app = app
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or not self._room.is_full():
            await self._app(scope, receive, send)
            return
        if "expect" not in Headers(scope=scope):
            await throw_away(receive)
        refusal = unavailable(
            f"more than {self._room.limit:,} connections are open, which is the limit",
            retry_after_s=RETRY_SECONDS,
        )
        refusal.headers["Connection"] = "close"
        await problem_response(refusal)(scope, receive, send)
