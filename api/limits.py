"""How much one client may ask, and how large: sizes of address, query and body, and requests a second.

A body that is too large is refused by what it says of its length, and counted as it comes where it says
nothing. What is left of it is read and thrown away, up to a bound: a connection that is closed over unread
bytes is reset, and its client would never see the refusal. The rate is each client address's own.
"""

import math
import time

from limits import RateLimitItemPerSecond
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvledger.api.access import OPEN_PATHS
from kvledger.api.problems import Refusal, problem_response, too_many
from kvledger.api.settings import ApiSettings

THROWN_AWAY_BYTES = 64 * 2**20
"""Of a body that is refused: more than is sent by mistake, and read in a fraction of a second."""


class SizeLayer:
    """Refuses addresses (414) and bodies (413) that are larger than any sensible one."""

    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app = app
        self._body_bytes = settings.body_bytes
        self._query_bytes = settings.query_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            if refusal.status == 413 and "expect" not in Headers(scope=scope):
                await throw_away(receive)
            await problem_response(refusal)(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._body_bytes:
                if message.get("more_body"):
                    await throw_away(receive)
                # An HTTPException: whoever reads the body passes on no other error as it is.
                raise HTTPException(413, detail=self._too_large())
            return message

        await self._app(scope, counted, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        address = len(scope["query_string"]) + len(scope.get("raw_path") or scope["path"].encode())
        if address > self._query_bytes:
            return Refusal(
                414,
                title="Address too long",
                detail=f"an address has at most {self._query_bytes:,} bytes, this one {address:,}",
            )
        length = Headers(scope=scope).get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return Refusal(400, title="Refused", detail="Content-Length is no number")
        # Compared as text first: a number of a thousand digits is not worth reading.
        if len(length.lstrip("0")) > len(str(self._body_bytes)) or int(length) > self._body_bytes:
            return Refusal(413, title="Body too large", detail=self._too_large())
        return None

    def _too_large(self) -> str:
        return f"a body has at most {self._body_bytes:,} bytes"


async def throw_away(receive: Receive) -> None:
    """Read the rest of a body, up to THROWN_AWAY_BYTES, and keep nothing of it."""
    left, more = THROWN_AWAY_BYTES, True
    while more and left > 0:
        message = await receive()
        left -= len(message.get("body", b""))
        more = message["type"] == "http.request" and message.get("more_body", False)


class RateLayer:
    """Refuses (429) what a client asks beyond its rate; the probe of the process is not counted."""

    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app = app
        self._rate = RateLimitItemPerSecond(settings.requests_per_second)
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            client = scope.get("client")
            address = "unknown" if client is None else client[0]
            if not await self._limiter.hit(self._rate, address):
                stats = await self._limiter.get_window_stats(self._rate, address)
                refusal = too_many(
                    f"{self._rate.amount} requests a second is the limit for one client",
                    retry_after_s=math.ceil(stats.reset_time - time.time()),
                )
                await problem_response(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)
