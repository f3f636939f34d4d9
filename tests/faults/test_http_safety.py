"""What the service must never do, on any address it has: answer without a token, write, tell secrets."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from kvledger.api import ApiSettings, Inspector, create_app
from kvledger.api.access import COOKIE, TokenRequired, check_exposure, is_loopback
from kvledger.api.headers import HEADERS
from kvledger.core.errors import InvalidArgument
from kvledger.journal import Journal
from tests.support.private_tokens import leaks_in, live_privately
from tests.support.service import HOST, client_over, every_address, followed, library_over, recorded, served

TOKEN = "a-token-nobody-guesses"
BODIES: dict[str, dict[str, object]] = {"/explain": {"tokens": [0, 0, 0, 0, 0]}}
"""What a POST address needs to answer; the others take none."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("safety"))


@pytest.fixture
def guarded(database: Path) -> Iterator[TestClient]:
    """A service that others can reach: it listens on every address, and has a token."""
    with client_over(database, host="0.0.0.0", token=TOKEN) as client:
        yield client


def body_for(path: str) -> dict[str, object] | None:
    return next((body for end, body in BODIES.items() if path.endswith(end)), None)


def test_without_its_token_every_address_but_healthz_answers_401_and_nothing_else(
    guarded: TestClient,
) -> None:
    addresses = every_address(guarded.app)  # type: ignore[arg-type]
    assert len(addresses) > 30
    for method, path in [*addresses, ("GET", "/nothing/here"), ("DELETE", "/v1/journals"), ("PUT", "/")]:
        for headers in ({}, {"Authorization": "Bearer wrong-token-wrong-token"}, {"Cookie": f"{COOKIE}=00"}):
            answer = guarded.request(method, path, headers=headers, json=body_for(path))
            if path == "/healthz":
                assert answer.status_code == 200
                assert answer.json() == {"status": "ok"}
                continue
            assert answer.status_code == 401, (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            assert set(answer.json() if method != "HEAD" else {}) <= {"type", "title", "status", "detail"}


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer x{TOKEN}",
        TOKEN,
        f"Bearer {TOKEN[:-1]}",
    ],
)
def test_what_is_not_the_token_is_refused(guarded: TestClient, authorization: str) -> None:
    answer = guarded.get("/v1/journals", headers={"Authorization": authorization})
    assert answer.status_code == 401
    assert TOKEN not in answer.text


def test_with_its_token_the_service_answers(guarded: TestClient) -> None:
    for authorization in (f"Bearer {TOKEN}", f"bearer {TOKEN}"):
        assert guarded.get("/v1/journals", headers={"Authorization": authorization}).status_code == 200


def test_a_browser_gives_the_token_once_and_is_sent_to_an_address_without_it(guarded: TestClient) -> None:
    answer = guarded.get(f"/?token={TOKEN}", follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    assert guarded.get("/").status_code == 200
    assert guarded.get("/v1/journals").status_code == 200


def test_a_wrong_token_in_the_address_opens_nothing(guarded: TestClient) -> None:
    answer = guarded.get("/?token=wrong-token-wrong-token", follow_redirects=False)
    assert answer.status_code == 401
    assert "Set-Cookie" not in answer.headers
    assert guarded.get(f"/v1/journals?token={TOKEN}").status_code == 401


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.0.9", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("2130706433", False),
    ],
)
def test_an_address_that_is_not_loopback_needs_a_token(database: Path, host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    check_exposure(ApiSettings(host=host, token=SecretStr(TOKEN)))
    if loopback:
        check_exposure(ApiSettings(host=host))
        return
    with library_over(database) as library, pytest.raises(TokenRequired, match="token"):
        create_app(ApiSettings(host=host), library)


def test_an_inspector_refuses_an_open_address_without_a_token_and_recording_goes_on(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        with pytest.raises(TokenRequired):
            Inspector.attach(recorder, host="0.0.0.0")
        live_privately(recorder)
        recorder.flush()
        assert recorder.durable_seq == recorder.last_seq > 0


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "x" * 513, "sixteen letters!", "tökentökentökentöken"]
)
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused_and_not_told(token: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_exposure(ApiSettings(token=SecretStr(token)))
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:8470@evil.example", "[::1"]
)
def test_a_loopback_service_answers_to_no_foreign_name(database: Path, host: str) -> None:
    with client_over(database) as client:
        for path in ("/", "/v1/journals", "/healthz"):
            answer = client.get(path, headers={"Host": host})
            assert answer.status_code == 400
            assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8470", "127.0.0.1:1", "[::1]:8470", "desk.example:80"]
)
def test_a_loopback_service_answers_to_its_own_names(database: Path, host: str) -> None:
    with client_over(database, allowed_hosts=("desk.example",)) as client:
        assert client.get("/v1/journals", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "", "http://["])
