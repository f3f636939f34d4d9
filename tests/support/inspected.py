"""An Inspector over a recorder, asked over HTTP, and the process that it has for the past."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from kvledger.api import Inspector
from kvledger.api.apart import OwnProcess
from kvledger.api.apart.attempts import Attempts
from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import Journal, Recorder

DEADLINE_SECONDS = 60
"""How long a test waits for another process before it fails; nothing is measured against it."""

CONFIG = CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=320)
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Answer:
    """Status, headers and body as they came; `date` is left out, the server beneath sets it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    inspector: Inspector, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str
) -> Answer:
    """One request over a connection of its own; names of headers with _ for -."""
    address = urlsplit(inspector.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE_SECONDS)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body=body, headers=named | (JSON if body is not None else {}))
        came = connection.getresponse()
        told = sorted((name.lower(), value) for name, value in came.getheaders())
        kept = tuple((name, value) for name, value in told if name != "date")
        return Answer(came.status, kept, came.read())
    finally:
        connection.close()


def serve_some(cache: HybridCache, *, requests: int = 12) -> None:
    """Requests that share what they begin with; the last one stays open."""
    for number in range(requests):
        tokens = 24 + 4 * number
        request = cache.open_request(f"r{number}", np.arange(tokens, dtype=np.int32), namespace="tenant")
        request.extend(tokens - request.prefix_len)
        request.computed()
        request.commit()
        if number < requests - 1:
            request.finish()


@contextmanager
def inspected(store: Path | str, **how: Any) -> Iterator[tuple[Inspector, Recorder]]:
    """An Inspector over a journal with some requests, which it has followed to its end."""
    with Journal.open(store) as journal, journal.record(name="rank0") as recorder:
        serve_some(HybridCache(CONFIG, sink=recorder))
        recorder.flush()
        with Inspector.attach(recorder, **how) as inspector:
            timeline = inspector.library.opened(recorder.journal_id).timeline
            last = int(recorder.durable_seq)
            assert timeline.wait_beyond(last - 1, DEADLINE_SECONDS) >= last
            yield inspector, recorder


def kill(process: OwnProcess, *, more_attempts: int = 0) -> None:
    """Kill the process, which is then dead, and may be started so often again."""
    assert process.pid is not None
    process.attempts = Attempts(limit=1 + more_attempts)
    assert process.attempts.begin()
    os.kill(process.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        # Left for the service to take.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def process_of(inspector: Inspector) -> OwnProcess:
    """The process for the past, which an Inspector has by default."""
    assert inspector.own_process is not None
    return inspector.own_process
