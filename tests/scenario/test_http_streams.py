"""Somebody listens to a journal: every event once, in order, across cuts, until the service goes down."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from kvledger.api import Inspector, streams
from kvledger.api.serving import Service
from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import Journal
from kvledger.journal.recorder import Recorder
from tests.support.service import DEADLINE_SECONDS, library_over, pruned, recorded, served

STREAM = "/v1/journals/1/events/stream"

Message = tuple[str, str | None, dict[str, Any]]
"""Event's name, its id, its data."""


def messages(response: httpx.Response) -> Iterator[Message]:
    """What a stream sends, as a browser would understand it."""
    name, number, data = "message", None, ""
    for line in response.iter_lines():
        if not line:
            yield name, number, json.loads(data)
            name, number, data = "message", None, ""
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("data: "):
            data += line.removeprefix("data: ")


@contextmanager
def listening(service: Service, *, after: str | None = None, **query: Any) -> Iterator[Iterator[Message]]:
    """An open stream; its connection is cut at the end."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with (
        httpx.Client(base_url=service.url, timeout=DEADLINE_SECONDS) as client,
        client.stream("GET", STREAM, params=query, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        yield messages(response)


def until_caught_up(stream: Iterator[Message]) -> list[Message]:
    """The events before the first message that says that there is nothing more."""
    taken: list[Message] = []
    for message in stream:
        if message[0] == "head":
            return taken
        taken.append(message)
    raise AssertionError("the stream ended")


def read_on(stream: Iterator[Message], *, into: list[str | None]) -> None:
    """Read to the end, and note what came before it."""
    for message in stream:
        into.append(message[1])


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("streams"))


@pytest.fixture(scope="module")
def service(database: Path) -> Iterator[Service]:
    with library_over(database) as library, served(library) as service:
        yield service


def test_a_stream_from_the_beginning_sends_every_event_once_and_in_order(
    service: Service, database: Path
) -> None:
    with Journal.open(database) as store:
        last = store.reader().head().seq
    with listening(service, after_seq=0) as stream:
        sent = until_caught_up(stream)
    assert [message[2]["seq"] for message in sent] == list(range(1, last + 1))
    assert all(name == "event" and number == str(data["seq"]) for name, number, data in sent)
    told = httpx.get(f"{service.url}/v1/journals/1/events", params={"limit": 1_000}).json()["items"]
    assert [message[2] for message in sent][:1_000] == told


def test_a_stream_that_was_cut_goes_on_behind_the_last_event_that_arrived(service: Service) -> None:
    with listening(service, after_seq=0) as stream:
        whole = [message[1] for message in until_caught_up(stream)]
    seen: list[str | None] = []
    for length in (1, 2, 150, 199, 200, 201, 333):
        with listening(service, after=seen[-1] if seen else "0") as stream:
            for _ in range(length):
                seen.append(next(stream)[1])
    with listening(service, after=seen[-1]) as stream:
        seen += [message[1] for message in until_caught_up(stream)]
    assert seen == whole


def test_last_event_id_counts_more_than_where_the_stream_began(service: Service) -> None:
    with listening(service, after="500", after_seq=3) as stream:
        assert next(stream)[1] == "501"


def test_a_stream_sends_only_what_was_asked_for(service: Service) -> None:
    everything = httpx.get(f"{service.url}/v1/journals/1/events", params={"request": "r3", "limit": 1_000})
    with listening(service, after_seq=0, request="r3") as stream:
        assert [message[2] for message in until_caught_up(stream)] == everything.json()["items"]
    with listening(service, after_seq=0, kind=["evicted", "swa_recovered"]) as stream:
        kinds = {message[2]["data"]["kind"] for message in until_caught_up(stream)}
    assert kinds == {"evicted", "swa_recovered"}
    with listening(service, after_seq=0, node=2) as stream:
        assert {message[2]["node"] for message in until_caught_up(stream)} == {2}


def test_a_stream_from_now_on_sends_nothing_of_the_past_and_says_how_far_it_is(
    service: Service, database: Path
) -> None:
    with Journal.open(database) as store:
        last = store.reader().head().seq
    with listening(service) as stream:
        assert next(stream) == ("head", None, {"last_seq": last})


def test_a_stream_in_which_nothing_comes_says_so_again_and_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the follower's rhythm, which must not pass for news.
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 1.0)
    with listening(service) as stream:
        heads = [next(stream) for _ in range(3)]
    assert heads[0][0] == "head"
    assert heads[0] == heads[1] == heads[2]


def test_a_stream_says_first_what_it_cannot_send_because_it_was_pruned(tmp_path: Path) -> None:
    path, begins = pruned(tmp_path)
    with library_over(path) as library, served(library) as service:
        with listening(service, after_seq=0) as stream:
            assert next(stream) == ("missing", None, {"not_here_before": begins})
            assert next(stream)[1] == str(begins)
        with listening(service, after_seq=begins - 1) as stream:
            assert next(stream)[1] == str(begins)


class Scheduler:
    """A cache that is recorded while others listen."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        config = CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=160)
        self._cache = HybridCache(config, sink=recorder)
        self._requests = 0

    def serve(self) -> int:
        """Run one request and store it; returns the last seq."""
        self._requests += 1
        request = self._cache.open_request(f"r{self._requests}", np.arange(9 + self._requests % 5))
        request.extend(9 + self._requests % 5 - request.prefix_len)
        request.computed()
        request.finish()
        self.recorder.flush()
        return self.recorder.last_seq


