"""The journals that the service shows, and the timeline that follows each one somebody looks at.

Owns nothing of the store: whoever opened it closes it. A journal is followed from the first time that it is
asked for, the recorder's own or the newest one from the start; where more are asked for than may be
followed at once, the one that was asked for longest ago is let go. Where the store's file was removed nothing
is told any more, and where another one was put in its place all is begun anew: a connection would go on
reading what is not there.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from kvledger.api.problems import unavailable, unknown
from kvledger.api.projection import Listener, LiveBus, Pace, Timeline
from kvledger.api.told.hiding import Hiding
from kvledger.core.errors import StoreUnavailable, UnknownJournal
from kvledger.core.ids import Seq
from kvledger.journal import Journal, JournalInfo, JournalReader
from kvledger.journal.database import backend_of

StoreFile = tuple[int, int] | None
"""What tells the file of a store from another one in its place; a server has none."""

FOLLOWED_JOURNALS = 8
"""Journals followed at once: each holds a state and its snapshots in memory."""


class LiveRecorder(Protocol):
    """What the service asks of a recorder in its own process; `Recorder` is one."""

    journal_id: int

    @property
    def last_seq(self) -> Seq: ...
    @property
    def durable_seq(self) -> Seq: ...
    @property
    def queued_events(self) -> int: ...
    @property
    def degraded(self) -> bool: ...
    @property
    def dropped_events(self) -> int: ...
    @property
    def stalls(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """One journal somebody asks about: its row, a reader, its timeline, its recorder where that is here."""

    info: JournalInfo
    reader: JournalReader
    timeline: Timeline
    live: LiveRecorder | None

    @property
    def id(self) -> int:
        """Its number in the store."""
        return self.info.id


class Library:
    """The journals of one store. Every method is safe from any thread.

    `live` is a recorder in this process, `bus` what it stores on its way to the timeline; `first` the journal
    to follow from the start where there is no recorder; `pace` how much of the process the timelines may
    take; `hide` how private data is told, where that is not this library's own matter.
    """

    def __init__(
        self,
        store: Journal,
        *,
        live: LiveRecorder | None = None,
        first: int | None = None,
        bus: LiveBus | None = None,
        pace: Pace | None = None,
        reveal_tokens: bool = False,
        hide: Hiding | None = None,
        followed: int = FOLLOWED_JOURNALS,
    ) -> None:
        self.store = store
        self.live = live
        self._first = first
        self._bus = bus
        self._pace = pace
        self.hide = Hiding(reveals=reveal_tokens) if hide is None else hide
        self._followed_limit = followed
        self._opened: OrderedDict[int, OpenedJournal] = OrderedDict()
        self._listeners: list[Callable[[JournalInfo], Listener]] = []
        self._forgetters: list[Callable[[int], None]] = []
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._closed = False
        self._file: StoreFile = None
        with suppress(StoreUnavailable):
            self._file = self._file_now()

    def listen(
        self, make: Callable[[JournalInfo], Listener], *, forget: Callable[[int], None] | None = None
    ) -> None:
        """Give every journal that is followed from now on a listener that `make` makes.

        `forget` is called with the journal's number when it is let go.
        """
        with self._lock:
            self._listeners.append(make)
            if forget is not None:
                self._forgetters.append(forget)

    def start(self) -> None:
        """Follow what will be looked at first: the recorder's journal, the one that was named, or the newest.

        Errors as `opened`.
        """
        first = self._first if self.live is None else self.live.journal_id
        if first is None:
            first = max((info.id for info in self.journals()), default=None)
        if first is not None:
            self.opened(first)

    def close(self) -> None:
        """Stop following. A journal asked for afterwards is refused as not available."""
        with self._lock:
            self._closed = True
            ending = list(self._opened.values())
            self._opened.clear()
        for opened in ending:
            opened.timeline.stop()

    def check_store(self, file: StoreFile) -> None:
        """Raise StoreUnavailable where the file of the store is gone, or is not what `opened_file` told."""
        if self._file_now() != file:
            raise StoreUnavailable("another file was put in place of the database")

    @property
    def opened_file(self) -> StoreFile:
        """What tells the file that is read from another one; None for a server."""
        return self._file

    def journals(self) -> tuple[JournalInfo, ...]:
        """Every journal of the store, oldest first."""
        self._begin_anew_where_replaced()
        return self.store.list()

    def followed(self) -> tuple[OpenedJournal, ...]:
        """The journals that are followed now, the one asked for longest ago first."""
        with self._lock:
            return tuple(self._opened.values())

    def opened(self, journal_id: int) -> OpenedJournal:
        """One journal, followed from now on. Raises a 404 refusal where there is none.

        JournalFormatError for one that this version cannot read, StoreUnavailable where the database is away.
        """
        self._begin_anew_where_replaced()
        found = self.opened_before(journal_id)
        if found is not None:
            return found
        # One at a time, and not under the lock: a database that does not answer must not hold up the others.
        with self._opening:
            found = self._known(journal_id)
            if found is None or found.info.config is None:
                found = self._open(journal_id, found)
                self._keep(found)
        return found

    def opened_before(self, journal_id: int) -> OpenedJournal | None:
        """One journal if it is followed and known already, and the store's file is the same. Never waits.

        Raises StoreUnavailable where the file is gone.
        """
        if self._file_now() != self._file:
            return None
        found = self._known(journal_id)
        return None if found is None or found.info.config is None else found

    def _file_now(self) -> StoreFile:
        seen = backend_of(self.store.url).file(self.store.url)
        return None if seen is None else seen.identity

    def _begin_anew_where_replaced(self) -> None:
        """Forget all that was read of a file in whose place another one stands. Raises where none does."""
        if self._file_now() == self._file:
            return
        with self._opening:
            now = self._file_now()
            if now == self._file:
                return
            self._file = now
            # Its connections are of the file before; new ones are made as they are needed.
            self.store.close()
            with self._lock:
                let_go = list(self._opened.values())
                self._opened.clear()
            self._let_go(let_go)

    def _known(self, journal_id: int) -> OpenedJournal | None:
        with self._lock:
            if self._closed:
                raise unavailable("the service is going down")
            found = self._opened.get(journal_id)
            if found is not None:
                self._opened.move_to_end(journal_id)
            return found

    def _keep(self, opened: OpenedJournal) -> None:
        """Note a journal that is followed now, and let go of those that are too many."""
        let_go = []
        with self._lock:
            closed = self._closed
            if not closed:
                self._opened[opened.id] = opened
                self._opened.move_to_end(opened.id)
                while len(self._opened) > self._followed_limit:
                    let_go.append(self._oldest())
        if closed:
            opened.timeline.stop()
        self._let_go(let_go)

    def _let_go(self, journals: Sequence[OpenedJournal]) -> None:
        for old in journals:
            old.timeline.stop()
            for forget in self._forgetters:
                forget(old.id)

    def _oldest(self) -> OpenedJournal:
        """Take out the journal asked for longest ago; the live one stays."""
        live = None if self.live is None else self.live.journal_id
        oldest = next(number for number in self._opened if number != live)
        return self._opened.pop(oldest)

    def _open(self, journal_id: int, before: OpenedJournal | None) -> OpenedJournal:
        """Read the journal's row; one that was read before its cache was opened keeps its timeline."""
        try:
            reader = self.store.reader(journal_id)
        except UnknownJournal as error:
            raise unknown("journal", detail=f"there is no journal {journal_id} in this store") from error
        if before is not None:
            return OpenedJournal(reader.info, reader, before.timeline, before.live)
        live = self.live if self.live is not None and self.live.journal_id == journal_id else None
        timeline = Timeline(
            reader,
            listeners=[make(reader.info) for make in self._listeners],
            bus=None if live is None else self._bus,
            pace=self._pace,
            told=self.hide.message,
        )
        timeline.start()
        return OpenedJournal(reader.info, reader, timeline, live)
