"""The page as somebody on call uses it: load it, select a node, send the view to a colleague."""

import re

import pytest
from playwright.sync_api import expect

from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import Journal
from tests.browser.conftest import Open, served
from tests.browser.recorded import HOSTILE, Recovery, record_recovery, small_cache
from tests.support.stores import change

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


def test_a_node_a_slot_and_a_request_are_gone_to_by_what_is_typed(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before)
    for typed, title in (
        (str(story.node), f"Node {story.node}"),
        ("full 4", "Full slot 4"),
        ("swa:8", "SWA slot 8"),
        ("reader", "Request reader"),
    ):
        page.press("g")
        expect(page.page.locator("#go-input")).to_be_focused()
        page.page.keyboard.insert_text(typed)
        page.press("Enter")
        page.has_text("#side-title", title)
        expect(page.page.locator("#side")).to_be_focused()
    page.press("g")
    page.page.keyboard.insert_text("node none")
    page.press("Enter")
    assert (
        page.page.locator("#go-input").evaluate("input => input.validationMessage").startswith("Type a node")
    )
    page.has_text("#side-title", "Request reader")
    page.picture("go-to")


def test_a_namespace_that_is_not_there_is_not_an_empty_tree(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, namespace="nobody")
    expect(page.page.locator("#tree-empty")).to_have_text(
        "No namespace of this name is in the tree at this seq."
    )


def test_the_default_namespace_can_be_looked_at_alone(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store, store.record(name="two") as recorder:
        cache = small_cache(recorder)
        for namespace in ("", "tenant"):
            request = cache.open_request(f"r{namespace}", [1, 2, 3, 4], namespace=namespace)
            request.extend(4)
            request.computed()
            request.finish()
    with served(fresh_store) as address, open_page(address) as page:
        page.open(journal=1)
        page.has_text("#tree-share", "2 of 2 nodes")
        page.page.locator("#namespace-filter").select_option(label="(default)")
        page.has_text("#tree-share", "1 of 1 node")


def test_a_lock_is_told_with_what_it_covers_in_either_pool(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before, request="reader")
    page.has_text(
        "#side", re.compile(r"locks Full of tokens \[0, 40\), from the root to node \d+, and no SWA any more")
    )
    page.page.goto(page.address(journal=story.journal, seq=story.after, request="writer"))
    page.has_text(
        "#side", re.compile(r"locks Full of tokens .* from the root to node \d+, and SWA of tokens \[")
    )


def test_a_pasted_fragment_wins_over_a_write_that_was_waiting(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before)
    page.page.evaluate(
        """(pasted) => {
            const before = location.hash;
            location.hash = pasted;
            history.replaceState(null, "", before);  // as the page's own write does, before the event comes
        }""",
        f"#journal={story.journal}&seq={story.after}",
    )
    page.at(story.after)
    page.page.wait_for_url(f"**seq={story.after}")


def test_the_help_lists_the_keyboard(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal)
    page.press("?")
    expect(page.page.get_by_role("dialog")).to_contain_text("previous transaction")
    page.press("Escape")
    expect(page.page.get_by_role("dialog")).to_have_count(0)


def test_a_journal_that_does_not_fold_says_so_and_tells_its_events(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store:
        story = record_recovery(store)
    edit = f"UPDATE events SET payload = json_set(payload, '$.node', 99999) WHERE seq = {story.recovered}"
    change(fresh_store, edit)
    with served(fresh_store) as address, open_page(address) as page:
        page.expected.append("409")
        page.page.goto(page.address(journal=story.journal))
        page.has_text("#notices", "does not fold")
        page.has_text("#tree-empty", "cannot be known")
        expect(page.page.locator(".event-row:not(.head)").first).to_be_visible()
        page.picture("does-not-fold")
        page.page.goto(page.address(journal=story.journal, seq=story.before))
        page.at(story.before)
        page.has_text("#tree-share", "nodes")
        expect(page.page.locator("#tree-empty")).to_be_hidden()
        page.check()


@pytest.mark.parametrize("width", [320, 640])
def test_a_narrow_page_is_not_wider_than_its_window(open_page: Open, fresh_store: str, width: int) -> None:
    with Journal.open(fresh_store) as store, store.record(name="long names " * 20) as recorder:
        cache = HybridCache(
            CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=160), sink=recorder
        )
        for namespace in ("tenant " * 40, "another " * 40):
            request = cache.open_request("id" * 200 + namespace[0], [1, 2, 3, 4, 5], namespace=namespace)
            request.extend(5)
            request.computed()
            request.commit()
    with served(fresh_store) as address, open_page(address, viewport={"width": width, "height": 640}) as page:
        page.open()
        page.has_text("#tree-share", "nodes")
        assert page.page.evaluate("document.documentElement.scrollWidth") == width
        page.picture(f"narrow-{width}")
        page.check()
