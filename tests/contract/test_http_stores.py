"""The service answers alike over every store, at the ends of what a store can hold too."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kvledger.api.cursors import encode_cursor
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.journal import Journal
from tests.support.recorded_run import record_run, small_run
from tests.support.service import client_over, every_address, followed

J = "/v1/journals/1"


@pytest.fixture
def client(store: str) -> Iterator[TestClient]:
    with Journal.open(store) as journal:
        record_run(journal, small_run(30), name="naïve 💥")
    with client_over(store, requests_per_second=1_000_000) as client:
        yield client


def test_every_address_answers_over_every_store(client: TestClient) -> None:
    assert followed(client)["name"] == "naïve 💥"
    answered = 0
    for method, path in every_address(client.app):  # type: ignore[arg-type]
        if method == "GET" and not path.endswith("/stream"):
            answer = client.get(path)
            assert answer.status_code < 500, path
            answered += answer.status_code == 200
    assert answered > 15


def test_events_and_transactions_are_those_that_were_recorded(client: TestClient) -> None:
    records = small_run(30)
    told = client.get(f"{J}/transactions", params={"limit": 1_000}).json()["items"]
    assert [(one["op"], one["request"], one["events"]) for one in told] == [
        (record.op, record.request_id, len(record.events)) for record in records
    ]
    events = client.get(f"{J}/events", params={"limit": 1_000}).json()["items"]
    kinds = [event.kind for record in records for event in record.events]
    assert [one["data"]["kind"] for one in events] == kinds[:1_000]


def test_the_ends_of_what_a_store_can_hold_are_no_fault(client: TestClient) -> None:
    for name in ("first_seq", "last_seq", "node", "transaction", "since_us", "until_us"):
        for value in (0, 1, 2**31 - 1, 2**31, 2**53, SEQ_MAX - 1, SEQ_MAX):
            for order in ("asc", "desc"):
                status = client.get(f"{J}/events", params={name: value, "order": order}).status_code
                assert status in (200, 422), (name, value)
    for path, names in (
        ("/events", ("first_seq", "last_seq")),
        ("/anomalies", ("first_seq", "last_seq")),
        ("/marks", ("first_seq", "last_seq")),
    ):
        for first in (0, 1, SEQ_MAX):
            for last in (0, 1, SEQ_MAX):
                query = dict(zip(names, (first, last), strict=True))
                assert client.get(J + path, params=query).status_code in (200, 404, 422), (path, query)
    for path in (
        f"{J}/events/{SEQ_MAX}",
        f"{J}/transactions/{SEQ_MAX}",
        f"{J}/transactions/{SEQ_MAX}/events",
    ):
        assert client.get(path).status_code == 404
    assert client.get("/v1/journals/2147483647").status_code == 404
    for name in ("events-asc", "events-desc"):
        page = {"cursor": encode_cursor(name, SEQ_MAX), "order": name.removeprefix("events-")}
        assert client.get(f"{J}/events", params=page).status_code == 200


@pytest.mark.parametrize(
    "name", ["💥", "é", "' OR 1=1 --", '"', "%", "_", "\\", "r0' UNION", "\x7f", "\u2028"]
)
def test_a_name_that_nobody_has_finds_nothing(client: TestClient, name: str) -> None:
    for path in ("/events", "/transactions"):
        answer = client.get(J + path, params={"request": name})
        assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_text_that_no_store_can_hold_is_refused(client: TestClient) -> None:
    for path in ("/events?request=a%00b", "/transactions?request=%00", "/transactions?op=%00"):
        assert client.get(J + path).status_code == 422
