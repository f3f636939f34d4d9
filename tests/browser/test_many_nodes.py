"""A tree of twenty thousand nodes: the page asks for what is in sight, and no more when it is scrolled."""

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Request, expect

from kvledger.journal import Journal
from tests.browser.conftest import Open, served
from tests.browser.recorded import record_many_nodes

pytestmark = pytest.mark.slow

NODES = 20_000
BOUND = 2_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('many') / 'many.db'}"
    with Journal.open(url) as store:
        record_many_nodes(store, nodes=NODES)
    with served(url) as address:
        yield address


def rows_asked(request: Request) -> tuple[int, int]:
    """First row and number of rows of a question for the tree."""
    query = parse_qs(urlsplit(request.url).query)
    return int(query["first_row"][0]), int(query["rows"][0])


def test_the_first_picture_asks_for_a_bounded_number_of_nodes(open_page: Open, many: str) -> None:
    page = open_page(many).open()
    page.has_text("#tree-share", re.compile(r"showing [\d,]+ of 2\d,\d{3} nodes"))
    asked = page.questions("/tree")
    assert 1 <= len(asked) <= 3
    for request in asked:
        assert int(parse_qs(urlsplit(request.url).query)["limit"][0]) <= BOUND
        answer = request.response()
        assert answer is not None
        assert len(answer.json()["nodes"]) <= BOUND
    page.picture("many-nodes")


def test_scrolling_asks_for_the_rows_that_come_into_sight(open_page: Open, many: str) -> None:
    page = open_page(many).open()
    page.has_text("#tree-share", "rows 1")
    before = len(page.questions("/tree"))
    scroller = page.page.locator("#tree-scroller")
    with page.page.expect_response(lambda response: "/tree?" in response.url):
        scroller.evaluate("element => { element.scrollTop = element.scrollHeight / 2 }")
    first, rows = rows_asked(page.questions("/tree")[-1])
    assert 5_000 < first < 15_000
    assert rows <= 1_000
    assert len(page.questions("/tree")) == before + 1
    expect(page.page.locator("#tree-share")).not_to_contain_text("rows 1–")  # noqa: RUF001
    expect(page.page.locator("#tree-canvas")).to_have_attribute("aria-busy", "false")
    page.page.locator("#tree-canvas").click(position={"x": 300, "y": 60})
    page.has_text("#side-title", "Node")
    page.picture("many-nodes-scrolled")


def test_a_node_far_down_is_brought_into_sight(open_page: Open, many: str) -> None:
    page = open_page(many).open(node=15_000)
    page.has_text("#side-title", "Node 15000")
    expect(page.page.locator("#tree-share")).not_to_contain_text("rows 1–")  # noqa: RUF001
    page.has_text("#tree-said", "node 15000 ")
