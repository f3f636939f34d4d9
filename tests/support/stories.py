"""Healthy journals, told once and used by many tests. Comments give the seq of each event."""

from kvledger.core.events import Cause, Pool, RecoveryMode, RollbackCause
from tests.support.hand_written import (
    Journal,
    Story,
    acquired,
    allocated,
    closed,
    created,
    deleted,
    evicted,
    freed,
    inserted,
    locked,
    matched,
    opened,
    pages,
    recovered,
    request_opened,
    reset,
    rolled_back,
    row_changed,
    split,
    swa_unlocked,
    tombstoned,
    touched,
    unlocked,
)


def one_request() -> Journal:
    """A request opens, extends, commits two of its five pages, slides and finishes."""
    return (
        Story()
        .then(
            "open_request",
            matched(0, request="r1"),  # 2
            locked(1, None, 0, request="r1"),  # 3
            request_opened("r1", 1, pages()),  # 4
            request="r1",
        )
        .then("extend", allocated(pages(1, 2, 3, 4, 5), owner="r1", row_start=0))  # 5
        .then(
            "commit",
            created(1, pages(1), pages(1)),  # 6
            created(2, pages(2), pages(2), parent=1, start=4, stamp=2),  # 7
            inserted(8, full=[(0, 8)], swa=[(0, 8)], request="r1"),  # 8
            matched(8, 2, request="r1"),  # 9
            touched(2, first_stamp=3),  # 10
            locked(2, 2, 8, request="r1"),  # 11
            unlocked(1, None, request="r1"),  # 12
            row_changed("r1", 2, pages(1, 2), row_pages=5),  # 13
            request="r1",
        )
        .then(
            "slide",
            swa_unlocked(2, 2, request="r1"),  # 14
            freed(pages(3), pages(3), owner="r1", pool=Pool.SWA, cause=Cause.WINDOW),  # 15
        )
        .then(
            "finish",
            unlocked(2, 2, request="r1", swa_held=False),  # 16
            freed(pages(3, 4, 5), pages(0, 4, 5), owner="r1", cause=Cause.FINISH),  # 17
            closed("r1"),  # 18
            request="r1",
        )
        .journal()
    )


def recovery_under_lock() -> Journal:
    """A reader keeps the Full lock on a tombstone while an insert brings its SWA back."""
    return (
        Story()
        .then("alloc", allocated(pages(1)))  # 2
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))  # 3 4
        .then(
            "open_request",
            *acquired(1, 1, 4, request="reader"),  # 5 6 7
            request_opened("reader", 1, pages(1)),  # 8
        )
        .then("slide", swa_unlocked(1, 1, request="reader"))  # 9
        .then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))  # 10 11
        .then("alloc", allocated(pages(2), pages(1)))  # 12
        .then(
            "insert",
            recovered(
                1,
                mode=RecoveryMode.KEEP_LOCKED_FULL,
                node_full=pages(1),
                incoming=pages(2),
                swa=pages(1),
            ),  # 13
            inserted(4, swa=[(0, 4)], duplicates=4),  # 14
        )
        .then("finish", unlocked(1, 1, request="reader", swa_held=False), closed("reader"))  # 15 16
        .journal()
    )


def recovery_without_lock() -> Journal:
    """Nobody holds the tombstone: the insert replaces its Full pages."""
    return (
        Story()
        .then("alloc", allocated(pages(1)))  # 2
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))  # 3 4
        .then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))  # 5 6
        .then("alloc", allocated(pages(2), pages(1)))  # 7
        .then(
            "insert",
            recovered(
                1, mode=RecoveryMode.ADOPT_INCOMING, node_full=pages(1), incoming=pages(2), swa=pages(1)
            ),  # 8
            inserted(4, full=[(0, 4)], swa=[(0, 4)]),  # 9
        )
        .journal()
    )


def eviction_and_reuse() -> Journal:
    """A leaf and its tombstone parent go, and their pages are handed out again in the same transaction."""
    return (
        Story()
        .then("alloc", allocated(pages(1, 2)))  # 2
        .then(
            "insert",
            created(1, pages(1), pages(1)),  # 3
            created(2, pages(2), pages(2), parent=1, start=4, stamp=2),  # 4
            inserted(8, full=[(0, 8)], swa=[(0, 8)]),  # 5
        )
        .then("evict", tombstoned(1, pages(1), pages(1)), evicted(0, 4))  # 6 7
        .then(
            "mine",
            deleted(2, pages(2), pages(2), parent=1, parent_stamp=2),  # 8
            deleted(1, pages(1), None, cause=Cause.CASCADE),  # 9
            evicted(8, 4),  # 10
            allocated(pages(2, 1), pages(2, 1)),  # 11
        )
        .then("free", freed(pages(1), pages(1)))  # 12
        .journal()
    )


