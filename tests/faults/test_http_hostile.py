"""Requests that nobody sends by mistake: each gets a problem document and a 4xx, and the service goes on."""

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvledger.api.cursors import encode_cursor
from tests.support.service import client_over, library_over, recorded, served

J = "/v1/journals/1"
HUGE = "9" * 30
VAST = "9" * 5_000
"""More digits than Python reads as a number without asking."""

NOT_NUMBERS = ["-1", HUGE, VAST, "1.5", "1e3", "abc", "%00", "0x10", "١٢", " ", "%ff"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_over(recorded(tmp_path_factory.mktemp("hostile")), requests_per_second=1_000_000) as client:
        yield client


def refused(answer: Any, *statuses: int) -> None:
    """The answer is a problem document of one of these statuses, or of any 4xx."""
    assert answer.status_code in (statuses or range(400, 500)), answer.text[:300]
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    assert len(answer.content) < 4_000


@pytest.mark.parametrize("path", ["/v1/journals/", J + "/", J + "/tree/", J + "/tree%2f?at=9", "/metrics/"])
def test_nobody_is_sent_from_an_address_with_a_slash_too_many_to_one_that_its_sender_named(
    client: TestClient, path: str
) -> None:
    # Behind a proxy with TLS such an address would begin with http, and a token would follow it in the clear.
    for method in ("GET", "HEAD", "POST"):
        answer = client.request(method, path, follow_redirects=False)
        assert answer.status_code in (404, 405)
        assert "location" not in answer.headers


@pytest.mark.parametrize("number", NOT_NUMBERS)
@pytest.mark.parametrize(
    "path",
    [
        "/v1/journals/{}",
        "/v1/journals/{}/events",
        J + "/events/{}",
        J + "/transactions/{}",
        J + "/transactions/{}/events",
        J + "/nodes/{}",
        J + "/slots/full/{}",
    ],
)
def test_what_is_no_number_in_a_path_is_refused(client: TestClient, path: str, number: str) -> None:
    refused(client.get(path.format(number)))


@pytest.mark.parametrize("number", NOT_NUMBERS)
@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/events", ("first_seq", "last_seq", "since_us", "until_us", "node", "transaction", "limit")),
        ("/transactions", ("since_us", "until_us", "limit")),
        ("/anomalies", ("first_seq", "last_seq", "limit")),
        ("/marks", ("first_seq", "last_seq", "buckets")),
        ("/tree", ("at", "rows", "first_row", "depth", "limit")),
        ("/pools", ("at",)),
        ("/audits", ("limit",)),
        ("/events/stream", ("after_seq", "node")),
    ],
)
def test_what_is_no_number_in_a_query_is_refused(
    client: TestClient, path: str, names: tuple[str, ...], number: str
) -> None:
    for name in names:
        refused(client.get(f"{J}{path}?{name}={number}"), 422, 404)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/journals/2",
        "/v1/journals/2147483647/tree",
        J + "/events/999999",
        J + "/transactions/999999",
        J + "/nodes/999999",
        J + "/requests/nobody",
        J + "/audits/nobody",
        J + "/events/stream/more",
        "/v1/journals/1/../../../etc/passwd",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/js",
        "/nothing",
    ],
)
def test_what_is_not_there_is_404(client: TestClient, path: str) -> None:
    refused(client.get(path), 404)


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "",
        "%00",
        "AAAA",
        "W10",
        "💥",
        "e30",
        encode_cursor("events-desc", 5),
        encode_cursor("transactions-asc", 5),
        encode_cursor("events-asc", "5"),
        encode_cursor("events-asc", 5, 5),
        encode_cursor("events-asc"),
        encode_cursor("events-asc", -5),
        encode_cursor("events-asc", 2**63),
        encode_cursor("events-asc", True),
        encode_cursor("events-asc", 5) + "A",
        "W" * 900,
        "W" * 2_000,
    ],
)
def test_a_broken_cursor_is_refused(client: TestClient, cursor: str) -> None:
    refused(client.get(f"{J}/events", params={"cursor": cursor}), 422)


