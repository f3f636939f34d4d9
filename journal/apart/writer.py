"""The process that stores what a recorder elsewhere hands to it: an ordinary recorder, fed from a ring.

It is the scheduler's child, in a session of its own, and outlives it: the end of the pipe that wakes it says
that the scheduler has closed its recorder or is gone, and what was handed over until then is stored before
this process ends. What it has to tell stands on the board.
"""

import gc
import logging
import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Iterator, Sequence

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.apart.board import (
    ASLEEP,
    BATCHES,
    BYTES,
    CLOSED,
    CPU_NS,
    DEGRADED,
    DROPPED_EVENTS,
    DURABLE_SEQ,
    EVENTS,
    FAILED,
    FLUSHED,
    GAPS,
    JOURNAL_ID,
    PHASE,
    RECORDING,
    TRANSACTIONS,
    UNAVAILABLE,
    UNKEPT,
    Board,
)
from kvledger.journal.apart.frames import END, FLUSH, NUMBER, ORDERS, unpack
from kvledger.journal.apart.orders import Orders
from kvledger.journal.apart.plans import HEADER
from kvledger.journal.apart.ring import RingReader
from kvledger.journal.recorder import Recorder
from kvledger.journal.rows import Submission
from kvledger.journal.store import Journal
from kvledger.journal.stored_tokens import StoredTokens

log = logging.getLogger("kvledger.journal")

NAP_SECONDS = 0.002
"""How often it looks at the ring: a scheduler that is busy need not wake it."""

NAPS = 25
"""After so many of them for nothing it sleeps, and is to be woken."""

LOOK_SECONDS = 0.25
"""How often it looks around while it sleeps."""

CALLS = 4_096
"""Most bytes of the pipe that are read at once: each is a call to wake up, and says no more."""

OBJECTS_BETWEEN_COLLECTIONS = 100_000
"""Objects made and not freed again until the collector looks at the youngest; a batch is not that many."""

NOTHING = 0
"""The form of no frame."""


def main(board_file: int) -> None:
    """Follow the orders that come through the ring. Standard input wakes this process; its end ends it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whoever stops the scheduler stops this process by that.
        signal.signal(number, signal.SIG_IGN)
    parent = os.getppid()
    board = Board(board_file)
    board.forget_file()
    try:
        _record(board)
    except JournalError as error:
        board.words[UNAVAILABLE] = isinstance(error, StoreUnavailable)
        board.end(FAILED, str(error))
    except BaseException as error:
        board.end(FAILED, f"the process that stores met an error of its own: {error!r}")
        raise
    finally:
        if os.getppid() != parent and board.words[PHASE] in (FAILED, UNKEPT):
            log.error("nobody is left to be told: %s", board.text)


def _record(board: Board) -> None:
    parent = os.getppid()
    frames = _frames(board)
    # Nobody else can give orders, whoever may still hold the pipe open.
    first = next((each for each in frames if each[0] == ORDERS or os.getppid() != parent), None)
    if first is None or first[0] != ORDERS:
        return
    orders: Orders = pickle.loads(first[1])
    with Journal.open(orders.url, create=False, lock_timeout_s=orders.lock_timeout_s) as journal:
        recorder = journal.begin(
            StoredTokens(orders.tokens, orders.key, drawn=orders.drawn),
            orders.settings,
            name=orders.name,
            checkpoint_every=orders.checkpoint_every,
            max_bytes=orders.max_bytes,
            export_to=orders.export_to,
        )
    _spare_the_collector()
    notes = _Notes(board, recorder)
    recorder.subscribe(notes)
    words = board.words
    words[JOURNAL_ID] = recorder.journal_id
    notes.write()
    words[PHASE] = RECORDING
    fault: BaseException | None = None
    try:
        _feed(recorder, frames, notes)
    except BaseException as error:
        fault = error
    unkept = _closed(recorder)
    notes.write()
    # Last of all: whoever reads this reads how far the journal reaches beside it.
    failure = recorder.failure or (fault if isinstance(fault, JournalError) else None)
    if failure is not None:
        board.end(FAILED, str(failure))
    elif fault is not None:
        raise fault
    elif unkept is not None:
        board.end(UNKEPT, str(unkept))
    else:
        board.end(CLOSED, "")


def _spare_the_collector() -> None:
    """Have the garbage collector look at what comes from here on, and seldom.

    All that is imported lives as long as the process, and looking through it again and again took a sixth of
    its time. What is stored is in no cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)


