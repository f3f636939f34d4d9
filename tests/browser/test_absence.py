"""Stepping past the beginning and the end of what is selected: the page says that it is not there, calmly."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from playwright.sync_api import expect

from kvledger.journal import Journal
from kvledger.journal.replay import Fold
from kvledger.journal.state import State
from tests.browser.conftest import Open
from tests.browser.recorded import Recovery
from tests.browser.watched import WatchedPage


@dataclass(frozen=True, slots=True)
class Life:
    """Ends of transactions around the life of something: it is there from `born` to `last`, and only then."""

    name: str
    before: int
    born: int
    last: int
    ended: int


def life_of(url: str, journal: int, things: Callable[[State], Iterable[object]]) -> Life:
    """The first of `things` that comes to an end after it was there for some transactions."""
    ends: list[int] = []
    since: dict[str, int] = {}
    fold = Fold()
    with Journal.open(url, create=False) as store:
        for transaction in store.reader(journal).transactions():
            fold.apply(transaction)
            ends.append(int(fold.seq))
            here = {str(thing) for thing in things(fold.state)}
            for name, first in since.items():
                if name not in here and first > 0 and len(ends) - first > 3:
                    return Life(name, ends[first - 1], ends[first], ends[-2], ends[-1])
            since = {name: since.get(name, len(ends) - 1) for name in here}
    raise AssertionError("nothing comes to an end in this journal")


def walk_past_both_ends(page: WatchedPage, life: Life, shows: Callable[[WatchedPage, bool], None]) -> None:
    """Step over the birth and the end, there and back; `shows` waits for what has to be seen."""
    for first, second in ((life.before, life.born), (life.ended, life.last)):
        page.press("s")
        page.page.keyboard.type(str(first))
        page.press("Enter")
        for seq in (first, second, first):
            # What is typed stands in the field before it is shown; the side tells what it is about.
            page.has_text("#side", f"at seq {seq:,}")
            shows(page, seq == second)
            towards = second if seq == first else first
            page.press("." if towards > seq else ",")
        page.has_text("#side", f"at seq {second:,}")


def at_the_side(page: WatchedPage, there: bool) -> None:
    if there:
        page.has_text("#side", "History")
        expect(page.page.locator("#side-missing")).to_have_count(0)
        expect(page.page.locator("#node-state, #request-row")).to_have_count(1)
    else:
        page.has_text("#side-missing", re.compile(r"not (in the tree|open) at this seq"))
        page.has_text("#side", "History")


def in_the_tree(page: WatchedPage, there: bool) -> None:
    if there:
        expect(page.page.locator("#tree-empty")).to_be_hidden()
    else:
        page.has_text("#tree-empty", "is not in the tree at this seq")
    at_the_side(page, there)


@pytest.mark.parametrize(
    ("things", "picks", "shows"),
    [
        (lambda state: state.nodes, ("node",), at_the_side),
        (lambda state: state.requests, ("request",), at_the_side),
        (lambda state: state.nodes, ("node", "root"), in_the_tree),
    ],
    ids=["a node", "a request", "the top of the tree"],
)
def test_what_is_not_there_at_a_seq_is_said_to_be_so_and_nothing_fails(
    open_page: Open,
    service: str,
    recorded: tuple[str, Recovery, int],
    things: Callable[[State], Iterable[object]],
    picks: tuple[str, ...],
    shows: Callable[[WatchedPage, bool], None],
) -> None:
    url, _, busy = recorded
    life = life_of(url, busy, things)
    page = open_page(service).open(journal=busy, seq=life.born, **dict.fromkeys(picks, life.name))
    shows(page, True)
    walk_past_both_ends(page, life, shows)
    page.check()


def test_a_node_that_never_was_has_no_history(open_page: Open, service: str, busy: int) -> None:
    page = open_page(service).open(journal=busy, node=2**40)
    page.has_text("#side-missing", f"Node {2**40} is not in the tree")
    page.has_text("#side", "No event about it is in this store.")
    page.check()
