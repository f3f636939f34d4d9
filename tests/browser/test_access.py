"""What the page shows of private data, and how it gets in where a token is wanted."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import Open, served
from tests.browser.recorded import Recovery

TOKEN = "a-token-for-the-browser"


def test_namespaces_and_tokens_stay_hidden_and_the_page_works(
    open_page: Open, recorded: tuple[str, Recovery, int]
) -> None:
    url, story, busy = recorded
    with served(url, reveal_tokens=False) as address, open_page(address) as page:
        page.open(journal=story.journal, node=story.node)
        page.has_text("#node-full-pages", story.full_pages)
        expect(page.page.locator("#node-token-ids")).to_have_count(0)
        page.page.locator("#journal-select").select_option(str(busy))
        options = page.page.locator("#namespace-filter option")
        expect(options).to_have_count(3)
        assert all(text == "all" or text.startswith("ns-") for text in options.all_inner_texts())
        everything = page.text("#tree-share")
        page.page.locator("#namespace-filter").select_option(index=1)
        expect(page.page.locator("#tree-share")).not_to_have_text(everything)
        expect(page.page).to_have_url(re.compile("namespace=ns-"))
        page.page.reload()
        page.has_text("#tree-share", "showing")
        expect(page.page.locator("#tree-share")).not_to_have_text(everything)


def test_a_token_is_given_once_in_the_address_and_is_gone_from_it(
    open_page: Open, recorded: tuple[str, Recovery, int]
) -> None:
    url, story, _ = recorded
    with served(url, token=TOKEN) as address, open_page(address) as page:
        page.page.goto(f"{address}/?token={TOKEN}#journal={story.journal}&node={story.node}")
        page.has_text("#node-full-pages", story.full_pages)
        page.has_text("#events-state", "following")
        assert TOKEN not in page.page.url
        page.press("Escape", "8")
        page.page.locator("#audit-start").click()
        page.has_text("#verdict-word", "pass")