def _feed(recorder: Recorder, frames: Iterator[tuple[int, bytes]], notes: "_Notes") -> None:
    """Give the recorder what comes, until it fails or nobody can send any more."""
    parent, gone = os.getppid(), False
    for form, body in frames:
        if form == END or (form == NOTHING and gone):
            return
        # What the scheduler wrote before it went may still be in the ring: once more round.
        gone = os.getppid() != parent
        if form == FLUSH:
            recorder.flush()
            notes.write()
            notes.flushed(*NUMBER.unpack(body))
        elif form != NOTHING:
            for record, time_us, duration_us in unpack(body):
                notes.handed += len(record.events)
                recorder.append_timed(record, time_us=time_us, duration_us=duration_us)
        notes.write()
        if recorder.failure is not None:
            raise recorder.failure


def _closed(recorder: Recorder) -> JournalError | None:
    """Store the rest; what went wrong with that."""
    try:
        recorder.close()
    except JournalError as error:
        return error
    return None


class _Notes:
    """Keeps the board up to date with a recorder, from its writer's thread and from that of `main`."""

    def __init__(self, board: Board, recorder: Recorder) -> None:
        self._words = board.words
        self._recorder = recorder
        self._lock = threading.Lock()
        self.handed = 0
        """Events given to the recorder."""

    def stored(self, batch: Sequence[Submission], *, number: int, seq: int, link: bytes) -> None:
        """A batch was committed."""
        self._write(seq)

    def dropped(self, batch: Sequence[Submission]) -> None:
        """A batch was given up."""
        self._write(self._recorder.durable_seq)

    def write(self) -> None:
        """Everything that the recorder tells of itself; of the thread that gives it events."""
        self._words[GAPS] = self._recorder.last_seq - self.handed
        self._write(self._recorder.durable_seq)

    def flushed(self, number: int) -> None:
        """FLUSH frame `number` was followed."""
        self._words[FLUSHED] = number

    def _write(self, durable_seq: int) -> None:
        words, recorder = self._words, self._recorder
        counters = recorder.counters
        with self._lock:
            words[DURABLE_SEQ] = max(words[DURABLE_SEQ], durable_seq)
            words[DEGRADED] = recorder.degraded
            words[DROPPED_EVENTS] = recorder.dropped_events
            words[EVENTS] = counters.events
            words[TRANSACTIONS] = counters.transactions
            words[BYTES] = counters.bytes
            words[BATCHES] = counters.batches
            words[CPU_NS] = time.process_time_ns()


def _frames(board: Board) -> Iterator[tuple[int, bytes]]:
    """What comes through the ring, frame by frame, until nobody can send any more; NOTHING where nothing came
    for a while. Of a frame that is cut short nobody was told that it was handed over."""
    ring = RingReader(board.ring, board.counters)
    waiting = bytearray()
    over = False
    idle = 0
    while True:
        board.words[ASLEEP] = idle > NAPS
        if data := ring.read():
            idle = board.words[ASLEEP] = 0
            waiting += data
            yield from _whole(waiting)
            continue
        if over:
            return
        called, _, _ = select.select([0], [], [], LOOK_SECONDS if idle > NAPS else NAP_SECONDS)
        if called:
            over = not os.read(0, CALLS)
        elif idle > NAPS:
            yield NOTHING, b""
        idle += 1


def _whole(waiting: bytearray) -> Iterator[tuple[int, bytes]]:
    """Take the frames that are whole from the beginning of `waiting`."""
    begin = 0
    while len(waiting) - begin >= HEADER.size:
        length, form = HEADER.unpack_from(waiting, begin)
        end = begin + HEADER.size + length
        if len(waiting) < end:
            break
        yield form, bytes(memoryview(waiting)[begin + HEADER.size : end])
        begin = end
    del waiting[:begin]
