"""A browser page that is watched: whatever it does wrong is collected, and `check` says so.

Wrong are: anything on the console, an exception, a request that fails or leaves the service, a refusal.
A test that provokes one of them names it in `expected`.
"""

import re
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, Response, expect

SCREENSHOTS = Path(__file__).with_name("screenshots")

WITHDRAWN = "net::ERR_ABORTED"
"""A question that the page itself took back because it has a newer one, or a stream that it closed."""


class WatchedPage:
    """A page of the service at `url`, watched from the first request on."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.asked: list[Request] = []
        self.wrong: list[str] = []
        self.expected: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"exception: {error}"))
        page.on("request", self._sent)
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.page.context.close()

    def open(self, **fragment: object) -> Self:
        """Load the page with this fragment, and wait until it shows a state."""
        self.page.goto(self.address(**fragment))
        expect(self.page.locator("#moment-text")).not_to_be_empty()
        return self

    def address(self, **fragment: object) -> str:
        """The page's address with journal, seq, node and so on in its fragment."""
        return f"{self.url}/#" + "&".join(f"{name}={value}" for name, value in fragment.items())

    def at(self, seq: int) -> None:
        """Wait until the state of `seq` is shown."""
        expect(self.page.locator("#seq-input")).to_have_value(str(seq))

    def text(self, selector: str) -> str:
        """The text of one element."""
        return self.page.locator(selector).inner_text()

    def has_text(self, selector: str, text: str | re.Pattern[str]) -> None:
        """Wait until an element has this text in it."""
        expect(self.page.locator(selector)).to_contain_text(text)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        for key in keys:
            self.page.keyboard.press(key)

    def questions(self, part: str) -> list[Request]:
        """The requests whose path ends so."""
        return [request for request in self.asked if urlsplit(request.url).path.endswith(part)]

    def picture(self, name: str) -> None:
        """Keep a screenshot for whoever wants to see what the test saw."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def check(self) -> None:
        """Fail with all that went wrong and was not expected to."""
        wrong = [what for what in self.wrong if not any(re.search(one, what) for one in self.expected)]
        assert not wrong, "\n".join(wrong)

    def _said(self, message: ConsoleMessage) -> None:
        self.wrong.append(f"console {message.type}: {message.text} ({message.location.get('url')})")

    def _sent(self, request: Request) -> None:
        self.asked.append(request)
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"left the service: {request.url}")

    def _failed(self, request: Request) -> None:
        if request.failure != WITHDRAWN:
            self.wrong.append(f"failed: {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.wrong.append(f"refused: {response.url}: {response.status}")
