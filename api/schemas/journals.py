"""Journals, their transactions, where their chain stands, and how far the service has followed them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from kvledger.api.schemas.common import Answer


class Following(Answer):
    """How far the service's own fold is.

    `state` "failed": the journal does not fold from `problem` on; "idle": nobody has asked for it yet.
    """

    state: Literal["idle", "loading", "following", "ended", "failed"]
    seq: int
    snapshots: int
    problem: str | None = None


class JournalOut(Answer):
    """One journal. Seqs [first_seq, last_seq] are in the store; both None before the first event.

    `live`: its recorder runs in this process; then `accepted_seq` is the last seq it took and `queued_events`
    those on their way. `hidden`: token ids and namespaces are not shown by this service.
    """

    id: int
    name: str
    epoch: str
    created_us: int
    format_version: int
    token_policy: Literal["full", "hash", "none"]
    hidden: bool
    config: dict[str, Any] | None
    page_size: int | None
    first_seq: int | None
    last_seq: int | None
    transactions: Annotated[int, Field(description="Number of the last transaction.")]
    last_time_us: int | None
    live: bool
    accepted_seq: int | None = None
    queued_events: int | None = None
    degraded: bool = False
    dropped_events: int = 0
    following: Following


class TransactionOut(Answer):
    """One transaction; `events` of them from `first_seq` on."""

    number: int
    op: str
    request: str | None
    status: Literal["committed", "rolled_back"]
    reason: str
    time_us: int
    duration_us: int | None
    first_seq: int
    events: int


class ChainOut(Answer):
    """Where the hash chain of a journal stands, and the full states that stand beside it.

    The rows are not re-read for this: that is what an audit with `chain` does.
    """

    journal: int
    epoch: str
    number: int
    seq: int
    hash: Annotated[str, Field(description="Lower-case hex.")]
    first_number: int | None
    checkpoint_seqs: tuple[int, ...]
    checkpoints_total: int


class Mark(Answer):
    """What happened in seqs [first_seq, last_seq] that a time bar marks."""

    first_seq: int
    last_seq: int
    rollbacks: int
    anomalies: int
    recoveries_under_lock: int
    resets: int
    gaps: int


class MarksOut(Answer):
    """The time bar: only buckets in which something happened; `first_time_us` is of its first seq."""

    first_seq: int
    last_seq: int
    bucket_seqs: int
    first_time_us: int | None
    last_time_us: int | None
    marks: tuple[Mark, ...]
