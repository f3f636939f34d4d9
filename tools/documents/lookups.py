"""Documents about stored events, transactions and differences: what look-ups print, a page at a time."""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import RollbackCause, RolledBack
from kvledger.journal import FoundEvent, FoundTransaction, JournalInfo, LookUpSource
from kvledger.journal.difference import Difference
from kvledger.journal.lookups.beginning import Unseen
from kvledger.journal.lookups.history import undone_seqs
from kvledger.journal.schema import view_event
from kvledger.journal.tokens import TokenPolicy
from kvledger.tools.documents.namespaces import Namespaces
from kvledger.tools.documents.private_text import told_op, told_reason

T = TypeVar("T")

RANGES_SHOWN = 6
"""Ranges of pages that fit a line; --json has all of them."""


class EventDocument(BaseModel):
    """One stored event with its transaction; `time` is UTC.

    `undid` are the first and last seq that a `rolled_back` undid, whose own range counts in its transaction.
    """

    model_config = ConfigDict(frozen=True)

    seq: int
    undone: bool
    transaction: int
    op: str
    time: str
    event: dict[str, Any]
    undid: tuple[int, int] | None = None

    def line(self) -> str:
        """The event as one line of text."""
        shown = dict(self.event)
        if self.undid is not None:
            # Ordinals of a transaction say nothing beside seqs.
            del shown["first"], shown["end"]
            shown = {"undid": [[self.undid[0], self.undid[1] + 1]], **shown}
        facts = [_fact(name, value) for name, value in shown.items() if name not in ("kind", "version")]
        told = " ".join(fact for fact in facts if fact)
        mark = " (undone)" if self.undone else ""
        return (
            f"{self.seq:>9}  {self.time}  {self.transaction:>7} {self.op}  {self.event['kind']}{mark}  {told}"
        )


class UnseenDocument(BaseModel):
    """The seqs that an answer would have to see and that are not stored here; both included."""

    model_config = ConfigDict(frozen=True)

    first_seq: int
    last_seq: int
    sentence: str


class Page(BaseModel):
    """What all answers in pages share.

    `next` is the place of the last one, after (or, newest first, before) which the next page begins: a seq,
    or the number of a transaction. None at the end. `unseen` is what was pruned of the answer.
    """

    model_config = ConfigDict(frozen=True)

    journal: int
    next: int | None
    unseen: UnseenDocument | None


class EventPage(Page):
    """Events in the order that was asked for."""

    events: list[EventDocument]


class AnomalyDocument(BaseModel):
    """An event that somebody should look at, and why."""

    model_config = ConfigDict(frozen=True)

    sentence: str
    event: EventDocument


class AnomalyPage(Page):
    """Anomalies in the order that was asked for."""

    anomalies: list[AnomalyDocument]


class TransactionDocument(BaseModel):
    """One transaction's row; `time` is UTC, `duration_us` None where it was not recorded."""

    model_config = ConfigDict(frozen=True)

    number: int
    op: str
    request: str | None
    status: Literal["committed", "rolled_back"]
    reason: str
    time: str
    duration_us: int | None
    first_seq: int
    events: int

    def line(self) -> str:
        """The transaction as one line of text."""
        whose = "" if self.request is None else f" of {self.request}"
        took = "" if self.duration_us is None else f" in {self.duration_us:,} us"
        seqs = "no events"
        if self.events:
            seqs = f"{self.first_seq} to {self.first_seq + self.events - 1}"
        ended = f"  rolled back: {self.reason}" if self.status == "rolled_back" else ""
        return f"{self.number:>9}  {self.time}  {self.op}{whose}{took}  {seqs}{ended}"


class TransactionPage(Page):
    """Transactions in the order that was asked for."""

    transactions: list[TransactionDocument]


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


