"""One walk along a hash chain, over raw cells from wherever they are kept: a database or exported files.

Each transaction is checked for its place (dense numbers, dense seqs), its events (all there, none besides),
its link to the one before and its own hash; after a break the walk goes on from what is stored, so that one
changed row is reported once. Text cells are bytes: a change that happens to decode to the same value is still
a change.

A walk begins at genesis, or at a checkpoint whose earlier rows were pruned. An anchor from before that place
cannot be compared with anything here, which is no break: `anchored` stays False. The one thing seqs may skip
is a range that an `events_dropped` event names, and that event is hashed like all others.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kvledger.core.errors import CacheError
from kvledger.core.events import EVENTS
from kvledger.journal.chain import ChainHead, CheckpointName, transaction_hash
from kvledger.journal.codec import decode, encode
from kvledger.journal.fields import canonical_json
from kvledger.journal.models import FORMAT_VERSION, READABLE_FORMATS
from kvledger.journal.records import name_of

DROPPED = b"events_dropped"
OPENED = b"cache_opened"

LARGEST = 2**63 - 1
"""No number and no seq is above this: a database could not be asked for what comes after it."""


@dataclass(frozen=True, slots=True)
class ChainBreak:
    """One place where a journal is not what was written. `number` and `seq` name the first bad row."""

    invariant: Literal["chain", "sequence"]
    table: Literal["journals", "transactions", "events", "checkpoints", "anchor"]
    number: int | None
    seq: int | None
    sentence: str


class Link(NamedTuple):
    """Where a chain stands after transaction `number`: its last seq and its hash."""

    number: int
    seq: int
    hash: bytes


class ChainWalk:
    """What the check knows between two transactions: which number, seq and link have to come next.

    `start` is the link before the first transaction: number 0, seq 0 and the genesis hash, or a checkpoint's.
    `format_version` is the journal's; one that is unknown is damage, and its rows are taken for the newest.
    The counters tell how much was walked; `marks` are the links that checkpoints have to stand on; `named` is
    the checkpoint that the last transaction names, if that transaction is sound.
    """

    def __init__(
        self,
        start: Link,
        *,
        format_version: int,
        anchor: ChainHead | None = None,
        marks: dict[int, Link] | None = None,
    ) -> None:
        self.start = start
        self.format_version = format_version if format_version in READABLE_FORMATS else FORMAT_VERSION
        self.named: CheckpointName | None = None
        self.transactions = 0
        self.events = 0
        self.anchored = False
        self.gaps: list[tuple[int, int]] = []
        self.reached = start
        self.marks = {} if marks is None else marks
        self.next_number = start.number + 1
        self.next_seq = start.seq + 1
        # After a break both the stored and the recomputed hash may be what the next row links to.
        self._links = {start.hash}
        self._sound = True
        self._damaged = False
        self._anchor = anchor
        self._config: str | None = None

    def begin(self) -> Iterator[ChainBreak]:
        """What the anchor says of the place where the walk begins."""
        if self._anchor is not None and self._anchor.number == self.start.number:
            yield from self._at_anchor(self.start)

    def step(self, head: Sequence[Any], rows: Sequence[Any]) -> Iterator[ChainBreak]:
        """Check the next transaction and the event rows in its range, and move on to what follows it.

        `head` holds the cells that `chain.TransactionCells` names, then previous_hash and hash; each of
        `rows` those that `chain.EventCells` names.
        """
        number, first_seq, event_count, (previous, stored) = head[0], head[6], head[7], head[-2:]
        at = (number, first_seq if type(first_seq) is int else None)
        skipped = self._skipped(first_seq, rows)
        found: ChainBreak | None = None
        if number != self.next_number:
            found = self._misplaced(number)
        elif self._sound and first_seq != self.next_seq and skipped is None:
            sentence = f"transaction {number} starts at seq {first_seq}; seq {self.next_seq} comes next"
            found = ChainBreak("sequence", "transactions", *at, sentence)
        else:
            found = _missing_event(number, first_seq, event_count, rows)
        computed = _hash_of(head, rows, self.format_version)
        if computed != stored and not self.transactions:
            other = _other_format(head, rows, self.format_version)
            if other is not None:
                yield self._of_format(other, previous)
                computed = stored
        if found is None and computed != stored:
            found = _changed(head, rows)
        if found is None and previous not in self._links:
            table: Literal["journals", "transactions"] = "journals" if number == 1 else "transactions"
            before = "the journal's own row" if number == 1 else f"transaction {number - 1}"
            sentence = f"transaction {number} does not follow {before}: the hash before it is another one"
            found = ChainBreak("chain", table, *at, sentence)
        if found is not None:
            self._damaged = True
            yield found
        elif self._config is None:
            self._config = _config_in(rows)
        if skipped is not None:
            self.gaps.append(skipped)
        self._sound = found is None
        self.named = _name_in(head) if found is None else None
        self._links = {stored, computed or stored}
        self.next_number = min(number + 1, LARGEST)
        if type(first_seq) is int and type(event_count) is int:
            self.next_seq = min(max(first_seq + event_count, 0), LARGEST)
        self.transactions += 1
        self.events += len(rows)
        self.reached = Link(number, self.next_seq - 1, stored)
        if number in self.marks:
            self.marks[number] = self.reached
        if self._anchor is not None and number == self._anchor.number:
            yield from self._at_anchor(self.reached)

    def end(self, config: str | None) -> Iterator[ChainBreak]:
        """What only the end can tell: a cut tail, and a journal row that names another configuration."""
        opening_is_gone = self.start.number > 0 or self._damaged
        if config != self._config and (self._config is not None or not opening_is_gone):
            sentence = "the journal's config is not the one in its cache_opened event"
            yield ChainBreak("chain", "journals", None, None, sentence)
        if self._anchor is not None and self._anchor.number >= self.next_number:
            sentence = (
                f"the journal ends with transaction {self.next_number - 1}; the anchor names transaction "
                f"{self._anchor.number}, seq {self._anchor.seq}: the tail was cut"
            )
            yield ChainBreak("chain", "transactions", self.next_number, self.next_seq, sentence)

    def _of_format(self, found: int, previous: bytes) -> ChainBreak:
        """The rows are of another format than the journal's row says: go on with theirs."""
        self.format_version = found
        # The genesis hash is over the version too, and its row is told of here.
        self._links.add(previous)
        sentence = f"the journal's format version was changed: its rows are of format {found}"
        return ChainBreak("chain", "journals", None, None, sentence)

    def _skipped(self, first_seq: Any, rows: Sequence[Any]) -> tuple[int, int] | None:
        """The seqs before this transaction that its first event says were dropped: first and last."""
        if first_seq == self.next_seq or not rows or rows[0][2] != DROPPED:
            return None
        try:
            event: Any = decode("events_dropped", rows[0][3], rows[0][7].decode(), rows[0][8])
        except (CacheError, UnicodeDecodeError, AttributeError):
            return None
        named = (event.first_seq, event.last_seq)
        return named if named == (self.next_seq, first_seq - 1) else None

    def _misplaced(self, number: Any) -> ChainBreak:
        if number < self.next_number:
            sentence = f"transaction {number} stands where none can be: it was inserted"
            return ChainBreak("sequence", "transactions", number, None, sentence)
        sentence = f"transactions {self.next_number} to {number - 1} are missing"
        return ChainBreak("sequence", "transactions", self.next_number, self.next_seq, sentence)

    def _at_anchor(self, here: Link) -> Iterator[ChainBreak]:
        anchor = self._anchor
        if anchor is None:
            return
        self.anchored = True
        if (here.seq, here.hash) != (anchor.seq, anchor.hash):
            what = "hash" if here.hash != anchor.hash else "last seq"
            sentence = f"transaction {here.number} has another {what} than the anchor for seq {anchor.seq}"
            yield ChainBreak("chain", "transactions", here.number, anchor.seq, sentence)


