"""Somebody reads a journal over HTTP: what it holds, page by page, and what can be kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvledger.api.projection import Timeline
from kvledger.core.events import EVENTS
from kvledger.journal import Journal
from kvledger.journal.lookups.history import anomalies
from kvledger.journal.lookups.marks import marks
from tests.support.private_tokens import live_privately
from tests.support.recorded_run import record_run, small_run
from tests.support.service import client_over, followed, library_over, pruned

J = "/v1/journals/1"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two journals: a life with rollbacks and a reset, and a small run."""
    path = tmp_path_factory.mktemp("journals") / "run.db"
    with Journal.open(path) as store:
        with store.record(name="life") as recorder:
            cache = live_privately(recorder)
            request = cache.open_request("late", [1, 2, 3, 4])
            cache.reset()
            request.abort()
        record_run(store, small_run(30), name="small")
    return path


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[TestClient]:
    with client_over(database, requests_per_second=1_000_000) as client:
        followed(client)
        yield client


def every_item(client: TestClient, path: str, **query: Any) -> list[dict[str, Any]]:
    """All items of a list, read page by page."""
    items: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = client.get(path, params={**query, **({} if cursor is None else {"cursor": cursor})}).json()
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            return items


def test_the_journals_of_a_store_are_listed_oldest_first(client: TestClient) -> None:
    listed = every_item(client, "/v1/journals", limit=1)
    assert [(one["id"], one["name"]) for one in listed] == [(1, "life"), (2, "small")]
    assert listed == client.get("/v1/journals").json()["items"]
    assert all(one["hidden"] and not one["live"] for one in listed)


def test_a_journal_says_where_it_ends_and_how_far_it_was_followed(client: TestClient, database: Path) -> None:
    with Journal.open(database) as store:
        head = store.reader(1).head()
    told = client.get(J).json()
    assert (told["first_seq"], told["last_seq"], told["transactions"]) == (1, head.seq, head.number)
    assert told["following"]["state"] == "following"
    assert told["following"]["seq"] == head.seq
    assert told["page_size"] == 4


def test_a_journal_that_nobody_asked_for_is_not_followed(database: Path) -> None:
    with client_over(database) as client:
        states = {one["id"]: one["following"]["state"] for one in client.get("/v1/journals").json()["items"]}
    assert states[1] == "idle"
    assert states[2] in ("loading", "following")


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_the_pages_of_a_list_hold_every_item_once_and_in_order(
    client: TestClient, order: str, limit: int
) -> None:
    last = client.get(J).json()["last_seq"]
    seqs = [one["seq"] for one in every_item(client, f"{J}/events", order=order, limit=limit)]
    assert seqs == sorted(range(1, last + 1), reverse=order == "desc")
    numbers = [one["number"] for one in every_item(client, f"{J}/transactions", order=order, limit=limit)]
    count = client.get(J).json()["transactions"]
    assert numbers == sorted(range(1, count + 1), reverse=order == "desc")


def test_events_are_told_as_the_journal_has_them(client: TestClient, database: Path) -> None:
    with Journal.open(database) as store:
        stored = list(store.reader(1).find())
    told = every_item(client, f"{J}/events", limit=1_000)
    assert [one["data"]["kind"] for one in told] == [one.event.kind for one in stored]
    assert [one["undone"] for one in told] == [one.undone for one in stored]
    assert [one["transaction"] for one in told] == [one.transaction for one in stored]
    assert [one["time_us"] for one in told] == [one.time_us for one in stored]
    assert any(one["undone"] for one in told)


@pytest.mark.parametrize(
    ("query", "holds"),
    [
        (
            {"kind": ["node_created", "evicted"]},
            lambda one: one["data"]["kind"] in ("node_created", "evicted"),
        ),
        ({"kind": "rolled_back"}, lambda one: one["data"]["kind"] == "rolled_back"),
        ({"undone": "true"}, lambda one: one["undone"]),
        ({"undone": "false"}, lambda one: not one["undone"]),
        ({"node": 3}, lambda one: one["node"] == 3),
        ({"transaction": 5}, lambda one: one["transaction"] == 5),
        ({"first_seq": 40, "last_seq": 60}, lambda one: 40 <= one["seq"] <= 60),
        (
            {"kind": "pages_freed", "undone": "false", "last_seq": 200},
            lambda one: one["data"]["kind"] == "pages_freed" and not one["undone"] and one["seq"] <= 200,
        ),
    ],
)
def test_a_filter_finds_what_meets_it_and_all_of_it(
    client: TestClient, query: dict[str, Any], holds: Any
) -> None:
    everything = every_item(client, f"{J}/events", limit=1_000)
    found = every_item(client, f"{J}/events", limit=5, **query)
    assert found == [one for one in everything if holds(one)]
    assert found


