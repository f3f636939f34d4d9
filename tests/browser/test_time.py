"""Moving through time: step, play, go to marks, and what a recovery under lock looks like on the way."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.recorded import Recovery


def test_over_a_recovery_under_lock_the_full_pages_stay_and_the_swa_pages_appear(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before, node=story.node)
    page.has_text("#node-swa-pages", "none: a tombstone")
    page.has_text("#node-state", "Full-locked")
    page.has_text("#node-full-pages", story.full_pages)
    page.picture("recovery-before")
    page.press(".")
    page.at(story.after)
    page.has_text("#node-swa-pages", story.swa_pages)
    page.has_text("#node-full-pages", story.full_pages)
    expect(page.page.locator("#node-full-pages")).not_to_have_class("changed")
    expect(page.page.locator("#node-swa-pages")).to_have_class("changed")
    page.has_text("#node-state", "mixed origins")
    page.picture("recovery-after")
    page.press(",")
    page.at(story.before)
    page.has_text("#node-swa-pages", "none: a tombstone")
    page.has_text("#node-full-pages", story.full_pages)


def test_the_next_mark_is_the_recovery_under_lock(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, seq=3)
    page.press("]")
    page.at(story.after)
    expect(page.page.locator(".event-row.current").first).to_be_visible()
    page.press("Home")
    page.at(1)
    page.press("[")
    page.has_text("#notices", "There is no earlier mark")


def test_a_click_on_a_mark_goes_to_its_event(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, seq=3)
    bar = page.page.locator("#time-bar")
    box = bar.bounding_box()
    assert box is not None
    x = 6 + (story.recovered - 1) / (story.last - 1) * (box["width"] - 12)
    page.has_text("#time-legend", "recovery under lock: 2")
    # The third lane holds recoveries under lock.
    bar.click(position={"x": x, "y": 26})
    page.at(story.after)


def test_the_time_bar_is_a_slider_for_the_keyboard(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before)
    bar = page.page.get_by_role("slider", name="Seq")
    bar.focus()
    expect(bar).to_have_attribute("aria-valuenow", str(story.before))
    expect(bar).to_have_attribute("aria-valuemax", str(story.last))
    page.press("ArrowRight")
    expect(bar).to_have_attribute("aria-valuenow", str(story.after))
    page.press("ArrowLeft")
    expect(bar).to_have_attribute("aria-valuenow", str(story.before))
    page.press("Home")
    page.at(1)
    page.press("End")
    page.at(story.last)


def test_play_goes_from_transaction_to_transaction_until_the_end(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=1)
    page.page.locator("#speed").select_option("100")
    page.page.locator("#play").click()
    expect(page.page.locator("#play")).to_have_attribute("aria-pressed", "true")
    page.at(story.last)
    expect(page.page.locator("#play")).to_have_attribute("aria-pressed", "false")


def test_a_seq_can_be_typed_and_nonsense_is_told_calmly(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal)
    page.press("s")
    page.page.keyboard.type(str(story.before))
    page.press("Enter")
    page.at(story.before)
    page.press("s")
    page.page.keyboard.type("999999")
    page.press("Enter")
    page.has_text("#notices", re.compile(r"from 1 to \d+"))
    page.page.get_by_role("button", name="Put away: Seq").click()
    expect(page.page.locator("#notices")).to_be_empty()


def test_a_seq_that_is_gone_to_wins_over_a_step_that_is_still_looked_up(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before)
    page.has_text("#moment-text", f"of {story.last}")
    page.page.route("**/transactions/*", lambda route: None)
    with page.page.expect_request("**/transactions/*"):
        page.press(".")
    with page.page.expect_event("requestfailed", lambda request: "/transactions/" in request.url):
        page.press("s")
        page.page.keyboard.type("1")
        page.press("Enter")
    page.at(1)


def test_a_node_that_is_not_there_yet_is_said_to_be_so(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service)
    page.open(journal=story.journal, seq=1, node=story.node)
    page.has_text("#side-missing", f"Node {story.node} is not in the tree at this seq")
    page.page.locator("#side").get_by_role("button", name=re.compile("^seq")).first.click()
    page.has_text("#node-full-pages", story.full_pages.split("–")[0])  # noqa: RUF001
