"""What the service and its own process send each other, how often one is started, and what goes there."""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from kvledger.api.apart import ApartLayer, Orders, OwnProcess
from kvledger.api.apart.attempts import Attempts
from kvledger.api.apart.child import Answering
from kvledger.api.apart.layer import STATES
from kvledger.api.apart.link import Answered, Link, ProcessGone
from kvledger.api.apart.wire import BODY_BYTES, HEAD_BYTES, PREFIX, BrokenFrame, Frame, Frames, frame
from kvledger.api.audits import Audits
from kvledger.api.library import Library
from tests.support.service import client_over, recorded

SENT = [frame(1, {"a": "é"}, b"\x00body"), frame(2, {}), frame(3, [], b"x" * 300)]


@pytest.mark.parametrize("size", [1, 2, 7, 11, 12, 13, 100, 1_000])
def test_frames_are_whole_again_however_they_were_cut(size: int) -> None:
    data = b"".join(one.encoded() for one in SENT)
    frames = Frames()
    pieces = [data[place : place + size] for place in range(0, len(data), size)]
    assert [one for piece in pieces for one in frames.fed(piece)] == SENT
    assert SENT[0].told() == {"a": "é"}


@pytest.mark.parametrize("claims", [(HEAD_BYTES + 1, 0), (0, BODY_BYTES + 1)])
def test_a_frame_that_claims_more_than_there_may_be_is_refused(claims: tuple[int, int]) -> None:
    with pytest.raises(BrokenFrame):
        list(Frames().fed(PREFIX.pack(1, *claims)))


def test_a_head_that_is_no_json_is_refused() -> None:
    with pytest.raises(BrokenFrame):
        Frame(1, b"{").told()


def test_a_process_is_started_so_often_in_so_long_and_then_again() -> None:
    now = 0.0
    attempts = Attempts(limit=2, window_seconds=10, clock=lambda: now)
    assert [attempts.begin() for _ in range(3)] == [True, True, False]
    now = 9.9
    assert not attempts.begin()
    now = 10.0
    assert attempts.begin()
    assert attempts.begun == 3


