"""What is answered where the application does not get to its answer."""

import asyncio
import json
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from kvledger.api.headers import HEADERS, HeaderLayer


def cut(*, begun: bool) -> tuple[list[Message], bool]:
    """What is sent where the server cancels a request, its answer begun or not; whether that passes on."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        reached.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def asked() -> bool:
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
        task = asyncio.ensure_future(HeaderLayer(app)(scope, receive, send))
        await reached.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    sent: list[Message] = []
    reached = asyncio.Event()
    return sent, asyncio.run(asked())


def test_who_waits_when_the_service_has_no_more_time_is_told_that_it_goes_down() -> None:
    (start, body), passed_on = cut(begun=False)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert (start["status"], headers["content-type"]) == (503, "application/problem+json")
    assert json.loads(body["body"])["detail"] == "the service is going down"
    assert "retry-after" in headers
    assert {name.lower() for name in HEADERS} <= headers.keys()
    assert not passed_on


def test_an_answer_that_has_begun_is_cut_and_nothing_is_put_behind_it() -> None:
    sent, passed_on = cut(begun=True)
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert passed_on
