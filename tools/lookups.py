"""Documents about stored events, and about the hands that a page went through: what look-ups print."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import BaseModel, ConfigDict

from kvledger.core.errors import InvalidArgument
from kvledger.journal import FoundEvent, JournalReader
from kvledger.journal.difference import Difference
from kvledger.journal.schema import view_event
from kvledger.journal.tenures import Tenure
from kvledger.journal.tokens import TokenPolicy

RANGES_SHOWN = 6
"""Ranges of pages that fit a line; --json has all of them."""


class EventDocument(BaseModel):
    """One stored event with its transaction; `time` is UTC."""

    model_config = ConfigDict(frozen=True)

    seq: int
    undone: bool
    transaction: int
    op: str
    time: str
    event: dict[str, Any]

    def line(self) -> str:
        """The event as one line of text."""
        facts = [_fact(name, value) for name, value in self.event.items() if name not in ("kind", "version")]
        told = " ".join(fact for fact in facts if fact)
        mark = " (undone)" if self.undone else ""
        return (
            f"{self.seq:>9}  {self.time}  {self.transaction:>7} {self.op}  {self.event['kind']}{mark}  {told}"
        )


class EventPage(BaseModel):
    """Events in order of seq; `next` is the seq to go on from, None at the end."""

    model_config = ConfigDict(frozen=True)

    journal: int
    events: list[EventDocument]
    next: int | None


class AnomalyDocument(BaseModel):
    """An event that somebody should look at, and why."""

    model_config = ConfigDict(frozen=True)

    sentence: str
    event: EventDocument


class AnomalyPage(BaseModel):
    """Anomalies in order of seq; `next` as in an `EventPage`."""

    model_config = ConfigDict(frozen=True)

    journal: int
    anomalies: list[AnomalyDocument]
    next: int | None


class TenureDocument(BaseModel):
    """A page in one pair of hands (journal.history.Tenure); times are UTC."""

    model_config = ConfigDict(frozen=True)

    since: int
    since_time: str | None
    until: int | None
    until_time: str | None
    holder: str
    request: str | None
    node: int | None
    position: int | None
    beside: int | None
    began: str
    ended: str | None
    cause: str | None

    def line(self, *, last_seq: int | None = None) -> str:
        """The tenure as one line of text, as far as it was looked at: up to `last_seq`, or to the end."""
        who = {"request": f"request {self.request}", "node": f"node {self.node}"}.get(
            self.holder, "the caller"
        )
        open_end = "now" if last_seq is None else f">{last_seq}"
        until = open_end if self.until is None else f"{self.until}"
        where = "" if self.position is None else f", token {self.position}"
        beside = "" if self.beside is None else f", beside page {self.beside}"
        end = "" if self.ended is None else f"; ended by {self.ended}"
        why = "" if self.cause is None else f", cause {self.cause}"
        return f"{self.since:>9} to {until:<9}  {who}{where}{beside}; began with {self.began}{end}{why}"


class SlotHistory(BaseModel):
    """Who held the page of a slot, in order."""

    model_config = ConfigDict(frozen=True)

    journal: int
    pool: str
    slot: int
    page: int
    tenures: list[TenureDocument]


class DifferenceDocument(BaseModel):
    """What differs between two transaction boundaries, `before` and `after` (seqs)."""

    model_config = ConfigDict(frozen=True)

    journal: int
    before: int
    after: int
    difference: Difference

    def render(self) -> str:
        """The difference as plain text."""
        lines = [f"seq {self.before:,} to {self.after:,}"]
        parts = (
            ("node", self.difference.nodes),
            ("lease", self.difference.leases),
            ("request", self.difference.requests),
        )
        for what, part in parts:
            lines += [f"+ {what} {id}" for id in part.added]
            lines += [f"- {what} {id}" for id in part.removed]
            for id, changes in part.changed.items():
                told = ", ".join(f"{c.field} {_short(c.before)} -> {_short(c.after)}" for c in changes)
                lines.append(f"~ {what} {id}: {told}")
        lines += [f"~ {c.field}: {c.before} -> {c.after} pages" for c in self.difference.pools]
        if self.difference.is_empty:
            lines.append("nothing differs")
        return "\n".join(lines) + "\n"


def event_document(found: FoundEvent, *, policy: str, reveal: bool = False) -> EventDocument:
    """The document of one found event of a journal of this token policy."""
    view = view_event(found.event, reveal=reveal, policy=cast("TokenPolicy", policy))
    return EventDocument(
        seq=found.seq,
        undone=found.undone,
        transaction=found.transaction,
        op=found.op,
        time=utc(found.time_us),
        event=view.model_dump(mode="json", exclude_none=False),
    )


def event_page(
    reader: JournalReader, events: Iterable[FoundEvent], *, limit: int, reveal: bool = False
) -> EventPage:
    """At most `limit` of `events`, which must be one more if there are more."""
    taken: list[EventDocument] = []
    following = None
    for found in events:
        if len(taken) == limit:
            following = int(found.seq)
            break
        taken.append(event_document(found, policy=reader.info.token_policy, reveal=reveal))
    return EventPage(journal=reader.info.id, events=taken, next=following)


def anomaly_page(
    reader: JournalReader, found: Iterable[tuple[FoundEvent, str]], *, limit: int
) -> AnomalyPage:
    """At most `limit` of the anomalies `found`."""
    taken: list[AnomalyDocument] = []
    following = None
    for event, sentence in found:
        if len(taken) == limit:
            following = int(event.seq)
            break
        document = event_document(event, policy=reader.info.token_policy)
        taken.append(AnomalyDocument(sentence=sentence, event=document))
    return AnomalyPage(journal=reader.info.id, anomalies=taken, next=following)


def tenure_document(tenure: Tenure) -> TenureDocument:
    """The document of one tenure."""
    return TenureDocument(
        since=tenure.since,
        since_time=None if tenure.since_us is None else utc(tenure.since_us),
        until=tenure.until,
        until_time=None if tenure.until_us is None else utc(tenure.until_us),
        holder=tenure.holder,
        request=tenure.request,
        node=tenure.node,
        position=tenure.position,
        beside=tenure.beside,
        began=tenure.began,
        ended=tenure.ended,
        cause=tenure.cause,
    )


def utc(time_us: int) -> str:
    """A time in microseconds since 1970 as text."""
    seconds, microseconds = divmod(time_us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{microseconds:06d}Z"


def microseconds(text: str) -> int:
    """The time that a text names: ISO 8601, UTC where it names no zone. Raises InvalidArgument."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidArgument(f"{text!r} is no time like 2026-01-31T12:00:00: {error}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _fact(name: str, value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, dict):
        if "ranges" in value:
            return f"{name}={_ranges(value['ranges'])}" if value["count"] else ""
        if "hash" in value and "count" in value:
            return f"{name}={value['hash'] or value['count']}" if value["hash"] or value["count"] else ""
        if name in ("config", "counters"):
            return ""
        return f"{name}=" + "#".join(str(part) for part in value.values())
    if isinstance(value, list):
        return f"{name}={_ranges(value) if isinstance(value[0], list) else ','.join(map(str, value))}"
    return f"{name}={value}"


def _ranges(ranges: list[list[int]]) -> str:
    shown = ",".join(f"{a}" if b == a + 1 else f"{a}-{b - 1}" for a, b in ranges[:RANGES_SHOWN])
    return shown if len(ranges) <= RANGES_SHOWN else f"{shown},... ({len(ranges)} ranges)"


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} pages"
    return "none" if value is None else str(value)
