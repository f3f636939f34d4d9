"""One line attaches the service to a running recorder, which shows what the cache does."""

import http.client
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from kvledger.api import ApiSettings, Inspector
from kvledger.api.access import TokenRequired
from kvledger.api.serving import CannotListen
from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import InvalidArgument
from kvledger.core.sinks import MemorySink
from kvledger.journal import Journal, Recorder
from kvledger.journal.durability import RecorderSettings
from tests.support.timelines import DEADLINE_SECONDS

CONFIG = CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=320)


def ask(inspector: Inspector, path: str, **headers: str) -> tuple[int, Any]:
    address = urlsplit(inspector.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def shown_at(inspector: Inspector, seq: int, path: str) -> Any:
    """The newest answer once the inspector has followed its recorder to `seq`."""
    timeline = inspector.library.opened(1).timeline
    assert timeline.wait_beyond(seq - 1, DEADLINE_SECONDS) >= seq
    status, answer = ask(inspector, path)
    assert (status, answer["at"]["seq"]) == (200, seq)
    return answer


def serve_one(cache: HybridCache, name: str, *, tokens: int = 24) -> None:
    request = cache.open_request(name, np.arange(tokens, dtype=np.int32))
    request.extend(tokens - request.prefix_len)
    request.computed()
    request.commit()
    request.finish()


def test_it_shows_each_state_of_the_cache_while_the_scheduler_runs(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record(name="rank0") as recorder:
        with Inspector.attach(recorder, reveal_tokens=True) as inspector:
            cache = HybridCache(CONFIG, sink=recorder)
            for number in range(5):
                serve_one(cache, f"r{number}", tokens=24 + 4 * number)
                recorder.flush()
                tree = shown_at(inspector, int(recorder.durable_seq), "/v1/journals/1/tree")
                assert {node["id"] for node in tree["nodes"]} == {node.id for node in cache.nodes()}
                _, pools = ask(inspector, "/v1/journals/1/pools")
                sizes = cache.sizes()
                assert [pool["evictable"] for pool in pools["pools"]] == [
                    sizes.full.evictable,
                    sizes.swa.evictable,
                ]
            _, journal = ask(inspector, "/v1/journals/1")
            assert (journal["live"], journal["accepted_seq"]) == (True, recorder.last_seq)
            past = int(recorder.durable_seq) // 2
            status, tree = ask(inspector, f"/v1/journals/1/tree?at={past}")
            assert (status, tree["at"]["asked"], tree["at"]["settled"]) == (200, past, True)
        # The recorder goes on without it.
        serve_one(cache, "afterwards")
        recorder.flush()
    with Journal.open(tmp_path / "run.db") as store:
        assert list(store.verify()) == []


@pytest.mark.parametrize("requests", range(5))
def test_what_was_flushed_is_shown_at_once_by_a_service_that_has_just_begun(
    tmp_path: Path, requests: int
) -> None:
    with (
        Journal.open(tmp_path / "run.db") as store,
        store.record() as recorder,
        # The newest state is answered here; the process for the past takes seconds, and is there once.
        Inspector.attach(recorder, own_process=requests == 0) as inspector,
    ):
        cache = HybridCache(CONFIG, sink=recorder)
        for number in range(requests):
            serve_one(cache, f"r{number}", tokens=24 + 4 * number)
        recorder.flush()
        assert recorder.durable_seq > 0
        for path in ("tree", "requests", "pools", "leases", "eviction/full", "slots/full/4"):
            assert ask(inspector, f"/v1/journals/1/{path}")[0] == 200, path


def test_it_may_be_attached_late_and_more_than_once(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        cache = HybridCache(CONFIG, sink=recorder)
        serve_one(cache, "before")
        recorder.flush()
        with Inspector.attach(recorder) as one, Inspector.attach(recorder) as other:
            assert one.url != other.url
            serve_one(cache, "after", tokens=40)
            recorder.flush()
            for inspector in (one, other):
                tree = shown_at(inspector, int(recorder.durable_seq), "/v1/journals/1/tree")
                assert tree["nodes_total"] == len(cache.nodes())


def test_closing_it_ends_its_threads_and_a_second_close_does_nothing(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        inspector = Inspector.attach(recorder)
        assert ask(inspector, "/healthz")[0] == 200
        inspector.close()
        inspector.close()
        with pytest.raises(ConnectionRefusedError):
            ask(inspector, "/healthz")
    left = {thread for thread in set(threading.enumerate()) - before if "kvledger" in thread.name}
    assert left == set()


def test_it_asks_for_a_token_where_it_has_one_and_wants_one_beyond_loopback(tmp_path: Path) -> None:
    token = "a token of some length".replace(" ", "-")
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        with Inspector.attach(recorder, settings=ApiSettings(port=0, token=token)) as inspector:
            assert ask(inspector, "/v1/journals")[0] == 401
            assert ask(inspector, "/v1/journals", Authorization=f"Bearer {token}")[0] == 200
        with pytest.raises(TokenRequired):
            Inspector.attach(recorder, host="0.0.0.0")


def test_an_address_that_is_taken_is_refused_and_the_recorder_goes_on(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        with Inspector.attach(recorder) as inspector:
            taken = urlsplit(inspector.url).port or 0
            with pytest.raises(CannotListen):
                Inspector.attach(recorder, port=taken)
        serve_one(HybridCache(CONFIG, sink=recorder), "on")
        recorder.flush()


class NoStore:
    """A writer that writes nowhere."""

    durable_seq = 0

    def close(self) -> None:
        """Nothing to close."""


def test_a_recorder_without_a_store_is_refused() -> None:
    recorder = Recorder(NoStore(), RecorderSettings(), journal_id=1)  # type: ignore[arg-type]
    try:
        with pytest.raises(InvalidArgument, match="no store"):
            Inspector.attach(recorder)
    finally:
        recorder.close()


def test_a_sink_of_another_kind_is_refused_by_name() -> None:
    sink: Any = MemorySink()
    with pytest.raises(InvalidArgument, match="an Inspector cannot hear MemorySink, only a recorder"):
        Inspector.attach(sink)


SCHEDULER = """
import os, sys, threading, urllib.request
from kvledger.api import Inspector
from kvledger.api.audits import runner
from kvledger.journal import Journal

recorder = Journal.open(sys.argv[1]).record()
inspector = Inspector.attach(recorder)
"""
"""What a scheduler's process begins with, that ends as its test says."""


def scheduler(folder: Path, ends: str) -> "subprocess.CompletedProcess[str]":
    """Run a scheduler's process to its end, which has to come by itself."""
    command = [sys.executable, "-c", SCHEDULER + ends, str(folder / "run.db")]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


def test_a_scheduler_that_ends_waits_for_no_audit(tmp_path: Path) -> None:
    ended = scheduler(
        tmp_path,
        """
inspector.close()
inspector = Inspector.attach(recorder, own_process=False)
begun = threading.Event()
runner.audit = lambda source, **how: begun.set() or threading.Event().wait()
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/audits", data=b"")
begun.wait()
recorder.close()
print("over")
""",
    )
    assert (ended.stdout, ended.returncode) == ("over\n", 0), ended.stderr


def test_a_child_of_a_scheduler_that_was_forked_does_not_listen(tmp_path: Path) -> None:
    ended = scheduler(
        tmp_path,
        """
mouth, ear = os.pipe()
child = os.fork()
if not child:
    os.close(ear)
    os.read(mouth, 1)
    os._exit(0)
inspector.close()
try:
    urllib.request.urlopen(f"{inspector.url}/healthz", timeout=30)
except OSError as error:
    print(error.reason)
os.close(ear)
os.waitpid(child, 0)
recorder.close()
""",
    )
    assert "refused" in ended.stdout, ended.stderr
