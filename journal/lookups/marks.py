"""Marks on a bar of seqs: how much happened in each stretch of it that somebody may want to look at."""

from bisect import bisect_right
from dataclasses import dataclass

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import CacheReset, EventsDropped, RecoveryMode, RolledBack, SwaRecovered
from kvledger.core.ids import Seq
from kvledger.journal.lookups.history import anomalies
from kvledger.journal.lookups.questions import LAST_SEQ, EventFilter, LookUpSource

MAX_BUCKETS = 4_096
"""More than any screen has columns."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How many events of each sort stand in one bucket.

    `rollbacks` of any cause, healthy ones too; `anomalies` as in history.py, refused and failed rollbacks
    among them;
    `recoveries_locked` are recoveries of a tombstone under a lock that were kept; `gaps` counts
    `events_dropped`, which stand right behind the seqs that were not stored.
    """

    rollbacks: int = 0
    anomalies: int = 0
    recoveries_locked: int = 0
    resets: int = 0
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class Marks:
    """`counts[i]` is of the seqs [edges[i], edges[i + 1])."""

    edges: tuple[Seq, ...]
    counts: tuple[Mark, ...]


def marks(source: LookUpSource, *, first_seq: int, last_seq: int, buckets: int) -> Marks:
    """Count marks in `buckets` stretches of [first_seq, last_seq], as equal as they can be, one seq at least.

    Raises InvalidArgument for a range that is empty or no range of seqs, and for more than `MAX_BUCKETS`.
    Cost: O(rollbacks, recoveries, resets, ignored calls and gaps in the range), by index; in files a walk
    over it.
    """
    if not 1 <= first_seq <= last_seq <= LAST_SEQ:
        raise InvalidArgument(f"{first_seq} to {last_seq} is no range of seqs")
    if not 1 <= buckets <= MAX_BUCKETS:
        raise InvalidArgument(f"a bar has 1 to {MAX_BUCKETS} buckets, not {buckets}")
    span = last_seq + 1 - first_seq
    buckets = min(buckets, span)
    edges = tuple(Seq(first_seq + span * i // buckets) for i in range(buckets + 1))
    found = {name: [0] * buckets for name in Mark.__slots__}
    wanted = EventFilter(
        kinds=(RolledBack.kind, SwaRecovered.kind, CacheReset.kind, EventsDropped.kind),
        first_seq=Seq(first_seq),
        last_seq=Seq(last_seq),
    )
    for one in source.find(wanted):
        event, at = one.event, bisect_right(edges, one.seq) - 1
        if isinstance(event, RolledBack):
            found["rollbacks"][at] += 1
        elif isinstance(event, EventsDropped):
            found["gaps"][at] += 1
        elif one.undone:
            continue
        elif isinstance(event, CacheReset):
            found["resets"][at] += 1
        elif isinstance(event, SwaRecovered) and event.mode is RecoveryMode.KEEP_LOCKED_FULL:
            found["recoveries_locked"][at] += 1
    for one, _ in anomalies(source, first_seq=first_seq, last_seq=last_seq):
        found["anomalies"][bisect_right(edges, one.seq) - 1] += 1
    return Marks(edges, tuple(Mark(*counts) for counts in zip(*found.values(), strict=True)))