def _missing_event(number: int, first_seq: Any, event_count: Any, rows: Sequence[Any]) -> ChainBreak | None:
    if type(first_seq) is not int or type(event_count) is not int:
        sentence = f"transaction {number} was changed: its first seq or its event count is no number"
        return ChainBreak("sequence", "transactions", number, None, sentence)
    for expected, row in enumerate(rows, start=first_seq):
        if row[0] != expected:
            break
    else:
        expected = first_seq + len(rows)
    if expected >= first_seq + event_count:
        return None
    sentence = f"seq {expected} of transaction {number} is missing"
    return ChainBreak("sequence", "events", number, expected, sentence)


def _changed(head: Sequence[Any], rows: Sequence[Any]) -> ChainBreak:
    """A transaction whose hash is not that of its rows; the event that contradicts itself, if one does."""
    number, first_seq, event_count = head[0], head[6], head[7]
    for row in rows:
        if not _is_consistent(row, number):
            sentence = f"seq {row[0]} of transaction {number} was changed: its cells contradict one another"
            return ChainBreak("chain", "events", number, row[0], sentence)
    last = first_seq + event_count - 1
    events = f", or one of its events {first_seq} to {last}," if event_count else ""
    sentence = f"transaction {number}{events} was changed: its hash is not that of its rows"
    return ChainBreak("chain", "transactions", number, first_seq, sentence)


def _is_consistent(row: Sequence[Any], number: int) -> bool:
    """Whether an event row is what encoding the event in it gives; True where it is of an older version."""
    _seq, txn, kind, version, node, request, undone, payload, blob = row
    if txn != number or undone not in (0, 1):
        return False
    try:
        name = kind.decode()
        event = decode(name, version, payload.decode(), blob)
        if version != vars(EVENTS[name])["version"]:
            return True
        again = encode(event)
    except (CacheError, UnicodeDecodeError, AttributeError):
        return False
    # A name that was read can be written: the codec reads no half of a surrogate pair in one.
    wanted = None if again.request_id is None else again.request_id.encode()
    return (again.node, wanted, again.payload.encode(), again.blob) == (node, request, payload, blob)


def _hash_of(head: Sequence[Any], rows: Any, format_version: int) -> bytes | None:
    """The hash that these cells call for, None when they hold what no journal of this format can."""
    cells: Any = head[:-2]
    previous = head[-2]
    try:
        return transaction_hash(previous, cells, rows, format_version=format_version)
    except (struct.error, TypeError):
        return None


def _other_format(head: Sequence[Any], rows: Any, format_version: int) -> int | None:
    """The format version by which these cells have their hash, if there is one."""
    for other in READABLE_FORMATS:
        if other != format_version and _hash_of(head, rows, other) == head[-1]:
            return other
    return None


def _name_in(head: Sequence[Any]) -> CheckpointName | None:
    return name_of(head[9], head[10])


def _config_in(rows: Sequence[Any]) -> str | None:
    for row in rows:
        _seq, _txn, kind, version, _node, _request, _undone, payload, blob = row
        if kind == OPENED:
            try:
                event: Any = decode("cache_opened", version, payload.decode(), blob)
                return canonical_json(event.config)
            except (CacheError, UnicodeDecodeError):
                return None
    return None
