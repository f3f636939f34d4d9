"""How and how often a process for the past is started, and what goes there."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from kvledger.api.apart import ApartLayer, Orders, OwnProcess, process
from kvledger.api.apart.attempts import Attempts
from kvledger.api.apart.layer import STATES
from kvledger.api.apart.link import Answered, ProcessGone
from kvledger.api.audits import Audits
from kvledger.api.library import Library
from kvledger.journal import interpreter
from tests.support.service import client_over, recorded


def test_a_process_is_started_so_often_in_so_long_and_then_again() -> None:
    now = 0.0
    attempts = Attempts(limit=2, window_seconds=10, clock=lambda: now)
    assert [attempts.begin() for _ in range(3)] == [True, True, False]
    now = 9.9
    assert not attempts.begin()
    now = 10.0
    assert attempts.begin()
    assert attempts.begun == 3


def test_it_looks_for_modules_where_its_scheduler_does_whatever_stands_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["/one", "", Path("/no-text"), None, "/two"])
    assert interpreter._places("/the/folder") == ["/one", "/the/folder", "/two"]


def test_a_place_with_the_separator_in_its_name_is_one_place_and_keeps_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [tmp_path / "first", tmp_path / f"é{os.pathsep}parts", tmp_path / "last"]
    # The parts of the name are places too, which nobody named.
    for place in (*places, tmp_path / "é", tmp_path / "parts"):
        place.mkdir()
        (place / "in_all_but_the_first.py").write_text("import os\nHERE = os.path.dirname(__file__)")
    (places[0] / "in_all_but_the_first.py").unlink()
    monkeypatch.setattr(sys, "path", [*map(str, places), *sys.path])
    heard, said = os.pipe()
    program = f"import os, in_all_but_the_first as found; os.write({said}, os.fsencode(found.HERE))"
    with (
        open(os.devnull) as nothing,
        interpreter.fresh_interpreter(
            program, folder=str(tmp_path), stdin=nothing.fileno(), keeping=[said]
        ) as started,
    ):
        os.close(said)
        assert started.wait() == 0
    with open(heard, "rb") as told:
        assert told.read() == bytes(places[1])


def test_a_packed_program_is_not_begun_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(ValueError, match="packed"):
        process._spawn("/")


def test_one_that_was_closed_is_never_started_again() -> None:
    async def asked() -> None:
        own = OwnProcess(Orders(database="", journal=None, hiding={}, limits={}, parent=0))
        await own.close()
        own.begin()
        with pytest.raises(ProcessGone):
            await own.ask({})
        assert (own.attempts.begun, own.pid, own.phase) == (0, None, "idle")

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