def test_the_events_of_a_request_are_those_that_name_it_and_those_of_its_own_transactions(
    client: TestClient,
) -> None:
    numbers = {one["number"] for one in every_item(client, f"{J}/transactions", request="r3")}
    found = every_item(client, f"{J}/events", request="r3")
    assert numbers
    assert {one["transaction"] for one in found if one["request"] != "r3"} <= numbers
    assert {one["seq"] for one in found} >= {
        one["seq"] for one in every_item(client, f"{J}/events", limit=1_000) if one["transaction"] in numbers
    }


def test_transactions_are_found_by_how_they_ended(client: TestClient) -> None:
    everything = every_item(client, f"{J}/transactions", limit=1_000)
    for status in ("committed", "rolled_back"):
        found = every_item(client, f"{J}/transactions", status=status, limit=3)
        assert found == [one for one in everything if one["status"] == status]
        assert found
    opened = every_item(client, f"{J}/transactions", op="open_request")
    assert opened == [one for one in everything if one["op"] == "open_request"]


def test_a_callers_operation_can_not_be_guessed_where_its_name_is_hidden(
    client: TestClient, database: Path
) -> None:
    assert every_item(client, f"{J}/transactions", op="leak") == []
    assert "leak" not in client.get(f"{J}/transactions", params={"limit": 1_000}).text
    with client_over(database, reveal=True) as revealing:
        assert len(every_item(revealing, f"{J}/transactions", op="leak")) == 3


def test_a_transaction_and_its_events_belong_together(client: TestClient) -> None:
    for one in every_item(client, f"{J}/transactions", limit=1_000)[:30]:
        assert client.get(f"{J}/transactions/{one['number']}").json() == one
        events = every_item(client, f"{J}/transactions/{one['number']}/events", limit=2)
        assert [event["seq"] for event in events] == list(
            range(one["first_seq"], one["first_seq"] + one["events"])
        )
        assert all(client.get(f"{J}/events/{event['seq']}").json() == event for event in events)


def test_anomalies_are_those_of_the_journal_either_way_round(client: TestClient, database: Path) -> None:
    with Journal.open(database) as store:
        seqs = [found.seq for found, _ in anomalies(store.reader(1))]
    assert len(seqs) > 3
    assert [one["event"]["seq"] for one in every_item(client, f"{J}/anomalies", limit=2)] == seqs
    falling = every_item(client, f"{J}/anomalies", limit=2, order="desc")
    assert [one["event"]["seq"] for one in falling] == seqs[::-1]


@pytest.mark.parametrize("buckets", [1, 13, 1_000])
def test_the_time_bar_marks_what_happened_where(client: TestClient, database: Path, buckets: int) -> None:
    with Journal.open(database) as store:
        reader = store.reader(1)
        last = reader.head().seq
        found = marks(reader, first_seq=1, last_seq=last, buckets=buckets)
    told = client.get(f"{J}/marks", params={"buckets": buckets}).json()
    assert (told["first_seq"], told["last_seq"]) == (1, last)
    assert 0 < len(told["marks"]) <= buckets
    for name, counted in (("rollbacks", "rollbacks"), ("anomalies", "anomalies"), ("resets", "resets")):
        assert (
            sum(one[name] for one in told["marks"]) == sum(getattr(one, counted) for one in found.counts) > 0
        )
    for one in told["marks"]:
        assert one["last_seq"] - one["first_seq"] < told["bucket_seqs"]


def test_the_chain_is_told_as_an_anchor_would_hold_it(client: TestClient, database: Path) -> None:
    with Journal.open(database) as store:
        head = store.reader(1).head()
    told = client.get(f"{J}/chain").json()
    assert (told["number"], told["seq"], told["hash"]) == (head.number, head.seq, head.hash.hex())
    assert told["epoch"] == head.epoch
    assert told["first_number"] == 1