class Sent(asyncio.Transport):
    """The other side of a link: takes what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: Any) -> None:
        self.data += data

    def abort(self) -> None:
        self.data = b"aborted"


def test_each_question_gets_its_own_answer_in_whatever_order_they_come() -> None:
    async def asked() -> list[bytes]:
        link, sent = Link(), Sent()
        link.connection_made(sent)
        questions = [asyncio.ensure_future(link.ask({"n": n}, b"")) for n in range(3)]
        await asyncio.sleep(0)
        for one in reversed(list(Frames().fed(sent.data))):
            told = {"status": 200, "headers": []}
            link.data_received(frame(one.number, told, str(one.told()["n"]).encode()).encoded())
        return [answer.body for answer in await asyncio.gather(*questions)]

    assert asyncio.run(asked()) == [b"0", b"1", b"2"]


def test_whoever_waits_when_the_process_ends_is_told_so_and_whoever_comes_later_too() -> None:
    async def asked() -> None:
        link = Link()
        link.connection_made(Sent())
        question = asyncio.ensure_future(link.ask({}, b""))
        await asyncio.sleep(0)
        link.connection_lost(None)
        for lost in (question, link.ask({}, b"")):
            with pytest.raises(ProcessGone):
                await lost
        assert link.ended.is_set()

    asyncio.run(asked())


def test_an_answer_that_is_no_frame_ends_the_connection() -> None:
    async def asked() -> None:
        link, sent = Link(), Sent()
        link.connection_made(sent)
        question = asyncio.ensure_future(link.ask({}, b""))
        await asyncio.sleep(0)
        (one,) = Frames().fed(sent.data)
        link.data_received(Frame(one.number, b"no json").encoded())
        with pytest.raises(ProcessGone):
            await question
        assert sent.data == b"aborted"

    asyncio.run(asked())


def test_one_that_was_closed_is_never_started_again() -> None:
    async def asked() -> None:
        process = OwnProcess(Orders(database="", journal=None, hiding={}, limits={}, parent=0))
        await process.close()
        process.begin()
        with pytest.raises(ProcessGone):
            await process.ask({})
        assert (process.attempts.begun, process.pid, process.phase) == (0, None, "idle")

    asyncio.run(asked())


@dataclass
class Asked:
    """Stands for the process: counts what it is asked."""

    phase: str = "up"
    questions: list[Any] = field(default_factory=list)
    begun: int = 0

    def begin(self) -> None:
        self.begun += 1

    async def ask(self, question: Any, body: bytes = b"") -> Answered:
        self.questions.append((question, body))
        if self.phase == "gone":
            raise ProcessGone("there is none")
        return Answered(200, [(b"x", b"there")], b"there")


def put(
    method: str,
    address: str,
    *,
    body: bytes = b"",
    heard: int = 100,
    failed: bool = False,
    audited: bool = False,
    phase: str = "up",
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> tuple[str, bytes, Asked]:
    """Where a request is answered, the body that is read there, and the process."""
    process = Asked(phase)
    seen = b""

    async def here(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal seen
        more = True
        while more:
            message = await receive()
            seen += message["body"]
            more = message["more_body"]
        await send({"type": "http.response.body", "body": b"here"})

    timeline = SimpleNamespace(heard_seq=heard, has_failed=failed)
    library = SimpleNamespace(
        opened_before=lambda journal: SimpleNamespace(timeline=timeline) if journal == 1 else None
    )
    layer = ApartLayer(
        here,
        library=cast(Library, library),
        audits=cast(Audits, SimpleNamespace(begun=audited)),
        process=cast(OwnProcess, process),
    )
    path, _, query = address.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": list(headers),
    }
    parts = [body[:5], body[5:]]
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(layer(scope, receive, send))
    where = sent[-1]["body"].decode()
    return where, seen if where == "here" else process.questions[-1][1], process


J = "/v1/journals/1"


@pytest.mark.parametrize(
    ("address", "where"),
    [
        (f"{J}/tree?at=99", "there"),
        (f"{J}/tree?at=100", "here"),
        (f"{J}/tree", "here"),
        (f"{J}/tree?at=", "here"),
        (f"{J}/tree?at=-1", "here"),
        (f"{J}/tree?at=9&at=8", "here"),
        (f"{J}/tree?at=%39", "there"),
        (f"{J}/tree?at=99999999999999999999", "here"),
        (f"{J}/tree/?at=9", "here"),
        ("/v1/journals/2/tree?at=9", "here"),
        ("/v1/journals/tree?at=9", "here"),
        ("/v1/journals/1?at=9", "here"),
        (f"{J}/diff?from=9&to=99", "there"),
        (f"{J}/diff?from=9&to=100", "here"),
        (f"{J}/diff?from=100&to=9", "here"),
        (f"{J}/diff?from=9", "here"),
        (f"{J}/chain?at=9", "here"),
        (f"{J}/requests/a%2Fb?at=9", "there"),
        (f"{J}/events?at=9", "there"),
        (f"{J}/events", "there"),
        (f"{J}/events/stream", "here"),
        (f"{J}/events/stream?at=9", "here"),
        (f"{J}/nodes/7/history", "there"),
        (f"{J}/slots/full/7/history", "there"),
        ("/healthz?at=9", "here"),
        ("/metrics", "here"),
    ],
)
def test_what_is_settled_and_what_is_only_read_goes_there(address: str, where: str) -> None:
    assert put("GET", address)[0] == where


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b'{"tokens": [1], "at": 99}', "there"),
        (b'{"at" : 99 , "tokens": [1]}', "there"),
        (b'{"tokens": [1], "at": 100}', "here"),
        (b'{"tokens": [1], "at": null}', "here"),
        (b'{"tokens": [1]}', "here"),
        (b'{"tokens": [1], "at": 9.0}', "here"),
        (b'{"tokens": [1], "at": 99, "at": null}', "here"),
        (b'{"tokens": [1], "namespace": "\\"at\\": 9,"}', "here"),
        (b'{"tokens": [1], "namespace": "at"}', "here"),
        (b'"at"', "here"),
        (b"", "here"),
    ],
)
def test_an_explanation_goes_there_by_the_seq_in_its_body_which_is_passed_on_whole(
    body: bytes, where: str
) -> None:
    assert put("POST", f"{J}/explain", body=body)[:2] == (where, body)


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_audits_are_all_there_or_where_one_was_begun_here_all_here(method: str) -> None:
    for address in (f"{J}/audits", f"{J}/audits/5/cancel", f"{J}/audits/5"):
        assert put(method, address)[0] == "there"
        assert put(method, address, audited=True)[0] == "here"


def test_of_a_journal_that_does_not_fold_nothing_is_asked_there() -> None:
    assert put("GET", f"{J}/tree?at=9", failed=True)[0] == "here"


def test_what_the_process_does_not_answer_is_answered_here_with_its_whole_body() -> None:
    body = b'{"tokens": [1], "at": 99}'
    where, seen, process = put("POST", f"{J}/explain", body=body, phase="gone")
    assert (where, seen, len(process.questions)) == ("here", body, 1)


def test_lists_wait_for_no_process_that_is_not_there_yet() -> None:
    for phase in ("idle", "starting", "gone"):
        where, _, process = put("GET", f"{J}/events", phase=phase)
        assert (where, process.questions, process.begun) == ("here", [], 1)


def test_neither_token_nor_cookie_nor_origin_is_passed_on() -> None:
    headers = (
        (b"authorization", b"Bearer secret"),
        (b"cookie", b"kvledger_token=secret"),
        (b"origin", b"http://secret"),
        (b"host", b"secret"),
        (b"if-none-match", b'"tag"'),
        (b"accept-encoding", b"gzip"),
    )
    _, _, process = put("GET", f"{J}/tree?at=9", headers=headers)
    told = process.questions[0][0]
    assert "secret" not in json.dumps(told)
    assert dict(told["headers"]) == {"if-none-match": '"tag"', "accept-encoding": "gzip"}


def test_every_address_that_shows_a_state_is_known_as_such(openapi: dict[str, Any]) -> None:
    shows = set()
    for path, operations in openapi["paths"].items():
        named = {one["name"] for operation in operations.values() for one in operation.get("parameters", ())}
        if named & {"at", "from"}:
            shows.add(path.removeprefix("/v1/journals/{journal}/").partition("/")[0])
    assert shows == STATES


@pytest.fixture
def openapi(tmp_path: Path) -> dict[str, Any]:
    with client_over(recorded(tmp_path, requests=3)) as client:
        document: dict[str, Any] = client.get("/openapi.json").json()
        return document


@pytest.mark.parametrize("head", [{"no": "question"}, {"method": "GET"}])
def test_a_question_that_gets_no_answer_ends_the_process_and_keeps_nobody_waiting(
    head: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """Answers nothing."""

    async def asked() -> bool:
        answering = Answering(app, Frames())
        answering.connection_made(Sent())
        answering.data_received(frame(1, head).encoded())
        await asyncio.wait_for(answering.ended.wait(), 30)
        return answering.ended.is_set()

    assert asyncio.run(asked())
    assert "failed at a question" in caplog.text