def test_events_arrive_while_they_are_recorded_none_twice_and_none_left_out(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        scheduler = Scheduler(recorder)
        last = scheduler.serve()
        with library_over(tmp_path / "run.db") as library, served(library) as service:
            arrived: list[int] = []
            after = "0"
            for _ in range(4):
                # Each listener is cut somewhere, and events are recorded before, while and after it listens.
                with listening(service, after=after) as stream:
                    while not arrived or arrived[-1] < last:
                        name, _, data = next(stream)
                        if name == "event":
                            arrived.append(data["seq"])
                    last = scheduler.serve()
                    for _ in range(3):
                        name, _, data = next(stream)
                        if name == "event":
                            arrived.append(data["seq"])
                after = str(arrived[-1])
                last = scheduler.serve()
            assert arrived == list(range(1, len(arrived) + 1))
            assert len(arrived) > 60


def test_a_stream_ends_by_itself_when_the_service_goes_down(database: Path) -> None:
    ended = threading.Event()

    def listen(service: Service, caught_up: threading.Event) -> None:
        with listening(service, after_seq=0) as stream:
            until_caught_up(stream)
            caught_up.set()
            for _ in stream:
                pass
        ended.set()

    with library_over(database) as library:
        with served(library) as service:
            caught_up = threading.Event()
            threading.Thread(target=listen, args=(service, caught_up), daemon=True).start()
            assert caught_up.wait(DEADLINE_SECONDS)
        assert ended.wait(DEADLINE_SECONDS)


def test_there_are_only_so_many_streams_at_once(database: Path) -> None:
    with library_over(database) as library, served(library, streams=2) as service:
        with listening(service) as one, listening(service) as other:
            next(one), next(other)
            refused = httpx.get(service.url + STREAM)
            assert refused.status_code == 429
            assert refused.headers["Content-Type"] == "application/problem+json"
            assert int(refused.headers["Retry-After"]) > 0
            assert "kvledger_event_streams 2.0" in httpx.get(f"{service.url}/metrics").text
        open_streams = service.config.app.state.streams  # type: ignore[union-attr]
        while len(open_streams):
            httpx.get(f"{service.url}/healthz")
        with listening(service) as again:
            assert next(again)[0] == "head"


def test_a_listener_that_takes_nothing_is_cut_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS", 0.01)
    path = recorded(tmp_path, requests=2_000)
    with library_over(path) as library, served(library) as service:
        open_streams = service.config.app.state.streams  # type: ignore[union-attr]
        with listening(service, after_seq=0) as stream:
            first = next(stream)[1]
            while len(open_streams):
                httpx.get(f"{service.url}/healthz")
            read = [first]
            with pytest.raises(httpx.RemoteProtocolError):
                read_on(stream, into=read)
        assert read == [str(seq) for seq in range(1, len(read) + 1)]
        monkeypatch.setattr(streams, "SEND_SECONDS", 20.0)
        with listening(service, after=read[-1]) as stream:
            assert next(stream)[1] == str(len(read) + 1)


def test_events_arrive_from_a_scheduler_that_is_looked_into_from_its_own_process(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        scheduler = Scheduler(recorder)
        scheduler.serve()
        with (
            Inspector.attach(recorder) as inspector,
            httpx.Client(base_url=inspector.url, timeout=DEADLINE_SECONDS) as client,
            client.stream("GET", STREAM.replace("/1/", f"/{recorder.journal_id}/")) as response,
        ):
            stream = messages(response)
            _, _, head = next(stream)
            last = scheduler.serve()
            arrived: list[int] = []
            while not arrived or arrived[-1] < last:
                name, _, data = next(stream)
                if name == "event":
                    arrived.append(data["seq"])
            assert arrived == list(range(head["last_seq"] + 1, last + 1))
            told = client.get(f"/v1/journals/{recorder.journal_id}").json()
            assert (told["live"], told["accepted_seq"], told["queued_events"]) == (True, last, 0)
            metrics = client.get("/metrics").text
            assert f'kvledger_journal_last_seq{{journal="{recorder.journal_id}"}} {float(last)}' in metrics
