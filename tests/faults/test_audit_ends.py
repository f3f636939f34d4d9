"""Neither which checks a transaction ends for nor the order of requests changes what is found."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kvledger.journal.audit import audit
from kvledger.journal.audit.plan import Ends
from kvledger.journal.records import StoredEvent, StoredTransaction
from kvledger.journal.replay import ReplayError
from tests.support import stories
from tests.support.edits import live_events
from tests.support.hand_written import Story, acquired, pages, request_opened

Journal = list[StoredTransaction]

STORIES: list[Callable[[], Journal]] = [
    stories.one_request,
    stories.recovery_under_lock,
    stories.recovery_without_lock,
    stories.eviction_and_reuse,
    stories.refused_commit,
    stories.nested_rollbacks,
    stories.two_namespaces,
    stories.reset_in_the_middle,
]


def broken_journals(journal: Journal) -> Iterator[Journal]:
    """The journal with each live event left out, told twice, called undone, or last of its transaction."""
    for _, place in live_events([journal]):
        transaction = journal[place.transaction]
        events = list(transaction.events)
        stored = events[place.event]
        before, after = events[: place.event], events[place.event + 1 :]

        def cut(*parts: list[StoredEvent], at: int = place.transaction) -> Journal:
            made = [replace(journal[at], events=tuple(part)) for part in parts]
            return [*journal[:at], *made, *journal[at + 1 :]]

        yield cut([*before, *after])
        yield cut([*before, stored, stored, *after])
        yield cut([*before, replace(stored, undone=True), *after])
        yield cut([*before, stored], list(after))


def outcome(journal: Journal) -> object:
    try:
        return audit(journal).model_dump()
    except ReplayError as error:
        return str(error)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_check_that_a_transaction_does_not_end_for_would_have_found_nothing(
    story: Callable[[], Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = [story(), *broken_journals(story())]
    found = [outcome(journal) for journal in journals]
    monkeypatch.setattr(Ends, "bits", lambda ends, kind: ends.all)
    assert found == [outcome(journal) for journal in journals]


def test_what_is_found_of_several_requests_is_told_in_the_order_of_their_events() -> None:
    """Names that a set would give out in any order."""
    for number in range(8):
        names = [f"request-{number}-{place}" for place in "abcd"]
        journal = Story().then(
            "open",
            *[
                event
                for lease, name in enumerate(names, 1)
                for event in acquired(lease, None, 0, request=name)
            ],
            *[request_opened(name, lease, pages()) for lease, name in enumerate(names, 1)],
            *[
                event
                for lease, name in enumerate(names, 5)
                for event in acquired(lease, None, 0, request=name)
            ],
        )
        told = [finding.request for finding in audit(journal.journal()).findings]
        assert told == names