def test_what_can_never_change_may_be_kept_and_is_not_sent_twice(client: TestClient) -> None:
    for path in (f"{J}/events/9", f"{J}/transactions/3", f"{J}/pools?at=40", f"{J}/tree?at=40"):
        first = client.get(path)
        assert first.status_code == 200
        assert first.headers["Cache-Control"] == "private, max-age=31536000, immutable"
        tag = first.headers["ETag"]
        assert tag.startswith('"')
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            again = client.get(path, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["ETag"] == tag
        assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_what_may_change_is_asked_for_again(client: TestClient) -> None:
    for path in (J, f"{J}/events", f"{J}/pools", f"{J}/chain", "/v1/journals"):
        answer = client.get(path)
        assert answer.headers["Cache-Control"] == "no-cache"
        assert "ETag" not in answer.headers


def test_a_tag_is_of_one_address_one_encoding_and_one_way_to_hide(client: TestClient, database: Path) -> None:
    tags = {
        client.get(f"{J}/events/9").headers["ETag"],
        client.get(f"{J}/events/8").headers["ETag"],
        client.get(f"{J}/events/9", headers={"Accept-Encoding": "identity"}).headers["ETag"],
        client.get("/v1/journals/2/events/9").headers["ETag"],
        client.get(f"{J}/pools?at=40").headers["ETag"],
        client.get(f"{J}/pools?at=41").headers["ETag"],
    }
    for reveal in (False, True):
        with client_over(database, reveal=reveal) as other:
            tags.add(other.get(f"{J}/events/9").headers["ETag"])
    assert len(tags) == 8


def test_a_refusal_is_never_kept(client: TestClient) -> None:
    for path in (f"{J}/events/999999", f"{J}/nodes/99999?at=40", "/nothing"):
        answer = client.get(path)
        assert answer.status_code == 404
        assert answer.headers["Cache-Control"] == "no-store"
        assert "ETag" not in answer.headers


def test_large_answers_are_compressed_where_that_is_wanted(client: TestClient) -> None:
    large = client.get(f"{J}/events?limit=1000", headers={"Accept-Encoding": "gzip"})
    plain = client.get(f"{J}/events?limit=1000", headers={"Accept-Encoding": "identity"})
    assert large.headers["Content-Encoding"] == "gzip"
    assert int(large.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 3
    assert large.json() == plain.json()


def test_events_that_were_pruned_are_said_to_be_gone(tmp_path: Path) -> None:
    path, begins = pruned(tmp_path)
    with client_over(path) as client:
        for address in ("/events", "/transactions", "/anomalies", "/events?first_seq=1"):
            assert client.get(J + address).json()["not_here_before"] == begins
        assert client.get(f"{J}/events?first_seq={begins}").json()["not_here_before"] is None
        for address in ("/events/1", "/transactions/1"):
            assert client.get(J + address).status_code == 410
        assert client.get(J).json()["first_seq"] == begins
        assert client.get(f"{J}/marks").json()["first_seq"] == begins


def test_the_page_and_what_belongs_to_it_come_from_the_package(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["Content-Type"].startswith("text/html")
    again = client.get("/", headers={"If-None-Match": page.headers["ETag"]})
    assert again.status_code == 304
    script = client.get("/static/index.html")
    assert script.content == page.content


def test_only_so_many_journals_are_followed_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as store:
        for _ in range(4):
            record_run(store, small_run(5))
    with library_over(path, followed=2) as library:
        for number in (1, 2, 3, 1, 4):
            library.opened(number)
        assert [opened.id for opened in library.followed()] == [1, 4]


def test_a_service_is_ready_once_it_has_loaded_what_it_follows(database: Path) -> None:
    with client_over(database) as client:
        followed(client, 2)
        ready = client.get("/readyz")
        while ready.status_code == 503:
            assert ready.headers["Content-Type"] == "application/problem+json"
            ready = client.get("/readyz")
        assert ready.json() == {"status": "ok", "own_process": "here", "own_process_problem": None}


def test_a_probe_waits_a_moment_for_what_is_still_loading(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    loads = True

    def wait_loaded(timeline: Timeline, timeout: float) -> bool:
        waited.append(timeout)
        return loads

    with client_over(database) as client:
        monkeypatch.setattr(Timeline, "wait_loaded", wait_loaded)
        assert client.get("/readyz").status_code == 200
        loads = False
        answer = client.get("/readyz")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json()["detail"] == "still loading: journal 2"
    assert len(waited) == 2
    assert all(0 < timeout < 1 for timeout in waited)


def test_every_kind_of_event_has_its_payload_documented(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    mapping = document["components"]["schemas"]["EventOut"]["properties"]["data"]["discriminator"]["mapping"]
    assert mapping.keys() == EVENTS.keys()


def test_a_database_without_a_journal_is_served(tmp_path: Path) -> None:
    Journal.open(tmp_path / "run.db").close()
    with client_over(tmp_path / "run.db") as client:
        assert client.get("/v1/journals").json()["items"] == []
        assert client.get("/readyz").status_code == 200
        assert client.get("/metrics").status_code == 200
        assert client.get(J).status_code == 404


def test_a_journal_without_an_event_has_no_state_and_says_so(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record():
        pass
    with client_over(tmp_path / "run.db") as client:
        told = client.get(J).json()
        assert (told["first_seq"], told["last_seq"], told["transactions"]) == (None, None, 0)
        assert client.get(f"{J}/events").json()["items"] == []
        for path in ("/marks", "/slots/full/8/history", "/tree", "/pools", "/requests", "/eviction/full"):
            answer = client.get(J + path)
            assert (answer.status_code, answer.json()["title"]) == (503, "Nothing recorded"), path
            assert int(answer.headers["Retry-After"]) > 0
        # The service itself lacks nothing.
        assert client.get("/readyz").status_code == 200
        assert client.get(f"{J}/chain").json()["first_number"] is None
        assert client.get("/metrics").status_code == 200
