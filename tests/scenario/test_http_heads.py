"""Somebody asks for the headers alone: what takes GET takes HEAD, and says the same without a body."""

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from kvledger.api import metrics
from kvledger.api.streams import Streams
from tests.support.service import (
    DEADLINE_SECONDS,
    client_over,
    every_address,
    followed,
    library_over,
    recorded,
    served,
)

STREAM = "/v1/journals/1/events/stream"
TOKEN = "a-token-nobody-guesses"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("heads"))


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[TestClient]:
    with client_over(database) as client:
        followed(client)
        yield client


def test_every_address_answers_head_with_the_headers_of_get_and_no_body(client: TestClient) -> None:
    asked = {path for method, path in every_address(client.app) if method == "GET"}  # type: ignore[arg-type]
    asked |= {"/static/js/main.js", "/v1/journals/1/tree?at=700", "/nothing/here", "/v1/journals/1/tree?at=x"}
    assert len(asked) > 30
    for path in sorted(asked - {STREAM}):
        for coding in ("gzip", "identity"):
            whole = client.get(path, headers={"Accept-Encoding": coding})
            head = client.head(path, headers={"Accept-Encoding": coding})
            assert (head.status_code, head.content) == (whole.status_code, b""), path
            assert head.headers == whole.headers, path


def test_the_head_of_a_stream_is_that_of_a_stream_and_ends(client: TestClient) -> None:
    head = client.head(STREAM)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["Content-Type"].startswith("text/event-stream")
    streams: Streams = client.app.state.streams  # type: ignore[attr-defined]
    assert len(streams) == 0
    assert client.head(f"{STREAM}?after_seq=99999999").status_code == 404


def test_who_has_an_answer_is_told_so_by_head_too(client: TestClient) -> None:
    path = "/v1/journals/1/tree?at=700"
    tag = client.head(path).headers["ETag"]
    assert client.head(path, headers={"If-None-Match": tag}).status_code == 304


def test_an_address_that_takes_post_alone_refuses_head_and_others_name_it(client: TestClient) -> None:
    refused = client.head("/v1/journals/1/explain")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    for path, allowed in {
        "/v1/journals": "GET, HEAD",
        "/v1/journals/1/audits": "GET, HEAD, POST",
        "/": "GET, HEAD",
        "/static/index.html": "GET, HEAD",
    }.items():
        answer = client.delete(path)
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed), path


def test_a_head_that_gives_the_token_is_answered_as_the_page_is(database: Path) -> None:
    with client_over(database, host="0.0.0.0", token=TOKEN) as client:
        assert client.head("/").status_code == 401
        welcome = client.head(f"/?token={TOKEN}", follow_redirects=False)
        assert (welcome.status_code, welcome.headers["Location"]) == (303, "/")


def test_a_fault_is_told_by_head_without_a_body(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, accept: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(metrics.Metrics, "exposition", broken)
    with client_over(database) as client:
        quiet = TestClient(client.app, base_url=str(client.base_url), raise_server_exceptions=False)
        answer = quiet.head("/metrics")
    assert (answer.status_code, answer.content) == (500, b"")
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_on_a_connection_that_is_kept_what_follows_a_head_is_the_next_answer(database: Path) -> None:
    ask = "{} {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
    asked = [("HEAD", "/v1/journals/1/tree?at=700"), ("HEAD", "/static/js/tree-view.js"), ("HEAD", STREAM)]
    with library_over(database) as library, served(library) as service:
        host, _, port = service.url.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as connection:
            sent = [ask.format(*one, "") for one in asked]
            connection.sendall(
                "".join([*sent, ask.format("GET", "/healthz", "Connection: close\r\n")]).encode()
            )
            told = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert httpx.get(f"{service.url}/healthz").status_code == 200
    heads = told.split(b"\r\n\r\n")
    assert [head[:12] for head in heads[:-1]] == [b"HTTP/1.1 200"] * 4
    assert heads[-1] == b'{"status":"ok"}'
