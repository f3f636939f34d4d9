"""The database fails under the service: a problem document says so, and the service goes on."""

from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from kvledger.api import ApiSettings, create_app
from kvledger.api.library import Library
from kvledger.api.problems import refusal_of
from kvledger.core.errors import (
    InvalidArgument,
    JournalError,
    JournalFormatError,
    StoreUnavailable,
    UnalignedLength,
    UnknownJournal,
)
from tests.support.service import HOST, client_over, followed, library_over, recorded, served
from tests.support.stores import change

J = "/v1/journals/1"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UnknownJournal("x"), 404),
        (InvalidArgument("x"), 422),
        (UnalignedLength("x"), 422),
        (JournalFormatError("x"), 409),
        (JournalError("x"), 409),
        (StoreUnavailable("x"), 503),
        (ZeroDivisionError("x"), 500),
    ],
)
def test_every_error_of_the_journal_has_a_status(error: Exception, status: int) -> None:
    refusal = refusal_of(error)
    assert refusal.status == status
    assert (refusal.detail == "x") == (status != 500)
    assert ("Retry-After" in refusal.headers) == (status == 503)


def test_a_database_that_is_away_is_503_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_over(recorded(tmp_path)) as client:
        followed(client)

        def away(*arguments: object, **how: object) -> None:
            raise StoreUnavailable("the database is locked")

        with monkeypatch.context() as trouble:
            reader = type(client.app.state.library.opened(1).reader)  # type: ignore[attr-defined]
            for name in ("head", "find", "find_transactions", "beginning"):
                trouble.setattr(reader, name, away)
            trouble.setattr("kvledger.journal.store.Journal.list", away)
            for path in ("/v1/journals", J, f"{J}/events", f"{J}/transactions", f"{J}/chain", "/readyz"):
                answer = client.get(path)
                assert answer.status_code == 503, path
                assert answer.headers["Content-Type"] == "application/problem+json"
                assert int(answer.headers["Retry-After"]) > 0
                assert "locked" in answer.json()["detail"]
            assert client.get("/healthz").status_code == 200
            metrics = client.get("/metrics")
            assert metrics.status_code == 200
            assert 'kvledger_journal_readable{journal="1"} 0.0' in metrics.text
        assert client.get(f"{J}/events").status_code == 200
        assert 'kvledger_journal_readable{journal="1"} 1.0' in client.get("/metrics").text


def test_a_service_starts_while_its_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*arguments: object, **how: object) -> None:
        raise StoreUnavailable("the database is locked")

    path = recorded(tmp_path)
    with library_over(path) as library:
        with monkeypatch.context() as trouble:
            trouble.setattr("kvledger.journal.store.Journal.list", away)
            client = TestClient(create_app(ApiSettings(), library), base_url=HOST)
            client.__enter__()
            assert client.get("/readyz").status_code == 503
        assert client.get("/readyz").status_code == 200
        assert client.get(f"{J}/events/1").status_code == 200
        client.__exit__(None, None, None)


def test_an_event_that_cannot_be_read_is_a_problem_of_the_journal(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    change(f"sqlite:///{path}", "UPDATE events SET payload = '{' WHERE seq = 30")
    with client_over(path) as client:
        for address in (f"{J}/events", f"{J}/events/30", f"{J}/pools?at=200"):
            answer = client.get(address)
            assert answer.status_code == 409, address
            assert "30" in answer.json()["detail"]
        assert client.get(f"{J}/events/29").status_code == 200
        assert client.get(J).json()["following"]["state"] in ("loading", "failed")
        assert client.get("/metrics").status_code == 200


def test_a_journal_of_another_format_stands_in_the_list_and_is_not_opened(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    recorded(tmp_path)
    change(f"sqlite:///{path}", "UPDATE journals SET format_version = 99 WHERE id = 1")
    with client_over(path) as client:
        listed = client.get("/v1/journals").json()["items"]
        assert [one["format_version"] for one in listed] == [99, 2]
        assert listed[0]["following"]["state"] == "failed"
        assert "99" in listed[0]["following"]["problem"]
        assert client.get(J).status_code == 409
        assert client.get("/v1/journals/2/events").status_code == 200


def test_a_fault_of_the_service_tells_its_log_and_not_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(library: Library) -> None:
        raise ZeroDivisionError("secret")

    with library_over(recorded(tmp_path)) as library, served(library) as service:
        assert httpx.get(f"{service.url}{J}").status_code == 200
        monkeypatch.setattr(Library, "journals", broken)
        answer = httpx.get(f"{service.url}/v1/journals")
        assert answer.status_code == 500
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "secret" not in answer.text
        assert httpx.get(f"{service.url}/healthz").status_code == 200
    assert "secret" in caplog.text


def test_what_a_damaged_cell_holds_is_hidden(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = recorded(tmp_path)
    change(
        f"sqlite:///{path}",
        """UPDATE events SET payload = json_set(payload, '$.epoch', 'tenant''s "aurora"')
        WHERE kind = 'request_opened' AND seq > 300""",
    )
    addresses = [
        J,
        "/v1/journals",
        f"{J}/events?first_seq=300",
        f"{J}/tree",
        f"{J}/tree?at=900",
        f"{J}/requests?at=900",
    ]
    with client_over(path) as client:
        assert client.app.state.library.opened(1).timeline.wait_loaded(60)  # type: ignore[attr-defined]
        told = "".join(client.get(address).text for address in addresses)
        assert "cannot be read" in told
    assert "aurora" not in told
    assert "aurora" not in caplog.text
    with client_over(path, reveal=True) as client:
        assert "aurora" in client.get(f"{J}/events?first_seq=300").json()["detail"]


def test_a_database_that_was_removed_is_not_shown_any_more(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    with client_over(path) as client:
        assert client.get(f"{J}/tree").status_code == 200
        path.rename(tmp_path / "elsewhere.db")
        for address in ("/readyz", "/v1/journals", J, f"{J}/tree", f"{J}/tree?at=300", f"{J}/events"):
            assert client.get(address).status_code == 503, address
        assert client.post(f"{J}/audits").status_code == 503
        assert 'kvledger_journal_readable{journal="1"} 0.0' in client.get("/metrics").text
        assert client.get("/healthz").status_code == 200
        (tmp_path / "elsewhere.db").rename(path)
        assert client.get(f"{J}/tree").status_code == 200


def test_another_database_in_the_place_of_the_first_is_begun_anew(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    other = recorded(tmp_path, seed=8, requests=20, name="other.db")
    with client_over(path) as client:
        first = followed(client)
        tag = client.get(f"{J}/pools?at=200").headers["ETag"]
        for beside in tmp_path.glob("*.db-*"):
            beside.unlink()
        other.replace(path)
        second = followed(client)
        assert second["epoch"] != first["epoch"]
        assert second["following"]["seq"] == second["last_seq"] < first["last_seq"]  # type: ignore[index,operator]
        assert client.get(f"{J}/pools?at=200", headers={"If-None-Match": tag}).status_code == 200
        begun = client.post(f"{J}/audits").headers["Location"]
        while (told := client.get(begun).json())["ended_us"] is None:
            pass
        assert told["verdict"]["verdict"] == "pass"


def test_a_stream_ends_when_its_database_was_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvledger.api.streams.HEARTBEAT_SECONDS", 0.1)
    path = recorded(tmp_path)
    with (
        library_over(path) as library,
        served(library) as service,
        httpx.stream("GET", f"{service.url}{J}/events/stream", timeout=60) as response,
    ):
        lines = response.iter_lines()
        assert next(lines) == "event: head"
        path.unlink()
        assert all("id: " not in line for line in lines)
