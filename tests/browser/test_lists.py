"""The lists below the tree: events and their filters, pools, requests, leases, eviction, explain, diff."""

import re

from playwright.sync_api import expect

from kvledger.core.events import EVENTS
from kvledger.journal import Journal
from tests.browser.conftest import Open, served
from tests.browser.recorded import DOCUMENT, Recovery, small_cache


def test_the_filter_offers_every_kind_of_event(open_page: Open, service: str, busy: int) -> None:
    page = open_page(service).open(journal=busy)
    boxes = page.page.locator("#kind-filter input")
    assert {box.get_attribute("value") for box in boxes.all()} == set(EVENTS)


def test_events_are_filtered_by_kind_node_request_and_undone(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal)
    rows = page.page.locator("#pane-events [role=listitem]")
    page.page.locator("#kind-filter summary").click()
    page.page.locator("#kind-swa_recovered").check()
    page.page.keyboard.press("Escape")
    expect(rows.first).to_contain_text("swa_recovered")
    assert set(page.page.locator("#pane-events [role=listitem] .mono").all_inner_texts()) == {"swa_recovered"}
    page.has_text("#kind-filter summary", "swa_recovered")
    page.page.locator("#event-node").fill(str(story.node))
    expect(rows).to_have_count(1)
    page.page.locator("#event-undone").select_option("true")
    expect(rows).to_have_count(0)
    page.page.locator("#event-undone").select_option("")
    page.page.locator("#event-request").fill("nobody")
    page.has_text("#events-state", "0 loaded")
    page.page.locator("#event-request").fill("writer")
    expect(rows).to_have_count(1)
    page.picture("events-filtered")


def test_a_click_on_an_event_shows_what_its_transaction_left(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal)
    page.page.locator("#kind-filter summary").click()
    page.page.locator("#kind-swa_recovered").check()
    page.page.keyboard.press("Escape")
    row = page.page.locator(f"[data-seq='{story.recovered}']")
    row.locator(".seq").click()
    page.at(story.after)
    expect(row).to_have_class(re.compile("current"))


def test_a_long_list_holds_only_the_rows_in_sight_and_loads_the_rest(
    open_page: Open, service: str, busy: int
) -> None:
    page = open_page(service).open(journal=busy)
    rows = page.page.locator("#pane-events [role=listitem]")
    page.has_text("#events-state", "200 newest loaded")
    assert rows.count() < 60
    page.page.locator("#pane-events .long-list").evaluate("list => { list.scrollTop = list.scrollHeight }")
    page.has_text("#events-state", "400 newest loaded")
    assert rows.count() < 60


def test_a_page_of_a_pool_leads_to_the_history_of_its_slot(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, tab="pools")
    page.page.locator("#pool-full").click(position={"x": 4, "y": 4})
    page.has_text("#side-title", "Full slot 4")
    page.has_text("#slot-sentence", f"node {story.node}")
    page.has_text("#side", "Whose it was")
    expect(page.page.locator("#side li").last).to_contain_text("still")
    page.press("ArrowRight")
    page.has_text("#side-title", "Full slot 8")
    page.page.locator("#slot-input").fill("4")
    page.page.get_by_role("button", name="Go to slot").click()
    page.has_text("#side-title", "Full slot 4")
    page.picture("pools")


def test_the_pool_map_asks_only_for_what_is_in_sight(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal)
    expect(page.page.locator("[role=listitem]").first).to_be_visible()
    assert page.questions("/map") == []
    with page.page.expect_response(lambda response: "/swa/map" in response.url):
        page.press("2")
    expect(page.page.locator("#pool-full")).to_be_visible()
    assert len(page.questions("/map")) == 2
    assert all("pages=" in request.url and "limit=" in request.url for request in page.questions("/map"))


def test_a_rollback_is_told_with_its_reason(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store, store.record(name="undone") as recorder:
        cache = small_cache(recorder)
        with cache.transaction("try") as transaction:
            cache.alloc(8)
            transaction.rollback(reason="no room on the other rank")
    with served(fresh_store) as address, open_page(address) as page:
        page.open(journal=1)
        rows = page.page.locator("#pane-events [role=listitem]")
        expect(rows.filter(has_text="were undone")).to_contain_text("no room on the other rank")


def test_requests_and_leases_are_those_of_the_seq_shown(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before, tab="requests")
    page.has_text("#pane-requests", "reader")
    expect(page.page.locator("#pane-requests tbody tr")).to_have_count(2)
    page.press("4")
    expect(page.page.locator("#pane-leases tbody tr")).to_have_count(2)
    page.page.locator("#pane-leases").get_by_role("button", name="reader").click()
    page.has_text("#side-title", "Request reader")
    page.has_text("#request-row", "4–")  # noqa: RUF001
    page.press("Escape", "Home")
    page.has_text("#pane-leases", "Nothing is locked")


def test_eviction_lists_what_would_go_next(open_page: Open, service: str, busy: int) -> None:
    page = open_page(service).open(journal=busy, tab="eviction")
    page.has_text("#pane-eviction", re.compile(r"Full: [\d,]+ evictable tokens"))
    page.page.locator("#pane-eviction tbody tr").first.get_by_role("button").click()
    page.has_text("#side-title", "Node")
    page.has_text("#node-state", "evictable")
    page.picture("eviction")
    page.open(journal=busy, seq=1, tab="eviction")
    page.has_text("#pane-eviction", "Nothing can be evicted: the tree is empty")


def test_explain_says_where_the_tombstone_is(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before, tab="explain")
    page.page.locator("#explain-tokens").fill(", ".join(map(str, DOCUMENT)))
    page.page.get_by_role("button", name="Why does it not match further?").click()
    page.has_text("#explanation", "Full alone")
    page.has_text("#explanation", "32 tokens")
    page.has_text("#explain-sentence", "tombstone")
    page.has_text("#explanation", "Tombstone that decides")
    page.page.locator("#explain-tokens").fill("1 2 three")
    page.page.get_by_role("button", name="Why does it not match further?").click()
    expect(page.page.get_by_role("alert")).to_have_text('"three" is not a token id.')


def test_two_marked_seqs_are_compared(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.before)
    page.press("a", ".")
    page.at(story.after)
    page.press("b", "d")
    page.has_text("#difference", "changed")
    page.has_text("#difference", f"node {story.node}")
    page.picture("difference")
