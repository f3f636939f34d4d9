"""What an insert passes on its way: tombstones that it could heal, and nodes that it has to touch."""

import pytest

from kvledger.core.events import Cause, Event, Pool, RecoveryMode
from kvledger.journal.audit import audit
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    broken,
    created,
    evicted,
    first_of,
    freed,
    inserted,
    opened,
    pages,
    recovered,
    request_opened,
    row_changed,
    swa_unlocked,
    tombstoned,
    touched,
    unlocked,
)

DUPLICATE = freed(pages(2), pages(2), cause=Cause.DUPLICATE)


def over_a_tombstone(*events: Event, policy: str = "remap", held: bool = True) -> Journal:
    """Node 1 loses its SWA, with a Full lock on it or none; an insert of the same tokens then passes it."""
    story = Story(opened(recovery=policy)).then("alloc", allocated(pages(1, 2)))
    story.then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
    story.then("acquire", *acquired(1, 1, 4)).then("release_swa", swa_unlocked(1, 1))
    if not held:
        story.then("release", unlocked(1, 1, swa_held=False))
    story.then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))
    return story.then("insert", *events).journal()


@pytest.mark.parametrize(
    ("policy", "held", "spared"),
    [("remap", True, False), ("remap", False, False), ("skip", False, False), ("skip", True, True)],
)
def test_swa_is_a_duplicate_only_where_no_tombstone_lacks_it(policy: str, held: bool, spared: bool) -> None:
    passed = (touched(1), DUPLICATE, inserted(4, duplicates=4))
    journal = over_a_tombstone(*passed, policy=policy, held=held)
    verdict = audit(journal)
    assert broken(verdict) == (set() if spared else {"insert-match"})
    if not spared:
        finding = first_of(verdict, "insert-match")
        assert (finding.seq, finding.node, finding.pages) == (journal[-1].last_seq, 1, (1,))


def test_a_tombstone_stays_where_the_row_brings_no_swa_for_it() -> None:
    gone = freed(pages(2), pages(2), pool=Pool.SWA, cause=Cause.WINDOW)
    duplicate = freed(pages(2), pages(0), pool=Pool.FULL, cause=Cause.DUPLICATE)
    verdict = audit(over_a_tombstone(touched(1), gone, duplicate, inserted(4, duplicates=4)))
    assert verdict.findings == ()


def over_a_live_node(*events: Event) -> Journal:
    """Node 1 is live; an insert of the same tokens, and perhaps of more, then passes it."""
    story = Story().then("alloc", allocated(pages(1, 2, 3)))
    story.then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
    return story.then("insert", *events).journal()


def test_an_insert_that_no_lock_follows_touches_its_last_node() -> None:
    assert audit(over_a_live_node(touched(1), DUPLICATE, inserted(4, duplicates=4))).findings == ()
    journal = over_a_live_node(DUPLICATE, inserted(4, duplicates=4))
    finding = first_of(audit(journal), "recency")
    assert (finding.seq, finding.node) == (journal[-1].last_seq, None)


@pytest.mark.parametrize(("window", "needed"), [(4, False), (5, True)])
def test_an_insert_touches_what_ends_in_its_last_window(window: int, needed: bool) -> None:
    """The new page ends at 8: node 1, which ends at 4, lies in two pages of window, and not in one."""

    def grown(*touches: Event) -> Journal:
        story = Story(opened(window=window)).then("alloc", allocated(pages(1, 2, 3)))
        story.then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))
        new = created(2, pages(3), pages(3), parent=1, start=4)
        told = inserted(8, full=[(4, 8)], swa=[(4, 8)], duplicates=4)
        return story.then("insert", *touches, DUPLICATE, new, told).journal()

    assert audit(grown(touched(1))).findings == ()
    verdict = audit(grown())
    assert broken(verdict) == ({"recency"} if needed else set())
    if needed:
        assert first_of(verdict, "recency").node == 1


@pytest.mark.parametrize("used", [False, True], ids=["left as it was", "touched"])
def test_an_insert_that_heals_something_touches_what_it_passes_below_that_too(used: bool) -> None:
    """Node 1 comes back to life; node 2, the last one on the way, is live."""
    story = Story().then("alloc", allocated(pages(1, 2), pages(1, 2)))
    story.then(
        "insert",
        created(1, pages(1), pages(1)),
        created(2, pages(2), pages(2), parent=1, start=4),
        inserted(8, full=[(0, 8)], swa=[(0, 8)]),
    )
    story.then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))
    story.then("alloc", allocated(pages(3, 4), pages(3, 4)))
    journal = story.then(
        "insert",
        recovered(1, mode=RecoveryMode.ADOPT_INCOMING, node_full=pages(1), incoming=pages(3), swa=pages(3)),
        *([touched(2)] if used else []),
        freed(pages(4), pages(4), cause=Cause.DUPLICATE),
        inserted(8, full=[(0, 4)], swa=[(0, 4)], duplicates=4),
    ).journal()
    verdict = audit(journal)
    assert broken(verdict) == (set() if used else {"recency"})
    if not used:
        assert first_of(verdict, "recency").seq == journal[-1].last_seq


@pytest.mark.parametrize(
    ("policy", "dead", "held", "right"),
    [
        ("remap", False, False, True),
        ("remap", True, False, False),
        ("remap", True, True, False),
        ("skip", True, False, False),
        ("skip", True, True, True),
    ],
)
def test_a_commit_leaves_touching_to_its_lock_and_heals_what_it_passes(
    policy: str, dead: bool, held: bool, right: bool
) -> None:
    """Its lock tells which nodes it passed: a window past the tombstone there is enough that is live.

    That lock is no reason to spare one; the lock of somebody else is, under "skip".
    """
    story = Story(opened(recovery=policy)).then("alloc", allocated(pages(1, 2), pages(1, 2)))
    story.then(
        "insert",
        created(1, pages(1), pages(1)),
        created(2, pages(2), pages(2), parent=1, start=4),
        inserted(8, full=[(0, 8)], swa=[(0, 8)]),
    )
    story.then("open_request", *acquired(1, None, 0, request="r"), request_opened("r", 1, pages()))
    story.then("extend", allocated(pages(3, 4), pages(3, 4), owner="r", row_start=0))
    if held:
        story.then("acquire", *acquired(2, 1, 4)).then("release_swa", swa_unlocked(2, 1))
    if dead:
        story.then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))
    journal = story.then(
        "commit",
        freed(pages(3), pages(3), owner="r", cause=Cause.DUPLICATE),
        freed(pages(4), pages(4), owner="r", cause=Cause.DUPLICATE),
        inserted(8, duplicates=8, request="r"),
        *acquired(3, 2, 8, request="r"),
        unlocked(1, None, request="r"),
        row_changed("r", 3, pages(1, 2)),
        request="r",
    ).journal()
    verdict = audit(journal)
    assert broken(verdict) == (set() if right else {"insert-match"})
    if not right:
        finding = first_of(verdict, "insert-match")
        assert (finding.seq, finding.node, finding.request) == (journal[-1].first_seq + 2, 1, "r")
