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
