"""The browser, the service and watched pages, as fixtures.

The browser lives as long as a module: Playwright keeps an event loop running in this thread for as long, and
tests elsewhere want their own.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from pydantic import SecretStr

from kvledger.api import ApiSettings, create_app
from kvledger.api.library import Library
from kvledger.api.serving import Service
from kvledger.journal import Journal
from tests.browser.recorded import Recovery, record_busy, record_recovery
from tests.browser.watched import WatchedPage

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 20_000
"""How long a test waits for what has to come; a machine under load is slow, not broken."""

Open = Callable[..., WatchedPage]


@contextmanager
def served(url: str, *, port: int = 0, reveal_tokens: bool = True, token: str | None = None) -> Iterator[str]:
    """The real service over a store, on a thread of its own; its address."""
    with Journal.open(url) as store:
        settings = ApiSettings(
            port=port, reveal_tokens=reveal_tokens, token=None if token is None else SecretStr(token)
        )
        service = Service(create_app(settings, Library(store, reveal_tokens=reveal_tokens)))
        address = service.listen()
        thread = threading.Thread(target=service.run, name="service")
        thread.start()
        try:
            yield address
        finally:
            service.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, headless. Skips where there is none, unless KVLEDGER_REQUIRE_BROWSER=1."""
    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        if os.environ.get("KVLEDGER_REQUIRE_BROWSER") == "1":
            pytest.fail(f"a browser is required and not there: none of {', '.join(NAMES)}", pytrace=False)
        pytest.skip("no browser")
    # Chromium's sandbox refuses to run as root, which containers are.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=flags)
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens watched pages of a service; at the end each is asked whether anything went wrong.

    A test that ends the service closes its page first: it is a context manager.
    """
    pages: list[WatchedPage] = []

    def open_one(url: str, **context: object) -> WatchedPage:
        how = {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}, **context}
        page = browser.new_context(**how).new_page()  # type: ignore[arg-type]
        page.set_default_timeout(PATIENCE_MS)
        pages.append(WatchedPage(page, url))
        return pages[-1]

    yield open_one
    for watched in pages:
        watched.page.context.close()
    for watched in pages:
        watched.check()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Recovery, int]:
    """A store with two journals: the story of a recovery under lock, and a busy run (its id)."""
    url = f"sqlite:///{tmp_path_factory.mktemp('browser') / 'recorded.db'}"
    with Journal.open(url) as store:
        return url, record_recovery(store), record_busy(store)


@pytest.fixture(scope="module")
def service(recorded: tuple[str, Recovery, int], browser: Browser) -> Iterator[str]:
    """The address of the service over `recorded`."""
    with served(recorded[0]) as address:
        yield address


@pytest.fixture
def story(recorded: tuple[str, Recovery, int]) -> Recovery:
    """The story of a recovery under lock."""
    return recorded[1]


@pytest.fixture
def busy(recorded: tuple[str, Recovery, int]) -> int:
    """The id of the busy journal."""
    return recorded[2]


@pytest.fixture
def fresh_store(tmp_path: Path) -> str:
    """The URL of a store of this test alone."""
    return f"sqlite:///{tmp_path / 'run.db'}"
