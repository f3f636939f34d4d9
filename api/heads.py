"""HEAD: whoever takes GET takes it, and answers with the same headers and no body (RFC 9110, 9.3.2).

The layer asks the application for the GET and lets nothing of its body out. An answer is over once its
headers are known: an event stream, which has no end, begins and is left. No route says that it takes HEAD,
so that none can forget it; the OpenAPI document lists GET alone.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadLayer:
    """Answers HEAD as `app` answers GET, without the body; where GET is allowed, HEAD is named beside it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD"

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 405:
                    _allow_head(message)
                await send(message)
                if is_head:
                    # Whoever goes on making a body is told that its reader is gone, as the server tells it.
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif not is_head:
                await send(message)

        # A copy: the server frames the answer by the method that it has read.
        asked = {**scope, "method": "GET"} if is_head else scope
        await self._app(asked, receive, without_body)


def _allow_head(message: Message) -> None:
    """Name HEAD in an Allow header that names GET."""
    headers = MutableHeaders(scope=message)
    methods = {name.strip() for name in headers.get("allow", "").split(",")}
    if "GET" in methods:
        headers["allow"] = ", ".join(sorted(methods | {"HEAD"}))
