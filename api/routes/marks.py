"""The time bar: how much happened in each stretch of seqs that it marks."""

from typing import Annotated

from fastapi import APIRouter, Query

from kvledger.api.problems import nothing_recorded, unknown
from kvledger.api.routes.dependencies import OF_A_JOURNAL, Opened
from kvledger.api.routes.lists import SeqParam
from kvledger.api.schemas.journals import Mark, MarksOut
from kvledger.core.ids import Seq
from kvledger.journal import EventFilter, JournalReader
from kvledger.journal.lookups.marks import marks as count_marks

router = APIRouter(prefix="/v1/journals/{journal}/marks", tags=["time"], responses=OF_A_JOURNAL)

BUCKETS = 400
BUCKETS_MAX = 1_000
"""A bar as wide as a screen has no more columns to show."""


@router.get("")
def marks(
    opened: Opened,
    first_seq: SeqParam = None,
    last_seq: SeqParam = None,
    buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX)] = BUCKETS,
) -> MarksOut:
    """Rollbacks, anomalies, recoveries under lock, resets and gaps in [first_seq, last_seq], by bucket.

    Without `first_seq` from the first event that is stored, without `last_seq` to the newest.
    """
    head = opened.reader.head().seq
    if not head:
        raise nothing_recorded()
    begin = opened.reader.beginning().seq
    first = max(begin, begin if first_seq is None else first_seq)
    last = min(head, head if last_seq is None else last_seq)
    if first > last:
        raise unknown("range", detail=f"no event stands there: the store holds seqs {begin} to {head}")
    found = count_marks(opened.reader, first_seq=first, last_seq=last, buckets=buckets)
    told = [
        Mark(
            first_seq=edge,
            last_seq=found.edges[index + 1] - 1,
            rollbacks=count.rollbacks,
            anomalies=count.anomalies,
            recoveries_under_lock=count.recoveries_locked,
            resets=count.resets,
            gaps=count.gaps,
        )
        for index, (edge, count) in enumerate(zip(found.edges, found.counts, strict=False))
    ]
    return MarksOut(
        first_seq=first,
        last_seq=last,
        bucket_seqs=max(b - a for a, b in zip(found.edges, found.edges[1:], strict=False)),
        first_time_us=_time_at(opened.reader, first),
        last_time_us=_time_at(opened.reader, last),
        marks=tuple(mark for mark in told if _happened(mark)),
    )


def _happened(mark: Mark) -> int:
    return mark.rollbacks + mark.anomalies + mark.recoveries_under_lock + mark.resets + mark.gaps


def _time_at(reader: JournalReader, seq: int) -> int | None:
    """When the event at `seq` was recorded; None in a gap."""
    found = next(reader.find(EventFilter(first_seq=Seq(seq), last_seq=Seq(seq)), limit=1), None)
    return None if found is None else found.time_us
