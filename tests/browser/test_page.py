"""The page as somebody on call uses it: load it, select a node, send the view to a colleague."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.recorded import HOSTILE, Recovery

FIRST_ROW = {"x": 12, "y": 28}
"""Inside the node that begins at token 0 in the first row, below the axis."""


def test_the_page_opens_at_the_newest_state_and_follows_it(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal)
    page.at(story.last)
    page.has_text("#tree-share", "showing")
    page.has_text("#tree-legend", "tombstone")
    expect(page.page.locator("#live")).to_have_attribute("aria-pressed", "true")
    page.picture("loaded")


def test_a_click_on_a_node_tells_its_locks_pages_and_origins(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal)
    page.has_text("#tree-share", "nodes")
    page.page.locator("#tree-canvas").click(position=FIRST_ROW)  # type: ignore[arg-type]
    page.has_text("#side-title", f"Node {story.node}")
    page.has_text("#node-full-lock", "2")
    page.has_text("#node-full-pages", story.full_pages)
    page.has_text("#node-swa-pages", story.swa_pages)
    page.has_text("#node-full-origin", "author")
    page.has_text("#node-swa-origin", "writer")
    page.has_text("#node-mixed", "different forwards")
    page.has_text("#node-holders", "reader")
    page.picture("node")


def test_the_keyboard_walks_the_tree_and_says_where_it_is(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal)
    page.has_text("#tree-share", "nodes")
    page.press("t", "ArrowRight")
    page.has_text("#tree-said", f"node {story.node} ")
    page.press("ArrowRight")
    child = page.page.locator("#tree-said")
    expect(child).not_to_contain_text(f"node {story.node} ")
    expect(child).to_contain_text(re.compile(r"Full locks \d+, SWA locks \d+"))
    page.press("ArrowLeft")
    page.has_text("#tree-said", f"node {story.node} ")
    page.press("ArrowDown")
    expect(child).not_to_contain_text(f"node {story.node} ")
    page.press("ArrowUp")
    page.has_text("#tree-said", f"node {story.node} ")
    page.press("+", "+", "-", "0", "}", "{", "Enter")
    expect(page.page.locator("#side")).to_be_focused()


def test_every_node_can_be_reached_by_links_alone(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, node=story.node)
    page.has_text("#side-title", f"Node {story.node}")
    page.page.locator("dt", has_text="Children").locator("+ dd").get_by_role("button").first.click()
    expect(page.page.locator("#side-title")).not_to_have_text(f"Node {story.node}")
    page.page.locator("#node-path").get_by_role("button").last.click()
    page.has_text("#side-title", f"Node {story.node}")


def test_the_address_holds_the_view(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before, node=story.node)
    page.at(story.before)
    page.has_text("#side-title", f"Node {story.node}")
    page.press(".", "a", "2")
    page.at(story.after)
    expect(page.page).to_have_url(re.compile(rf"seq={story.after}.*node={story.node}.*a=.*tab=pools"))
    other = open_page(service)
    other.page.goto(page.page.url)
    other.at(story.after)
    other.has_text("#side-title", f"Node {story.node}")
    expect(other.page.locator("#pane-pools")).to_be_visible()
    other.page.goto(other.address(journal=story.journal, seq=story.last, node=story.node))
    other.at(story.last)


def test_names_are_text_and_never_markup(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, tab="requests")
    page.page.get_by_role("button", name=HOSTILE).first.click()
    page.has_text("#side-title", f"Request {HOSTILE}")
    page.has_text("#request-row", re.compile(r"\d"))
    expect(page.page).to_have_title("kvledger")
    assert page.page.locator("img").count() == 0


def test_only_the_tree_below_a_node_can_be_shown(open_page: Open, service: str, busy: int) -> None:
    page = open_page(service).open(journal=busy)
    page.has_text("#tree-share", "nodes")
    whole = re.search(r"of ([\d,]+) nodes", page.text("#tree-share"))
    assert whole is not None
    page.press("t", "ArrowRight")
    page.page.locator("#node-below").click()
    page.has_text("#tree-bar", "below node")
    expect(page.page.locator("#tree-share")).not_to_contain_text(whole.group(0))
    page.page.get_by_role("button", name="Show the whole tree").first.click()
    page.has_text("#tree-share", whole.group(0))


def test_a_namespace_and_a_number_of_levels_narrow_the_tree(open_page: Open, service: str, busy: int) -> None:
    page = open_page(service).open(journal=busy)
    page.has_text("#tree-share", "nodes")
    everything = page.text("#tree-share")
    page.page.locator("#namespace-filter").select_option("n1")
    expect(page.page.locator("#tree-share")).not_to_have_text(everything)
    page.page.locator("#namespace-filter").select_option(label="all")
    expect(page.page.locator("#tree-share")).to_have_text(everything)
    page.page.locator("#depth-filter").fill("1")
    page.page.locator("#depth-filter").press("Enter")
    page.has_text("#tree-share", "more nodes lie in these rows")


def test_the_help_lists_the_keyboard(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal)
    page.press("?")
    expect(page.page.get_by_role("dialog")).to_contain_text("previous transaction")
    page.press("Escape")
    expect(page.page.get_by_role("dialog")).to_have_count(0)
