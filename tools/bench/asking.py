"""A question to an ASGI application without a server, a socket or a client's package between."""

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message

OK = 200


async def ask(app: ASGIApp, path: str, query: Mapping[str, int] | None = None) -> bytes:
    """The body that `app` answers a GET with, asked for as a browser does: compressed where that pays.

    Raises RuntimeError for any status but 200.
    """
    answered = asyncio.Event()
    told: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
    status = 0
    headers: dict[bytes, bytes] = {}
    parts: list[bytes] = []

    async def receive() -> Message:
        if told:
            return told.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            headers.update(message["headers"])
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()

    await app(_scope(path, query or {}), receive, send)
    body = b"".join(parts)
    if headers.get(b"content-encoding") == b"gzip":
        body = gzip.decompress(body)
    if status != OK:
        raise RuntimeError(f"{path} answered {status}: {body[:300]!r}")
    return body


def _scope(path: str, query: Mapping[str, int]) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": urlencode(query).encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"accept", b"*/*"), (b"accept-encoding", b"gzip, deflate")],
        "client": ("127.0.0.1", 123),
        "server": ("127.0.0.1", None),
    }
