"""Journals that are hard to follow, and a timeline that follows one for the time of a test."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvledger.api.problems import Refusal
from kvledger.api.projection import Timeline
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal, JournalReader
from kvledger.journal.rows import Submission

DEADLINE_SECONDS = 60
"""How long a test waits for a thread before it fails; nothing is measured against it."""


@contextmanager
def followed(reader: JournalReader, **how: Any) -> Iterator[Timeline]:
    """A timeline that has followed the journal to the end that it has now."""
    timeline = Timeline(reader, **{"poll_seconds": 0.01} | how)
    timeline.start()
    try:
        follow_to(timeline, int(reader.head().seq))
        yield timeline
    finally:
        timeline.stop()


def follow_to(timeline: Timeline, seq: int) -> None:
    """Wait until the timeline has followed its journal to `seq` and stands still there."""
    assert timeline.wait_beyond(seq - 1, DEADLINE_SECONDS) >= seq, "the journal was not followed to its end"
    wait_until_loaded(timeline)


def wait_until_loaded(timeline: Timeline) -> None:
    """Wait until the timeline has been at the end of its journal once."""
    assert timeline.wait_loaded(DEADLINE_SECONDS), "the journal was not loaded"


def refusal_at(timeline: Timeline, seq: int | None) -> int:
    """The status of the refusal that asking for a state meets, 200 where there is one."""
    try:
        with timeline.state_at(seq):
            return 200
    except Refusal as refusal:
        return refusal.status


def record_with_gap(
    journal: Journal, records: Sequence[TransactionRecord], *, lost: slice
) -> tuple[int, int]:
    """Record all but the transactions `lost`; returns the first and the last seq that were never stored."""
    with journal.record(checkpoint_every=0, on_failure="degrade") as recorder:
        recorder.append(records[0])
        recorder.flush()
        # The writer's thread waits for work: the writer is this thread's from here on.
        writer, keeper = recorder._writer, recorder.keeper
        assert keeper is not None
        while keeper.has_work:
            keeper.work()
        for place, one in enumerate(records[1:], start=1):
            if lost.start <= place < lost.stop:
                writer.give_up([Submission(one, 0)])
            else:
                if place == lost.stop:
                    writer.store_gap(0)
                writer.store([Submission(one, 0)])
        keeper.finish()
    first = 1 + sum(len(one.events) for one in records[: lost.start])
    return first, first - 1 + sum(len(one.events) for one in records[lost])
