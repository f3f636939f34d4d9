"""Headers that every answer carries: nothing foreign is loaded, framed or sniffed.

Answers that can never change may be kept (etags.py); all others are asked for again each time.
"""

import asyncio

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvledger.api.etags import KEEP, REVALIDATE, TAG
from kvledger.api.problems import problem_response, refusal_of, unavailable

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class HeaderLayer:
    """Puts `HEADERS` and a Cache-Control on every answer of `app`; where that fails or is cut, it answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                tag = state.get(TAG)
                if tag is not None and message["status"] == 200:
                    headers["ETag"] = tag
                    headers["Cache-Control"] = KEEP
                headers.setdefault("Cache-Control", REVALIDATE)
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
        except asyncio.CancelledError:
            if started:
                raise
            # The server goes down and waits no longer. The task ends here, and its reader is told why.
            await problem_response(unavailable("the service is going down"))(scope, receive, with_headers)
        except Exception as error:
            if not started:
                await problem_response(refusal_of(error))(scope, receive, with_headers)
            # The server logs it.
            raise