def test_a_cursor_of_deep_brackets_is_refused(client: TestClient) -> None:
    for depth in (100, 700):
        cursor = base64.urlsafe_b64encode(b"[" * depth).decode()
        refused(client.get(f"{J}/events", params={"cursor": cursor}), 422)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/events", "kind=nothing"),
        ("/events", "kind=node_created&kind=DROP"),
        ("/events", "undone=perhaps"),
        ("/events", "order=sideways"),
        ("/events", "limit=0"),
        ("/events", "limit=1001"),
        ("/events", "request=%00"),
        ("/events", "request=" + "r" * 513),
        ("/events", "first_seq=1&last_seq=2&cursor=%ff"),
        ("/transactions", "status=lost"),
        ("/transactions", "op=%00"),
        ("/transactions", "request=a%00b"),
        ("/marks", "buckets=0"),
        ("/marks", "first_seq=9&last_seq=3"),
        ("/tree", "at=999999999"),
        ("/events/stream", "after_seq=999999999"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(client: TestClient, path: str, query: str) -> None:
    refused(client.get(f"{J}{path}?{query}"), 422, 404)


@pytest.mark.parametrize("last", ["x", "-1", "1.0", "9" * 40, "9" * 18, "1; DROP", "é"])
def test_a_stream_cannot_go_on_behind_what_is_no_seq_of_the_journal(client: TestClient, last: str) -> None:
    refused(client.get(f"{J}/events/stream", headers=[(b"Last-Event-ID", last.encode())]), 404, 422)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"null}",
        b"\xff\xfe\x00",
        b'{"upto_seq": -1}',
        b'{"upto_seq": 99999999999999999999999999}',
        b'{"upto_seq": ' + b"9" * 5_000 + b"}",
        b'{"upto_seq": 999999}',
        b'{"upto_seq": 1e999}',
        b'{"upto_seq": NaN}',
        b'{"upto_seq": "many"}',
        b'{"chain": 7}',
        b'{"other": 1}',
        b"[]",
        b'"\\ud800"',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_not_what_is_asked_for_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post(f"{J}/audits", content=body, headers={"Content-Type": "application/json"})
    refused(answer, 400, 404, 422)
    answer = client.post(f"{J}/explain", content=body, headers={"Content-Type": "application/json"})
    refused(answer, 400, 422)


@pytest.mark.parametrize("tokens", [[2**31], [-(2**31) - 1], ["a"], [1.5], [None], [[1]], "text", {"a": 1}])
def test_tokens_that_are_none_are_refused(client: TestClient, tokens: object) -> None:
    refused(client.post(f"{J}/explain", json={"tokens": tokens}), 422)


@pytest.mark.parametrize("value", ["true", "false", '"1"', '"1.0"', "1.5", "0.1", "[1]"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/explain", '{{"tokens": [{}]}}'),
        ("/explain", '{{"tokens": [1, 2, {}]}}'),
        ("/explain", '{{"tokens": [], "at": {}}}'),
        ("/audits", '{{"upto_seq": {}}}'),
    ],
)
def test_what_only_looks_like_a_whole_number_is_none_in_a_body(
    client: TestClient, path: str, body: str, value: str
) -> None:
    headers = {"Content-Type": "application/json"}
    refused(client.post(J + path, content=body.format(value), headers=headers), 422)
    # A number is understood, whether there is such a seq or not; JSON knows one kind of number only.
    for number in ("999999", "999999.0"):
        understood = client.post(J + path, content=body.format(number), headers=headers)
        assert understood.status_code in (200, 404)


@pytest.mark.parametrize(
    "kind",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json"],
)
@pytest.mark.parametrize("path", ["/explain", "/audits"])
def test_a_body_that_does_not_say_that_it_is_json_is_refused_with_what_to_send(
    client: TestClient, path: str, kind: str | None
) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = client.post(J + path, content=b'{"tokens": [1]}', headers=headers)
    refused(answer, 415)
    assert "Content-Type: application/json" in answer.json()["detail"]


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"]
)
def test_every_name_of_json_is_taken(client: TestClient, kind: str) -> None:
    answer = client.post(f"{J}/explain", content=b'{"tokens": [1]}', headers={"Content-Type": kind})
    assert answer.status_code == 200


def test_a_body_of_ten_megabytes_is_refused_before_it_is_read(client: TestClient) -> None:
    body = json.dumps({"tokens": [1] * 3_500_000}).encode()
    assert len(body) > 10_000_000
    for path in ("/explain", "/audits"):
        refused(client.post(J + path, content=body, headers={"Content-Type": "application/json"}), 413)


def test_a_body_that_does_not_say_how_long_it_is_is_counted(client: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 100_000_000:
            sent += 65_536
            yield b"[" * 65_536

    answer = client.post(f"{J}/explain", content=endless(), headers={"Content-Type": "application/json"})
    refused(answer, 413)


@pytest.mark.parametrize("length", ["-1", "x", "1e9", "9" * 400, ""])
def test_a_length_that_is_none_is_refused(client: TestClient, length: str) -> None:
    refused(client.post(f"{J}/audits", content=b"", headers={"Content-Length": length}), 400, 413)


def test_an_address_without_end_is_refused(client: TestClient) -> None:
    refused(client.get(f"{J}/events?request=" + "r" * 20_000), 414)
    refused(client.get("/" + "x" * 20_000), 414)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "OPTIONS", "TRACE", "BREW"])
def test_a_method_that_an_address_does_not_take_is_405(client: TestClient, method: str) -> None:
    for path in ("/v1/journals", J, f"{J}/tree", "/metrics", "/healthz"):
        answer = client.request(method, path)
        refused(answer, 405)
        assert "GET" in answer.headers["Allow"]


def test_a_client_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    with client_over(recorded(tmp_path), requests_per_second=1) as client:
        answers = [client.get("/v1/journals") for _ in range(40)]
        cut = [answer for answer in answers if answer.status_code == 429]
        assert answers[0].status_code == 200
        assert cut
        for answer in cut:
            refused(answer, 429)
            assert int(answer.headers["Retry-After"]) >= 1
        assert client.get("/healthz").status_code == 200


def test_bytes_that_are_no_http_do_not_end_the_service(tmp_path: Path) -> None:
    with library_over(recorded(tmp_path)) as library, served(library) as service:
        host, port = service.url.removeprefix("http://").split(":")
        heads = [
            b"\x00\x01\x02\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
            b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
            b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        ]
        for head in heads:
            with socket.create_connection((host, int(port)), timeout=60) as connection:
                connection.sendall(head)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(65_536)
                assert b" 5" not in answer.split(b"\r\n")[0][:13]
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in connection.recv(65_536)
