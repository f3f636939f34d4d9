"""The audit button and its verdict, good and bad."""

import re

from playwright.sync_api import expect

from kvledger.journal import Journal
from kvledger.journal.audit import audit
from tests.browser.conftest import Open, served
from tests.browser.recorded import RECOVERED_SEQ, Recovery, record_replaced_full


def test_an_audit_runs_and_passes(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal)
    page.page.locator("#audit-open").click()
    page.press("Enter")
    page.has_text("#verdict-word", "pass")
    page.has_text("#audit-state", "done")
    page.has_text("#audit-verdict", "locked-full")
    page.has_text("#audit-verdict", re.compile(r"\d recover(y|ies) under lock"))
    page.picture("audit")


def test_an_audit_up_to_a_seq_is_listed_with_the_others(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, tab="audit")
    page.page.locator("#audit-upto").fill(str(story.before))
    page.page.locator("#audit-start").click()
    page.has_text("#verdict-word", "pass")
    page.page.locator("#audit-upto").fill("")
    page.page.locator("#audit-start").click()
    page.has_text("#audit-earlier", f"up to seq {story.before}")
    page.page.locator("#audit-upto").fill("never")
    page.page.locator("#audit-start").click()
    page.has_text("#notices", "a whole number")


def test_findings_of_a_failed_audit_lead_to_their_seq_and_node(open_page: Open, fresh_store: str) -> None:
    with Journal.open(fresh_store) as store:
        record_replaced_full(store)
    with served(fresh_store) as address, open_page(address) as page:
        page.open(tab="audit")
        page.page.locator("#audit-start").click()
        page.has_text("#verdict-word", "fail")
        finding = page.page.locator("#findings tbody tr", has_text="locked-full").first
        expect(finding).to_contain_text("reader")
        finding.get_by_role("button", name=f"seq {RECOVERED_SEQ}").click()
        page.at(RECOVERED_SEQ + 1)
        finding.get_by_role("button", name="node 1").click()
        page.has_text("#side-title", "Node 1")
        page.picture("audit-failed")


def test_notes_on_the_evidence_are_told_with_the_verdict(
    open_page: Open, service: str, recorded: tuple[str, Recovery, int]
) -> None:
    url, story, _ = recorded
    with Journal.open(url) as store:
        verdict = audit(store.reader(story.journal))
    noted = verdict.model_copy(update={"notes": ("one thing", "and another <b>")})
    page = open_page(service).open(journal=story.journal)
    told = page.page.evaluate(
        """async (verdict) => {
          const { tellVerdict } = await import("/static/js/verdict.js");
          return tellVerdict(verdict).filter((part) => part.matches(".note")).map((part) => part.textContent);
        }""",
        noted.model_dump(mode="json"),
    )
    assert told == ["Note: one thing.", "Note: and another <b>."]