def test_a_page_of_another_site_can_start_nothing(database: Path, origin: str) -> None:
    with client_over(database) as client:
        answer = client.post("/v1/journals/1/audits", headers={"Origin": origin})
        assert answer.status_code == 403
        assert client.get("/v1/journals/1/audits").json()["items"] == []
        assert client.post("/v1/journals/1/audits", headers={"Origin": HOST}).status_code == 202


def test_no_address_allows_another_site_to_read(database: Path) -> None:
    with client_over(database) as client:
        for method, path in every_address(client.app):  # type: ignore[arg-type]
            if path.endswith("/stream"):
                continue
            answer = client.request(
                method, path, headers={"Origin": "https://evil.example"}, json=body_for(path)
            )
            assert not [name for name in answer.headers if name.startswith("access-control-")], path


def test_every_answer_carries_the_security_headers(database: Path) -> None:
    with client_over(database) as client:
        for method, path in [*every_address(client.app), ("GET", "/nothing")]:  # type: ignore[arg-type]
            if path.endswith("/stream"):
                continue
            answer = client.request(method, path, json=body_for(path))
            for name, value in HEADERS.items():
                assert answer.headers[name] == value, (path, name)
            assert "Cache-Control" in answer.headers, path
        for refused in (
            client.get("/", headers={"Host": "evil.example"}),
            client.get("/", params={"q": "x" * 10_000}),
            client.post("/v1/journals/1/audits", headers={"Origin": "null"}),
        ):
            assert refused.headers["X-Content-Type-Options"] == "nosniff"
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_no_address_changes_a_byte_of_the_database(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    answered = set()
    with (
        library_over(path) as library,
        served(library) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        for method, address in every_address(service.config.app):  # type: ignore[arg-type]
            if address.endswith("/stream"):
                with client.stream(method, address, params={"after_seq": 0}) as stream:
                    assert next(stream.iter_lines()).startswith("id: 1")
                continue
            status = client.request(method, address, json=body_for(address)).status_code
            assert status < 500, address
            answered.add(status)
        begun = client.post("/v1/journals/1/audits").headers["Location"]
        while client.get(begun).json()["ended_us"] is None:
            pass
    assert {200, 202} <= answered
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    log = path.with_name(path.name + "-wal")
    assert not log.exists() or log.stat().st_size == 0


@pytest.mark.parametrize("policy", ["full", "hash", "none"])
def test_no_address_tells_a_token_or_a_namespace_unless_it_was_started_to(
    tmp_path: Path, policy: str
) -> None:
    how = {"key": bytes(range(32))} if policy == "hash" else {}
    with (
        Journal.open(tmp_path / "run.db") as store,
        store.record(tokens=policy, **how) as recorder,  # type: ignore[arg-type]
    ):
        live_privately(recorder)
    told = b""
    with client_over(tmp_path / "run.db") as client:
        assert followed(client)["hidden"] is True
        begun = client.post("/v1/journals/1/audits").headers["Location"]
        while client.get(begun).json()["ended_us"] is None:
            pass
        addresses = [(method, path) for method, path in every_address(client.app) if method == "GET"]  # type: ignore[arg-type]
        addresses += [("GET", begun)]
        events = range(1, followed(client)["last_seq"] + 1, 9)  # type: ignore[operator]
        addresses += [("GET", f"/v1/journals/1/tree?at={seq}") for seq in events]
        addresses += [
            ("GET", "/v1/journals/1/events?limit=1000"),
            ("GET", "/v1/journals/1/transactions?limit=1000"),
        ]
        for node in client.get("/v1/journals/1/tree").json()["nodes"]:
            addresses.append(("GET", f"/v1/journals/1/nodes/{node['id']}"))
        for method, path in addresses:
            if not path.endswith("/stream"):
                answer = client.request(method, path)
                told += answer.content + json.dumps(dict(answer.headers)).encode()
    assert len(told) > 100_000
    assert leaks_in(told) == set()


def test_a_service_that_was_started_to_reveal_tells_tokens_and_namespaces(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        live_privately(recorder)
    with client_over(tmp_path / "run.db", reveal=True) as client:
        assert followed(client)["hidden"] is False
        told = client.get("/v1/journals/1/events?limit=1000").content
        assert {"tenant-aurora", "tenant-borealis"} <= leaks_in(told)
        created = client.get("/v1/journals/1/events?kind=node_created&limit=1").json()["items"][0]["data"]
        assert created["tokens"]["ids"][0] == 1_511_001_234
        assert created["tokens"]["count"] == len(created["tokens"]["ids"])