def refused_commit() -> Journal:
    """A commit offers two pages, the match accepts one, the other is rolled back as an anomaly."""
    return (
        Story()
        .then(
            "open_request",
            *acquired(1, None, 0, request="r1"),  # 2 3
            request_opened("r1", 1, pages()),  # 4
        )
        .then("extend", allocated(pages(1, 2), owner="r1", row_start=0))  # 5
        .then(
            "commit",
            created(1, pages(1), pages(1)),  # 6
            created(2, pages(2), pages(2), parent=1, start=4),  # 7, undone
            rolled_back(1, 2, cause=RollbackCause.REFUSED, request="r1"),  # 8
            inserted(4, full=[(0, 4)], swa=[(0, 4)], refused=4, request="r1"),  # 9
            *acquired(2, 1, 4, request="r1"),  # 10 11 12
            unlocked(1, None, request="r1"),  # 13
            row_changed("r1", 2, pages(1), row_pages=2),  # 14
            undone=[1],
        )
        .journal()
    )


def nested_rollbacks() -> Journal:
    """A caller's transaction undoes an inner stretch, then everything around it, and goes on."""
    return (
        Story()
        .then(
            "mine",
            allocated(pages(1)),  # 2
            allocated(pages(2)),  # 3, undone twice over
            created(7, pages(2), pages(2)),  # 4
            locked(5, 7, 4),  # 5
            rolled_back(2, 4),  # 6, undone itself
            rolled_back(1, 5),  # 7
            allocated(pages(2)),  # 8
            undone=[1, 2, 3, 4],
        )
        .then(
            "lost",
            allocated(pages(3)),  # 9
            rolled_back(0, 1, cause=RollbackCause.ERROR),  # 10
            undone=[0],
            rolled_back=True,
        )
        .then("free", freed(pages(1, 2), pages(1, 2)))  # 11
        .journal()
    )


def two_namespaces() -> Journal:
    """The same tokens under two names; a node is split while a lock is on it."""
    return (
        Story()
        .then("alloc", allocated(pages(1, 2, 3)))  # 2
        .then(
            "insert",
            created(1, pages(1, 2), pages(1, 2), namespace="x"),  # 3
            inserted(8, full=[(0, 8)], swa=[(0, 8)], namespace="x"),  # 4
        )
        .then(
            "insert",
            created(2, pages(3), pages(3), namespace="y"),  # 5
            inserted(4, full=[(0, 4)], swa=[(0, 4)], namespace="y"),  # 6
        )
        .then(
            "acquire",
            split(1, 3, 4),  # 7
            *acquired(1, 1, 8, namespace="x"),  # 8 9 10
        )
        .then(
            "open_request",
            *acquired(2, 2, 4, request="r1", namespace="y"),  # 11 12 13
            request_opened("r1", 2, pages(3), namespace="y"),  # 14
        )
        .then("release", unlocked(1, 1))  # 15
        .journal()
    )


def reset_in_the_middle() -> Journal:
    """A reset takes the tree, a raw lock and a request away; the caller's page stays held."""
    return (
        Story()
        .then("alloc", allocated(pages(1, 2)))  # 2
        .then("insert", created(1, pages(1), pages(1)), inserted(4, full=[(0, 4)], swa=[(0, 4)]))  # 3 4
        .then("acquire", *acquired(1, 1, 4))  # 5 6 7
        .then(
            "open_request",
            *acquired(2, None, 0, request="r1"),  # 8 9
            request_opened("r1", 2, pages()),  # 10
        )
        .then("extend", allocated(pages(3), owner="r1", row_start=0))  # 11
        .then(
            "reset",
            freed(pages(3), pages(3), owner="r1", cause=Cause.RESET),  # 12
            unlocked(2, None, request="r1", by_reset=True),  # 13
            closed("r1", reason=Cause.RESET),  # 14
            unlocked(1, 1, by_reset=True),  # 15
            deleted(1, pages(1), pages(1), cause=Cause.RESET),  # 16
            reset(1),  # 17
        )
        .then("free", freed(pages(2), pages(2)))  # 18
        .journal()
    )


HEALTHY = {
    story.__name__: story
    for story in (
        one_request,
        recovery_under_lock,
        recovery_without_lock,
        eviction_and_reuse,
        refused_commit,
        nested_rollbacks,
        two_namespaces,
        reset_in_the_middle,
    )
}


def path(*more: int) -> Story:
    """Node 1 of page 1 and node 2 of page 2 below it."""
    return (
        Story(opened(full=24, swa=16))
        .then("alloc", allocated(pages(1, 2, *more)))  # 2
        .then(
            "insert",
            created(1, pages(1), pages(1)),  # 3
            created(2, pages(2), pages(2), parent=1, start=4),  # 4
            inserted(8, full=[(0, 8)], swa=[(0, 8)]),  # 5
        )
    )
