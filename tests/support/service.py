"""The service over recorded journals: clients inside the process, and a real server for streams."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

from kvledger.api.app import create_app
from kvledger.api.library import Library, LiveRecorder
from kvledger.api.serving import Service
from kvledger.api.settings import ApiSettings
from kvledger.core import CacheConfig, HybridCache
from kvledger.core.sinks import EventSink
from kvledger.journal import Journal
from kvledger.journal.database import writing_engine
from kvledger.journal.export import export_journal, prune_rows
from tests.support.recorded_run import record_run, small_run

HOST = "http://127.0.0.1:8470"
"""What a client inside the process calls the service: a loopback service answers to no other name."""

DEADLINE_SECONDS = 60
"""How long a test waits for a thread before it fails; nothing is measured against it."""


def recorded(folder: Path, *, requests: int = 60, seed: int = 7, name: str = "run.db", **how: Any) -> Path:
    """A database with one journal: a small run, flushed in batches."""
    path = folder / name
    with Journal.open(path) as store:
        record_run(store, small_run(requests, seed), name="small", **how)
    return path


def pruned(folder: Path, *, before_seq: int = 600) -> tuple[Path, int]:
    """A database whose older events were exported and pruned, and the first seq that is left."""
    path = recorded(folder, checkpoint_every=100)
    with Journal.open(path) as store:
        reader = store.reader()
        export_journal(reader, folder / "exported")
        engine = writing_engine(store.url)
        try:
            cut = prune_rows(engine, reader, before_seq=before_seq, exported=folder / "exported")
        finally:
            engine.dispose()
    return path, cut.checkpoint_seq + 1


FILLED = {
    "journal": "1",
    "seq": "7",
    "number": "3",
    "node": "1",
    "pool": "full",
    "slot": "4",
    "request_id": "r1",
    "audit": "0123456789abcdef",
}
"""A value for every parameter that a path of the service has."""


def every_address(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of everything that the application answers, with values for the parameters of paths.

    A kind of route that is not known here fails, so that no address can be left out of the tests on all of
    them.
    """
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        path = context.path
        assert path is not None, f"{route!r} has no path"
        if isinstance(route, Mount):
            found += [("GET", f"{path}/index.html"), ("GET", f"{path}/not-there")]
            continue
        assert isinstance(route, Route), f"{route!r} is of an unknown kind"
        filled = re.sub(r"{(\w+)(?::\w+)?}", lambda match: FILLED[match[1]], path)
        found += [(method, filled) for method in sorted(context.methods or ())]
    return found


@contextmanager
def library_over(
    path: Path | str, *, live: LiveRecorder | None = None, reveal: bool = False, **how: Any
) -> Iterator[Library]:
    """The library of a database, closed at the end with its store."""
    with Journal.open(path, create=False) as store:
        library = Library(store, live=live, reveal_tokens=reveal, **how)
        try:
            yield library
        finally:
            library.close()


@contextmanager
def client_over(
    path: Path | str, *, live: LiveRecorder | None = None, reveal: bool = False, **given: Any
) -> Iterator[TestClient]:
    """A client of the service over a database; an error inside the service is raised in the test."""
    settings = ApiSettings(reveal_tokens=reveal, **given)
    with library_over(path, live=live, reveal=reveal, followed=settings.followed_journals) as library:
        app = create_app(settings, library)
        with TestClient(app, base_url=HOST) as client:
            yield client


def followed(client: TestClient, journal: int = 1) -> dict[str, object]:
    """The journal once the service has followed it to its end."""
    opened = client.app.state.library.opened(journal)  # type: ignore[attr-defined]
    last = opened.reader.head().seq
    opened.timeline.wait_beyond(last - 1, DEADLINE_SECONDS)
    answer: dict[str, object] = client.get(f"/v1/journals/{journal}").json()
    return answer


@contextmanager
def served(library: Library, **settings: Any) -> Iterator[Service]:
    """A real server on a free port, in a thread; it goes down at the end and has to end by itself."""
    service = Service(create_app(ApiSettings(port=0, **settings), library))
    service.listen()
    thread = threading.Thread(target=service.run, name="service", daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.should_exit = True
        thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive(), "the service did not go down"


def one_request(sink: EventSink, *, name: str = "late", tokens: int = 12) -> HybridCache:
    """A cache of a few pages and one request that ran in it."""
    cache = HybridCache(
        CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=160), sink=sink
    )
    request = cache.open_request(name, np.arange(tokens, dtype=np.int32), namespace="tenant")
    request.extend(tokens)
    request.computed()
    request.finish()
    return cache
