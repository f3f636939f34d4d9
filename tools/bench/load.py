"""The load that the inspector is measured under: what a page asks, from a process of its own.

Requests are due at fixed times, whatever became of those before them; a connection that is still waiting
misses the ones that fall due meanwhile, so the load is bounded by the service's own answers. Seeded.
"""

import http.client
import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

import numpy as np
from pydantic import BaseModel, ConfigDict

CONNECTIONS = 8
"""Requests under way at once: a page has six, and somebody else asks too."""

START_SECONDS = 60.0
"""How long the other process may take to import and connect."""

TIMEOUT_SECONDS = 30.0

NEWEST = (
    "tree?rows=60",
    "tree?rows=60&first_row=20",
    "tree?rows=200&limit=400&depth=6",
    "pools",
    "pools/full/map?limit=500",
    "pools/swa/map?limit=500",
    "events?order=desc&limit=20",
    "requests?limit=20",
    "leases?limit=20",
    "eviction/swa?limit=20",
)
PAST = "tree?rows=60&at={seq}"

PAST_SHARE = 0.05
"""Of the requests so many ask for a past seq, one of the last `PAST_SEQS`."""

PAST_SEQS = 5_000


class LoadFigure(BaseModel):
    """What was asked and answered. `late`: requests that were not sent, as every connection was waiting."""

    model_config = ConfigDict(frozen=True)

    seconds: float
    answered: int
    late: int
    per_second: float
    statuses: dict[str, int]
    median_ms: float
    p99_ms: float


@contextmanager
def under_load(url: str, *, journal: int, rate: float, seed: int) -> Iterator[list[LoadFigure]]:
    """Ask the service at `url` about `rate` times a second for the time of the block.

    The list has one figure after the block. Raises RuntimeError where the other process does not start.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_ask, args=(theirs, url, journal, rate, seed), daemon=True)
    process.start()
    figures: list[LoadFigure] = []
    try:
        if not ours.poll(START_SECONDS):
            raise RuntimeError("the process that makes the load did not start")
        ours.recv()
        yield figures
    finally:
        ours.send("stop")
        if ours.poll(START_SECONDS):
            figures.append(LoadFigure.model_validate_json(ours.recv()))
        process.join(START_SECONDS)


class _Asker:
    """One process's connections, what they were answered, and when they have to stop."""

    def __init__(self, url: str, *, journal: int, rate: float, seed: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._base = f"/v1/journals/{journal}/"
        self._rate = rate
        self._seed = seed
        self._lock = threading.Lock()
        self._newest_seq = 0
        self.stopped = threading.Event()
        self.statuses: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.late = 0

    def run(self, place: int) -> None:
        """Send every request that is `place`'s: number place, place + CONNECTIONS, and so on."""
        dice = random.Random(self._seed * CONNECTIONS + place)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        began = time.perf_counter()
        number = place
        while True:
            wait = began + number / self._rate - time.perf_counter()
            if self.stopped.wait(max(0.0, wait)):
                break
            self._send(connection, self._question(dice))
            due = int((time.perf_counter() - began) * self._rate)
            missed = max(0, (due - number) // CONNECTIONS - 1)
            number += CONNECTIONS * (1 + missed)
            with self._lock:
                self.late += missed
        connection.close()

    def _question(self, dice: random.Random) -> str:
        newest = self._newest_seq
        if newest > 1 and dice.random() < PAST_SHARE:
            return PAST.format(seq=dice.randrange(max(1, newest - PAST_SEQS), newest))
        return dice.choice(NEWEST)

    def _send(self, connection: http.client.HTTPConnection, question: str) -> None:
        began = time.perf_counter()
        try:
            connection.request("GET", self._base + question)
            answer = connection.getresponse()
            body = answer.read()
            status = str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            status, body = type(error).__name__, b""
        spent = time.perf_counter() - began
        with self._lock:
            self.statuses[status] += 1
            self.seconds.append(spent)
            if question == "pools" and status == "200":
                self._newest_seq = int(body.split(b'"seq":', 1)[1].split(b",", 1)[0])


def _ask(pipe: Connection, url: str, journal: int, rate: float, seed: int) -> None:
    """The other process: say that it is there, ask until told to stop, say what came of it."""
    asker = _Asker(url, journal=journal, rate=rate, seed=seed)
    threads = [threading.Thread(target=asker.run, args=(place,)) for place in range(CONNECTIONS)]
    pipe.send("ready")
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    pipe.recv()
    asker.stopped.set()
    elapsed = time.perf_counter() - began
    for thread in threads:
        thread.join()
    spent = np.array(asker.seconds or [0.0]) * 1e3
    figure = LoadFigure(
        seconds=round(elapsed, 2),
        answered=len(asker.seconds),
        late=asker.late,
        per_second=round(len(asker.seconds) / elapsed, 1),
        statuses=dict(asker.statuses),
        median_ms=round(float(np.median(spent)), 2),
        p99_ms=round(float(np.percentile(spent, 99)), 2),
    )
    pipe.send(figure.model_dump_json())
