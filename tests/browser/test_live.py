"""A journal that grows while the page is open, served from the process that records it."""

import re

import numpy as np
from playwright.sync_api import expect

from kvledger.api import Inspector
from kvledger.journal import Journal
from tests.browser.conftest import Open, served
from tests.browser.recorded import DOCUMENT, serve_prompt, small_cache


def test_events_come_in_while_the_page_is_open(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store, store.record(name="live") as recorder:
        cache = small_cache(recorder)
        first = serve_prompt(cache, "first", DOCUMENT)
        recorder.flush()
        with Inspector.attach(recorder) as inspector, open_page(inspector.url) as page:
            page.open()
            page.has_text("#following", "live")
            page.has_text("#events-state", "following")
            newest = page.page.locator("#pane-events [role=listitem]").first
            expect(newest).to_contain_text("first")
            serve_prompt(cache, "second", (7, 7, 7, 7))
            recorder.flush()
            expect(newest).to_contain_text("second")
            page.at(int(recorder.durable_seq))
            page.has_text("#tree-share", "of 3 nodes")
            page.page.locator("#event-request").fill("third")
            page.has_text("#events-state", "0 loaded")
            serve_prompt(cache, "third", (8, 8, 8, 8))
            first.finish()
            recorder.flush()
            expect(newest).to_contain_text("third")
            page.picture("live")


def test_a_past_seq_stays_while_the_journal_grows(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store, store.record(name="live") as recorder:
        cache = small_cache(recorder)
        serve_prompt(cache, "first", DOCUMENT)
        recorder.flush()
        seen = int(recorder.durable_seq)
        with Inspector.attach(recorder) as inspector, open_page(inspector.url) as page:
            page.open()
            page.at(seen)
            page.press("l")
            expect(page.page.locator("#live")).to_have_attribute("aria-pressed", "false")
            serve_prompt(cache, "second", (7, 7, 7, 7))
            recorder.flush()
            page.has_text("#moment-text", f"of {int(recorder.durable_seq)} ")
            page.at(seen)
            page.press("l")
            page.at(int(recorder.durable_seq))


def test_an_empty_journal_waits_for_its_first_event(open_page: Open, fresh_store: str) -> None:
    with (
        Journal.open(fresh_store) as store,
        store.record(name="young") as recorder,
        Inspector.attach(recorder) as inspector,
        open_page(inspector.url) as page,
    ):
        page.page.goto(inspector.url)
        page.has_text("#tree-empty", "waits for the first event")
        cache = small_cache(recorder)
        cache.alloc(4)
        recorder.flush()
        page.at(int(recorder.durable_seq))
        page.has_text("#tree-empty", "No node is in the tree")


def test_a_service_that_goes_away_is_said_so_and_found_again(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store, store.record(name="story") as recorder:
        serve_prompt(small_cache(recorder), "first", tuple(np.arange(8).tolist()))
    with served(fresh_store) as address:
        page = open_page(address).open()
        page.has_text("#tree-share", "of 1 node")
    page.expected = [r"ERR_CONNECTION", r"ERR_INCOMPLETE", r"ERR_EMPTY_RESPONSE", r"Failed to load resource"]
    page.has_text("#notices", "The service does not answer")
    page.has_text("#tree-share", "of 1 node")
    page.picture("gone")
    with served(fresh_store, port=int(address.rsplit(":", 1)[1])):
        expect(page.page.locator("#notices")).to_be_empty()
        page.press("Home")
        page.at(1)


def test_a_broken_stream_goes_on_behind_the_last_event(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store, store.record(name="story") as recorder:
        cache = small_cache(recorder)
        serve_prompt(cache, "first", DOCUMENT)
        recorder.flush()
        with served(fresh_store) as address:
            page = open_page(address).open()
            page.has_text("#events-state", "following")
        page.expected = [r"ERR_", r"Failed to load resource"]
        page.has_text("#events-state", "broke off")
        serve_prompt(cache, "second", (7, 7, 7, 7))
        recorder.flush()
        with served(fresh_store, port=int(address.rsplit(":", 1)[1])):
            page.has_text("#pane-events [role=list]", re.compile("second"))
            page.at(int(recorder.durable_seq))
            seqs = page.page.locator("#pane-events .seq").all_inner_texts()
            told = [int(seq.replace(",", "")) for seq in seqs if seq[0].isdigit()]
            assert told == sorted(set(told), reverse=True)
            assert told[0] - told[-1] == len(told) - 1