def event_document(found: FoundEvent, *, journal: JournalInfo, reveal: bool = False) -> EventDocument:
    """The document of one found event of a journal; namespaces are told as labels unless revealed."""
    policy = cast("TokenPolicy", journal.token_policy)
    event = view_event(found.event, reveal=reveal, policy=policy).model_dump(mode="json")
    namespace = getattr(found.event, "namespace", None)
    if namespace is not None:
        event["namespace"] = Namespaces(journal, reveal=reveal).told(namespace)
    undid = None
    if isinstance(found.event, RolledBack):
        undid = undone_seqs(found.seq, found.event)
        event["reason"] = told_reason(found.event.reason, found.event.cause, reveal=reveal)
    return EventDocument(
        seq=found.seq,
        undone=found.undone,
        transaction=found.transaction,
        op=told_op(found.op, reveal=reveal),
        time=utc(found.time_us),
        event=event,
        undid=undid,
    )


def event_page(
    source: LookUpSource,
    events: Iterable[FoundEvent],
    *,
    limit: int,
    unseen: Unseen | None = None,
    newest_first: bool = False,
    reveal: bool = False,
) -> EventPage:
    """At most `limit` of `events`, which must be one more if there are more; newest first, what is `unseen`
    stands behind the last page.
    """
    taken, following = cut_at(events, limit)
    return EventPage(
        journal=source.info.id,
        events=[event_document(one, journal=source.info, reveal=reveal) for one in taken],
        next=int(taken[-1].seq) if following else None,
        unseen=None if newest_first and following else unseen_document(unseen),
    )


def anomaly_page(
    source: LookUpSource,
    found: Iterable[tuple[FoundEvent, str]],
    *,
    limit: int,
    unseen: Unseen | None = None,
    newest_first: bool = False,
    reveal: bool = False,
) -> AnomalyPage:
    """At most `limit` of the anomalies `found`, as an `event_page`."""
    taken, following = cut_at(found, limit)
    return AnomalyPage(
        journal=source.info.id,
        anomalies=[
            AnomalyDocument(
                sentence=_told_sentence(why, one, reveal=reveal),
                event=event_document(one, journal=source.info, reveal=reveal),
            )
            for one, why in taken
        ],
        next=int(taken[-1][0].seq) if following else None,
        unseen=None if newest_first and following else unseen_document(unseen),
    )


def transaction_page(
    source: LookUpSource,
    found: Iterable[FoundTransaction],
    *,
    limit: int,
    unseen: Unseen | None = None,
    newest_first: bool = False,
    reveal: bool = False,
) -> TransactionPage:
    """At most `limit` of the transactions `found`, as an `event_page`."""
    taken, following = cut_at(found, limit)
    return TransactionPage(
        journal=source.info.id,
        transactions=[transaction_document(one, reveal=reveal) for one in taken],
        next=int(taken[-1].number) if following else None,
        unseen=None if newest_first and following else unseen_document(unseen),
    )


def cut_at(found: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """The first `limit` of them, and whether there are more."""
    taken = list(islice(found, limit + 1))
    return taken[:limit], len(taken) > limit


def unseen_document(unseen: Unseen | None) -> UnseenDocument | None:
    """The document of what an answer could not see."""
    if unseen is None:
        return None
    return UnseenDocument(first_seq=unseen.first_seq, last_seq=unseen.last_seq, sentence=unseen.sentence)


def transaction_document(found: FoundTransaction, *, reveal: bool = False) -> TransactionDocument:
    """The document of one transaction's row."""
    cause = RollbackCause.ERROR if found.rolled_back else RollbackCause.CALLER
    return TransactionDocument(
        number=found.number,
        op=told_op(found.op, reveal=reveal),
        request=found.request_id,
        status="rolled_back" if found.rolled_back else "committed",
        reason=told_reason(found.reason, cause, reveal=reveal),
        time=utc(found.time_us),
        duration_us=found.duration_us,
        first_seq=found.first_seq,
        events=found.event_count,
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


def _told_sentence(sentence: str, found: FoundEvent, *, reveal: bool) -> str:
    """Why an event is an anomaly, which may end in the reason of a rollback."""
    event = found.event
    if not isinstance(event, RolledBack) or not event.reason:
        return sentence
    return sentence.removesuffix(event.reason) + told_reason(event.reason, event.cause, reveal=reveal)


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
