"""Keeps a journal that is being recorded below a size: older rows are exported and pruned by themselves.

After every step of so many bytes a checkpoint falls due and becomes a place to cut at. When the limit is
reached, all up to the oldest cut goes to a Parquet file and leaves the store, so that the newest part, nearly
as much as the limit allows, is always there to be looked at. Sizes are counted from what the writer stores,
which costs nothing, and are those of rows with their indexes; room that is freed in an SQLite file is used
again for what comes next. What an operator sees on the disk is more, by `DISK_BEYOND_BYTES` at most.

All of it happens in the writer's thread, between two batches: the scheduler notices only a full queue, and
steps are small so that it seldom does.

A folder that cannot be written, or is busy, is no reason to stop recording into a store that is well: what
went wrong is kept in `problem`, counted and logged, and the cut is tried again a little later.
"""

import logging
from collections import deque
from collections.abc import Callable
from os import PathLike

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.core.ids import Seq
from kvledger.journal.arguments import check_number, check_path
from kvledger.journal.records import StoredCheckpoint
from kvledger.journal.rows import WriterCounters

log = logging.getLogger("kvledger.journal")

MIN_MAX_BYTES = 2**20
"""The least limit: below a megabyte checkpoints would outweigh the events between them."""

STEP_PARTS = 4
"""A cut takes a quarter of the limit at most, so that most of it is left to be looked at."""

MAX_STEP_BYTES = 16 * 2**20
"""A cut takes no more than this: some 50,000 events, which are written, read back and gone in seconds."""

DISK_BEYOND_BYTES = 48 * 2**20
"""What an SQLite file and its log may take beyond the limit: a step that is stored while the last one leaves,
the log (8 MiB: kvledger.journal.sqlite), in it the transaction that removes a step, and pages half filled. A
reader that keeps one transaction open for long makes the log grow until it ends."""

EVENT_BYTES = 60
"""What an event row takes beside its payload and blob: cells, key and index entries, measured on SQLite."""

TRANSACTION_BYTES = 450
"""What a transaction row takes with its two links and its index entries, measured alike."""

RETRY_PARTS = 8
"""An eighth of a step more is stored before a failed export is tried again."""


def check_growth(
    *, checkpoint_every: int, max_bytes: int | None, export_to: str | PathLike[str] | None
) -> None:
    """Raise InvalidArgument unless these settings of a recording can be, and belong together."""
    check_number(checkpoint_every, "checkpoint_every, a number of events, 0 for never,", least=0)
    if (max_bytes is None) != (export_to is None):
        raise InvalidArgument("max_bytes and export_to go together: what leaves the store needs a folder")
    if export_to is not None and not _can_be_a_folder(export_to):
        raise InvalidArgument(f"export_to is a folder, and {str(export_to)!r:.80} is none")
    if max_bytes is not None:
        check_number(max_bytes, "max_bytes", least=MIN_MAX_BYTES)


def _can_be_a_folder(path: str | PathLike[str]) -> bool:
    """Whether there is a folder of this name, or may be."""
    given = check_path(path, "export_to")
    try:
        return not given.exists() or given.is_dir()
    except OSError:  # too long a name
        return False


class Growth:
    """Decides when to cut; `export_and_prune(seq)` moves everything up to `seq` out and returns when it is
    gone.

    `counters` are the writer's own. `problem` is why no room could be made, None once it was; `failures`
    counts the attempts that failed.
    """

    def __init__(
        self, counters: WriterCounters, *, max_bytes: int, export_and_prune: Callable[[Seq], None]
    ) -> None:
        self.max_bytes = max_bytes
        self.cuts = 0
        self.failures = 0
        self.problem: JournalError | None = None
        self._counters = counters
        self._export_and_prune = export_and_prune
        self._checkpoint_bytes = 0
        self._gone = 0
        self._step = min(max_bytes // STEP_PARTS, MAX_STEP_BYTES)
        self._cuts: deque[tuple[Seq, int]] = deque()
        self._marked = 0
        self._asked: dict[int, int] = {}
        self._limit = max_bytes

    @property
    def stored_bytes(self) -> int:
        """About how much of the store this journal's rows take now."""
        return self._total() - self._gone

    def wants_checkpoint(self, seq: int) -> bool:
        """Whether the batch that was just stored, up to `seq`, should end in a checkpoint."""
        total = self._total()
        if total - self._marked >= self._step:
            self._marked = self._asked[seq] = total
            return True
        return False

    def checkpoint_written(self, checkpoint: StoredCheckpoint) -> None:
        """A checkpoint stands in the store; one that was asked for becomes a place to cut at."""
        self._checkpoint_bytes += len(checkpoint.state)
        total = self._asked.pop(checkpoint.seq, None)
        if total is not None:
            self._cuts.append((checkpoint.seq, total))

    def checkpoint_given_up(self, seq: int) -> None:
        """No checkpoint will stand at `seq`: the next step has to do."""
        self._asked.pop(seq, None)

    def crowded(self) -> bool:
        """Whether the limit is reached and there is a place to cut at."""
        return bool(self._cuts) and self.stored_bytes >= self._limit

    def make_room(self) -> bool:
        """Export and prune up to the oldest cut. Returns whether that succeeded; else it stays to be done.

        Whatever goes wrong is told in `problem` and not raised: rows leave the store only once they stand in
        files.
        """
        if not self._cuts:
            return False
        seq, gone = self._cuts[0]
        # Until it has been done: a folder that cannot be written is not tried again at every batch.
        self._limit = self.stored_bytes + self._step // RETRY_PARTS
        try:
            self._export_and_prune(seq)
        except JournalError as error:
            self.failed(error)
            return False
        except Exception as error:  # of a library that writes or reads files: the store is as well as before
            self.failed(JournalError(f"older events cannot leave the store: {error!r}"))
            return False
        self.problem = None
        self._limit = self.max_bytes
        self._gone = gone
        self._cuts.popleft()
        self.cuts += 1
        return True

    def failed(self, error: JournalError) -> None:
        """Keep and count why no room is made; what is new is logged as a warning."""
        again = self.problem is not None and str(self.problem) == str(error)
        self.problem = error
        self.failures += 1
        log.log(logging.DEBUG if again else logging.WARNING, "the journal grows past max_bytes: %s", error)

    def _total(self) -> int:
        counters = self._counters
        return (
            counters.bytes
            + counters.events * EVENT_BYTES
            + counters.transactions * TRANSACTION_BYTES
            + self._checkpoint_bytes
        )
