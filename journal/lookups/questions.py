"""What can be asked of a journal, and what is found: the contract of every look-up.

A database answers by its indexes (events.py, transactions.py), exported files by a walk (export/lookup.py);
the same question has the same answer. Answers come in order of seq, oldest or newest first, and can be cut
anywhere: the seq of the last event seen, or the number of the last transaction, is the cursor from which to
go on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import EVENTS, Event
from kvledger.core.ids import NodeId, RequestId, Seq, TxnId
from kvledger.journal.arguments import LARGEST, check_flag, check_integer, check_number, check_text
from kvledger.journal.chain import ChainHead
from kvledger.journal.info import JournalInfo
from kvledger.journal.records import JournalSource

LAST_SEQ = LARGEST
"""No seq, number or time of a store is greater."""

MAX_NODES = 256
"""Nodes of one question: each is a stream of its own, and as many are as good as the whole journal."""

DEFAULT_COUNT = 10_000
"""How far a count is exact, unless told: more than a person tells apart, and read in milliseconds."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are asked for; every condition that is given must hold.

    `kinds` and `nodes`: any of them, all for none. `request_id` finds events that name the request and all
    events of its own transactions. `undone`: True for undone ones alone, False for those that were kept.
    Times are those of the transaction, microseconds since 1970, as the half-open range [since_us,
    until_us). `first_seq` and `last_seq` are both included.
    """

    kinds: Sequence[str] = ()
    nodes: Sequence[NodeId] = ()
    request_id: RequestId | None = None
    transaction: TxnId | None = None
    undone: bool | None = None
    since_us: int | None = None
    until_us: int | None = None
    first_seq: Seq | None = None
    last_seq: Seq | None = None


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions are asked for; conditions as in `EventFilter`.

    `first_seq` and `last_seq` find transactions that have an event in that range; one without events stands
    at its `first_seq`.
    """

    ops: Sequence[str] = ()
    request_id: RequestId | None = None
    rolled_back: bool | None = None
    since_us: int | None = None
    until_us: int | None = None
    first_seq: Seq | None = None
    last_seq: Seq | None = None


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """One event with what its transaction's row says of it; `time_us` is microseconds since 1970."""

    seq: Seq
    undone: bool
    event: Event
    transaction: TxnId
    op: str
    time_us: int


@dataclass(frozen=True, slots=True)
class FoundTransaction:
    """One transaction's row, without its events.

    `time_us` is when it was recorded, microseconds since 1970; `duration_us` how long the operation took on
    the scheduler's thread, None where that was not recorded. `first_seq` is the seq of its first event, or
    the seq that the next event got if it has none.
    """

    number: TxnId
    op: str
    request_id: RequestId | None
    rolled_back: bool
    reason: str
    time_us: int
    duration_us: int | None
    first_seq: Seq
    event_count: int

    @property
    def last_seq(self) -> Seq:
        """Seq of its last event; one below `first_seq` when it has none."""
        return Seq(self.first_seq + self.event_count - 1)


@dataclass(frozen=True, slots=True)
class Count:
    """How many match: exactly `count`, or more than that where it is not `exact`."""

    count: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.count:,}" if self.exact else f"more than {self.count:,}"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where what is stored of a journal begins: seq 1 and transaction 1, unless older ones went.

    `in_files`: what was asked is exported files, not a database. Where nothing is left, the seq and number
    that come next.
    """

    seq: Seq
    transaction: TxnId
    in_files: bool = False


class LookUpSource(JournalSource, Protocol):
    """One journal that can be looked into. Safe while it is written."""

    info: JournalInfo

    @property
    def indexed(self) -> bool:
        """Whether a look-up costs what it finds, or a walk over everything in its range."""

    def head(self) -> ChainHead:
        """The last transaction."""

    def beginning(self) -> Beginning:
        """Where what is stored begins. Cost: one look-up."""

    def find(
        self,
        wanted: EventFilter | None = None,
        *,
        limit: int | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundEvent]:
        """The events that match, undone ones included, at most `limit`, with after_seq < seq < before_seq.

        Raises InvalidArgument for an unknown kind, too many nodes or a limit below 1; JournalFormatError at
        an event that cannot be decoded.
        """

    def count(self, wanted: EventFilter | None = None, *, upto: int = DEFAULT_COUNT) -> Count:
        """How many events match, exactly up to `upto`. Nothing is decoded."""

    def find_transactions(
        self,
        wanted: TransactionFilter | None = None,
        *,
        limit: int | None = None,
        after: int | None = None,
        before: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[FoundTransaction]:
        """The transactions that match, at most `limit`, with after < number < before. Raises
        InvalidArgument for a limit below 1.
        """


def check_question(
    wanted: EventFilter | TransactionFilter, limit: int | None, *, newest_first: bool = False
) -> None:
    """Raise InvalidArgument for a question that no journal can answer."""
    if limit is not None:
        check_number(limit, "a limit", least=1)
        _check_plain(limit)
    check_flag(newest_first, "newest_first")
    numbers: list[Any] = [wanted.since_us, wanted.until_us]
    if isinstance(wanted, EventFilter):
        kinds, nodes = _each(wanted.kinds, "kinds"), _each(wanted.nodes, "nodes")
        unknown = [kind for kind in kinds if not isinstance(kind, str) or kind not in EVENTS]
        if unknown:
            raise InvalidArgument(f"there is no event kind {unknown[0]!r:.40}; they are {', '.join(EVENTS)}")
        numbers += [wanted.transaction, *nodes]
        flag, ops = wanted.undone, []
    else:
        flag, ops = wanted.rolled_back, _each(wanted.ops, "ops")
    for number in numbers:
        if number is not None:
            check_number(number, "a number of a journal")
    for number in (*numbers, wanted.first_seq, wanted.last_seq):
        _check_plain(number)
    for op in ops:
        check_text(op, "name")
    if wanted.request_id is not None:
        check_text(wanted.request_id, "name")
    if flag is not None:
        check_flag(flag, "what is asked of rollbacks")
    if isinstance(wanted, EventFilter) and len(set(wanted.nodes)) > MAX_NODES:
        raise InvalidArgument(f"one question names at most {MAX_NODES} nodes, not {len(set(wanted.nodes))}")


def _each(values: Any, what: str) -> list[Any]:
    """The values of a condition that names several; a text is one value, and no list of its characters."""
    if not isinstance(values, list | tuple | set | frozenset):
        raise InvalidArgument(f"{what} are a list or tuple, not {type(values).__name__} {values!r:.40}")
    return list(values)


def _check_plain(number: Any) -> None:
    """Raise InvalidArgument for what is neither None nor a whole number of Python itself."""
    if number is not None and not isinstance(number, int):
        check_integer(number, "a seq or a number")
        raise InvalidArgument(f"{number!r:.40} is no number of Python: int() makes one of it")
    if isinstance(number, bool):
        raise InvalidArgument(f"{number} is no seq and no number")


def span_of(
    first: int | None, last: int | None, *, after: int | None = None, before: int | None = None
) -> tuple[int, int]:
    """The first and last seq, or number, that bounds and exclusive cursors leave possible; first > last for
    none. Raises InvalidArgument for a cursor that is no number.
    """
    for cursor in (after, before):
        _check_plain(cursor)
    low = max(1, first or 1, 1 if after is None else after + 1)
    high = LAST_SEQ if last is None else min(LAST_SEQ, last)
    return low, high if before is None else min(high, before - 1)
