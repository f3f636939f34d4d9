"""The recorder's own fold: it follows what the writer stores and puts full states beside it, as checkpoints.

It lives in the writer's thread and never in the scheduler's. Folding costs about as much as storing does, so
it is put off: transactions of at most `PENDING_EVENTS` events wait here, and are folded when the writer has
nothing else to do and enough of them wait. A checkpoint falls due at the first batch end at or after `every`
events and is written when the fold gets there; its row says at which transaction it stands, not when it was
written.

Each checkpoint names the one before it, and the writer is told of it, so that the next transaction names it:
none can then be removed or replaced unseen.

Events that could not be stored are folded too. The state therefore outlives a gap: right after the
`events_dropped` event that names it a checkpoint is due at once, and readers resume there.

A journal that does not fold (a cache that broke the rules) goes on being recorded without checkpoints;
`problem` says why. Finding fault is the audit's business. Nothing that goes wrong here stops a recording
whose rows are stored: a checkpoint that the store refuses for now stays due and is tried again after the next
batch, and room that could not be made (`growth_problem`) a little later.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import sqlalchemy as sa

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.core.events import EVENTS, EventsDropped
from kvledger.core.ids import Seq, TxnId
from kvledger.core.sinks import TransactionRecord
from kvledger.journal.chain import ChainHead, CheckpointName, Owner, checkpoint_hash
from kvledger.journal.database import database_errors
from kvledger.journal.growth import Growth
from kvledger.journal.models import FORMAT_VERSION, CheckpointRow, JournalRow
from kvledger.journal.records import StoredCheckpoint, checkpoint_cells
from kvledger.journal.replay import Fold
from kvledger.journal.rows import Submission
from kvledger.journal.snapshot import encode_state

log = logging.getLogger("kvledger.journal")

DEFAULT_CHECKPOINT_EVENTS = 100_000
"""Events between two automatic checkpoints. A replay then folds at most about a second's worth, and a state
of a megabyte beside some 17 MB of events adds a few percent (docs/performance.md)."""

PENDING_EVENTS = 32_768
"""Events that may wait to be folded: some tens of megabytes, and a third of a second of work."""

HOPELESS_EVENTS = 8 * PENDING_EVENTS
"""So many are waiting only when a checkpoint cannot be written for long: then the keeper gives up."""

WORTH_EVENTS = 512
"""Events that wait to be folded before the writer begins with them by itself."""

WORTH_PAGES = 65_536
"""The same for pages that those events name: some megabytes of arrays, which nobody else holds any more."""

_NAME_PAGES = frozenset(
    event_class for event_class in EVENTS.values() if "full_pages" in {f.name for f in fields(event_class)}
)

SLICE_EVENTS = 512
"""Events folded in one go while idle: a few milliseconds, after which the writer looks at its queue."""


@dataclass(slots=True)
class KeeperCounters:
    """Checkpoints written, the bytes of their states, events folded, and the CPU seconds all that took.

    `refused` counts the times the store refused a checkpoint and it was put off.
    """

    checkpoints: int = 0
    bytes: int = 0
    events: int = 0
    cpu_seconds: float = 0.0
    refused: int = 0


class _Stand(NamedTuple):
    """Where the chain stood after the transactions that wait before it; whether a checkpoint is due there."""

    head: ChainHead
    due: bool


class Keeper:
    """Follows one journal from its first transaction. All methods belong to the writer's thread.

    `engine` writes, to the journal `journal_id` of epoch `epoch` and hash `genesis`; `every` is the number of
    events between two automatic checkpoints, 0 for none but those after a gap and those that `growth` needs.
    `name` hears of each that was stored.
    """

    def __init__(
        self,
        engine: sa.Engine,
        *,
        journal_id: int,
        epoch: str,
        genesis: bytes,
        every: int,
        name: Callable[[CheckpointName], None],
        growth: Growth | None = None,
    ) -> None:
        self.counters = KeeperCounters()
        self.problem: JournalError | None = None
        self._engine = engine
        self._journal_id = journal_id
        self._epoch = epoch
        self._genesis = genesis
        self._config: str | None = None
        self._every = every
        self._name = name
        self._newest: CheckpointName | None = None
        self._doubtful: list[int] = []
        self._growth = growth
        self._fold = Fold()
        self._pending: deque[TransactionRecord | _Stand] = deque()
        self._pending_events = 0
        self._pending_pages = 0
        self._since = 0
        self._due: ChainHead | None = None
        self._waiting_due = 0
        self._urgent = 0
        self._last_due = 0

    def stored(self, batch: Sequence[Submission], *, number: int, seq: int, link: bytes) -> None:
        """Take note of a batch that was committed; the chain stands at `number`, `seq` and `link` after it.

        The records must be those that were stored, after the token policy. Cost: O(transactions), no folding.
        """
        if self.problem is not None or not batch:
            return
        events = self._wait(batch)
        if not self._pending:
            return
        head = ChainHead(self._epoch, number, seq, link)
        gap = any(_is_gap(item.record) for item in batch)
        self._since += events
        due = gap or (self._every > 0 and self._since >= self._every)
        # An empty transaction ends at the seq of the one before it: one checkpoint stands at a seq.
        if seq > self._last_due:
            due = (self._growth is not None and self._growth.wants_checkpoint(seq)) or due
        else:
            due = False
        if due:
            self._since = 0
            self._last_due = seq
        self._urgent += gap
        self._waiting_due += due
        self._pending.append(_Stand(head, due))

    def dropped(self, batch: Sequence[Submission]) -> None:
        """Take note of a batch that was given up: the cache went on from it, and so does the state."""
        if self.problem is None:
            self._wait(batch)

    @property
    def growth_problem(self) -> JournalError | None:
        """Why the store could not be kept below its limit the last time it was due; None while it is kept."""
        return None if self._growth is None else self._growth.problem

    @property
    def has_work(self) -> bool:
        """Whether there is anything to fold, to write or to make room for."""
        return bool(self._pending) or self._due is not None or self._crowded()

    @property
    def worth_working(self) -> bool:
        """Whether there is enough of it to begin: the few events of a step cost less together with others."""
        due = self._waiting_due > 0 or self._due is not None
        many = self._pending_events >= WORTH_EVENTS or self._pending_pages >= WORTH_PAGES
        return due or many or self.must_work

    @property
    def must_work(self) -> bool:
        """Whether the writer must let it work before it stores more."""
        urgent = self._urgent > 0 and (self._due is not None or bool(self._pending))
        return urgent or self._pending_events > PENDING_EVENTS or self._crowded()

    def work(self, *, store_is_there: bool = True) -> bool:
        """Fold a slice of what waits, write a checkpoint that is due, or make room: one step.

        Returns whether there was something that could be done now. While the store is away a checkpoint that
        is due is given up, so that the fold can go on; one that the store refuses stays due.
        """
        began = time.thread_time()
        try:
            if self._due is not None:
                if store_is_there:
                    return self._written(self._due)
                else:
                    if self._growth is not None:
                        self._growth.checkpoint_given_up(self._due.seq)
                    self._due = None
                    self._urgent = 0
            elif self._pending:
                self._fold_slice()
            elif store_is_there and self._growth is not None and self._growth.crowded():
                self._growth.make_room()
            else:
                return False
            return True
        finally:
            self.counters.cpu_seconds += time.thread_time() - began

    def finish(self) -> None:
        """Write the checkpoints that have fallen due and make room where it is due, as far as that goes.

        What came after the last of them is not folded.
        """
        while self.must_work or self._due is not None or self._waiting_due:
            if not self.work():
                return

    def _crowded(self) -> bool:
        return self._growth is not None and self._growth.crowded()

    def _wait(self, batch: Sequence[Submission]) -> int:
        events = sum(len(item.record.events) for item in batch)
        self._pending.extend(item.record for item in batch)
        self._pending_events += events
        self._pending_pages += sum([_pages(item.record) for item in batch])
        if self._pending_events > HOPELESS_EVENTS:
            self._give_up(
                JournalError(f"a checkpoint could not be written for {self._pending_events} events")
            )
        return events

    def _fold_slice(self) -> None:
        folded = 0
        while self._pending and folded < SLICE_EVENTS and self._due is None:
            item = self._pending.popleft()
            if isinstance(item, _Stand):
                # Dropped transactions got no number, and the event that names them has one of its own.
                self._fold.seq, self._fold.transaction = Seq(item.head.seq), TxnId(item.head.number)
                if item.due:
                    self._waiting_due -= 1
                    self._due = item.head
                continue
            count = len(item.events)
            folded += count
            self._pending_events -= count
            try:
                if not _is_gap(item):
                    self._fold.apply_record(item)
            except JournalError as error:
                self._give_up(error)
                return
        if not self._pending:
            self._pending_pages = 0
        self.counters.events += folded

    def _written(self, head: ChainHead) -> bool:
        try:
            self._write(head)
        except StoreUnavailable as error:
            # Locked, or going away: if it stays so, the next batch meets it too, and that is told.
            self.counters.refused += 1
            log.warning("a checkpoint is put off: %s", error)
            return False
        return True

    def _write(self, head: ChainHead) -> None:
        try:
            state, digest = encode_state(self._fold.state), self._fold.state.digest()
        except JournalError as error:
            self._give_up(error)
            return
        kept = StoredCheckpoint(
            seq=Seq(head.seq),
            number=TxnId(head.number),
            chain_hash=head.hash,
            digest=digest,
            state=state,
            hash=checkpoint_hash(
                self._owner(),
                seq=head.seq,
                number=head.number,
                chain_hash=head.hash,
                digest=digest.encode(),
                state=state,
                previous=self._newest,
            ),
            previous=self._newest,
        )
        try:
            self._insert(kept)
        except StoreUnavailable:
            self._doubtful.append(head.seq)
            raise
        except JournalError as error:
            self._give_up(error)
            return
        self._newest = CheckpointName(kept.seq, kept.hash)
        self._name(self._newest)
        self._doubtful.clear()
        self._due = None
        self._urgent = 0
        self.counters.checkpoints += 1
        self.counters.bytes += len(state)
        if self._growth is not None:
            self._growth.checkpoint_written(kept)

    def _owner(self) -> Owner:
        """What of the journal's row the hash of a checkpoint covers. Its config is read once it is there."""
        if self._config is None:
            query = sa.select(JournalRow.config).where(JournalRow.id == self._journal_id)
            with database_errors("a checkpoint cannot be written"), self._engine.connect() as connection:
                self._config = connection.execute(query).scalar_one_or_none()
        config = None if self._config is None else self._config.encode()
        return Owner(FORMAT_VERSION, self._epoch, self._genesis, config)

    def _insert(self, kept: StoredCheckpoint) -> None:
        row = {"journal_id": self._journal_id} | checkpoint_cells(kept)
        with database_errors("a checkpoint cannot be written"), self._engine.begin() as connection:
            if self._doubtful:
                # A connection lost during its commit leaves a row that may be there, and that nothing names.
                connection.execute(
                    sa.delete(CheckpointRow).where(
                        CheckpointRow.journal_id == self._journal_id, CheckpointRow.seq.in_(self._doubtful)
                    )
                )
            connection.execute(sa.insert(CheckpointRow).values(row))

    def _give_up(self, error: JournalError) -> None:
        self.problem = error
        self._pending.clear()
        self._pending_events = 0
        self._pending_pages = 0
        self._waiting_due = 0
        self._urgent = 0
        self._due = None
        if self._growth is not None:
            self._growth.failed(JournalError(f"no room can be made in the journal any more: {error}"))


def _pages(record: TransactionRecord) -> int:
    """Full pages that the events of a transaction name; rows of requests and recoveries count for none."""
    count = 0
    for event in record.events:
        if type(event) in _NAME_PAGES:
            pages = getattr(event, "full_pages", None)
            if isinstance(pages, np.ndarray):
                count += len(pages)
    return count


def _is_gap(record: TransactionRecord) -> bool:
    """Whether it is the transaction of an outage: its one event names what was dropped."""
    return bool(record.events) and type(record.events[0]) is EventsDropped
