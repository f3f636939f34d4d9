"""Connections that somebody holds up: each is cut in its time, and what is refused is told to its sender."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kvledger.api import connections, room, streams
from kvledger.api.connections import PatientConnection
from kvledger.api.room import Room
from kvledger.api.serving import Service
from tests.support.service import DEADLINE_SECONDS, library_over, recorded, served

EXPLAIN = "/v1/journals/1/explain"
POST = f"POST {EXPLAIN} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ALIVE = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
EVENTS = "GET /v1/journals/1/events?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
BIG = 10_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    path: Path = recorded(tmp_path_factory.mktemp("connections"))
    with library_over(path) as library, served(library) as service:
        yield service


def connected(service: Service, *, buffer: int | None = None) -> socket.socket:
    """A connection of which nothing was sent yet; reading it fails where nothing comes for long."""
    made = socket.socket()
    if buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(DEADLINE_SECONDS)
    host, _, port = service.url.removeprefix("http://").rpartition(":")
    made.connect((host, int(port)))
    return made


def to_its_end(connection: socket.socket) -> bytes:
    """All that comes until the other side closes or cuts the connection."""
    taken = b""
    try:
        while part := connection.recv(65_536):
            taken += part
    except ConnectionResetError:
        pass
    return taken


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "GET / HTTP/1.1\r\nHost: local",
        POST + "Content-Length: 1000\r\n\r\n{",
        POST + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
        ALIVE + "GET / HT",
        ALIVE + POST + "Content-Length: 1000\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body", "half a chunked body", "half a second", "a second body"],
)
def test_a_request_that_does_not_arrive_in_time_is_cut(
    service: Service, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.2)
    with connected(service) as connection:
        connection.sendall(sent.encode())
        to_its_end(connection)
    assert httpx.get(f"{service.url}/healthz").status_code == 200


def test_a_reader_that_takes_nothing_is_cut(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    cut = threading.Event()
    lost = PatientConnection.connection_lost

    def noted(connection: PatientConnection, error: Exception | None) -> None:
        lost(connection, error)
        cut.set()

    monkeypatch.setattr(connections, "TAKE_SECONDS", 0.2)
    monkeypatch.setattr(PatientConnection, "connection_lost", noted)
    with connected(service, buffer=2_048) as connection:
        question = "GET /v1/journals/1/events?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(question.encode() * 60)
        assert cut.wait(DEADLINE_SECONDS), "it still waits"


def test_a_stream_outlasts_the_time_of_a_request(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.1)
    with (
        httpx.Client(timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", f"{service.url}/v1/journals/1/events/stream") as response,
    ):
        heads = 0
        for line in response.iter_lines():
            heads += line == "event: head"
            if heads == 5:
                break
    assert heads == 5


@pytest.mark.parametrize(
    "sent", ["\0\r\n\r\n", POST + "Content-Length: -1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_http_is_answered_with_a_problem_document(service: Service, sent: str) -> None:
    with connected(service) as connection:
        connection.sendall(sent.encode())
        head, _, body = to_its_end(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["status"] == 400


@pytest.mark.parametrize("chunked", [False, True])
def test_who_sends_too_large_a_body_and_closes_is_told_so(service: Service, chunked: bool) -> None:
    body = b"x" * BIG
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {BIG}"
    if chunked:
        body = b"%x\r\n" % BIG + body + b"\r\n0\r\n\r\n"
    with connected(service) as connection:
        connection.sendall(f"{POST}Connection: close\r\n{length}\r\n\r\n".encode() + body)
        told = to_its_end(connection)
    assert told.startswith(b"HTTP/1.1 413 ")


POSTED = f"{POST}Content-Length: {{}}\r\n\r\n"


def kept(service: Service) -> socket.socket:
    """A connection over which something was asked and answered, and that is open."""
    connection = connected(service)
    connection.sendall(ALIVE.encode())
    assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    return connection


@pytest.mark.parametrize("body", [b"", b"x" * 300_000], ids=["read", "posted"])
def test_a_connection_beyond_those_there_is_room_for_is_told_when_to_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    left = threading.Semaphore(0)
    lost = PatientConnection.connection_lost

    def noted(connection: PatientConnection, error: Exception | None) -> None:
        lost(connection, error)
        left.release()

    monkeypatch.setattr(PatientConnection, "connection_lost", noted)
    question = POSTED.format(len(body)).encode() + body if body else EVENTS.encode()
    with library_over(recorded(tmp_path)) as library, served(library) as service:
        service.config.app.state.room.limit = 3  # type: ignore[union-attr]
        others = [kept(service) for _ in range(3)]
        for _ in range(2):
            with connected(service) as connection:
                connection.sendall(question)
                head, _, told = to_its_end(connection).partition(b"\r\n\r\n")
            assert left.acquire(timeout=DEADLINE_SECONDS), "it was not closed"
            assert head.startswith(b"HTTP/1.1 503 ")
            fields = {line.lower() for line in head.split(b"\r\n")}
            assert {b"content-type: application/problem+json", b"connection: close"} <= fields
            assert {b"retry-after: 5", b"x-content-type-options: nosniff"} <= fields
            problem = json.loads(told)
            assert (problem["status"], "limit" in problem["detail"]) == (503, True)
        with connected(service) as probe:
            probe.sendall(ALIVE.encode())
            assert probe.recv(65_536).startswith(b"HTTP/1.1 200 ")
        assert left.acquire(timeout=DEADLINE_SECONDS)
        others.pop().close()
        assert left.acquire(timeout=DEADLINE_SECONDS)
        with connected(service) as connection:
            connection.sendall(EVENTS.encode())
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        for one in others:
            one.close()
    assert [record.message for record in caplog.records if "connections" in record.message] == [
        "more than 3 connections are open: what comes is refused"
    ]


def test_the_server_has_a_limit_of_its_own_above_that(service: Service) -> None:
    assert Room().limit == room.CONNECTIONS == 512
    assert service.config.limit_concurrency == room.MOST_CONNECTIONS > room.CONNECTIONS
