"""The registry of one service: what it follows, counted as it comes and looked at when somebody asks.

Each service has a registry of its own, so that several in one process do not meet in one. A journal that is
let go takes its metrics along; when it is followed again its counters begin anew, which Prometheus takes for
a restart.
"""

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kvledger import __version__
from kvledger.api.answers.pools import pools_of
from kvledger.api.apart import OwnProcess
from kvledger.api.library import Library, OpenedJournal
from kvledger.api.metrics.families import Families, tell_counts, tell_journal, tell_levels, tell_process
from kvledger.api.metrics.tally import Tally
from kvledger.api.problems import Refusal
from kvledger.api.streams import Streams
from kvledger.core.errors import JournalError
from kvledger.journal import JournalInfo


class Metrics(Collector):
    """The metrics of one service. Gives every journal that `library` follows a listener that counts."""

    def __init__(self, library: Library, streams: Streams, *, process: OwnProcess | None = None) -> None:
        self._library = library
        self._process = process
        self._streams = streams
        self._lock = threading.Lock()
        self._tallies: dict[int, Tally] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        library.listen(self._tally_for, forget=self._forget)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the form that `accept`, a header, asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def describe(self) -> list[Metric]:
        """Nothing: what there is depends on the journals, and is not asked for before anybody scrapes."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every family, each once."""
        families = Families()
        families.level("kvledger_build_info", "The version of the service.", 1, version=__version__)
        families.level("kvledger_event_streams", "Event streams that are open.", len(self._streams))
        followed = self._library.followed()
        families.level("kvledger_followed_journals", "Journals that are followed.", len(followed))
        if self._process is not None:
            tell_process(families, self._process)
        for opened in followed:
            self._tell(families, opened)
        yield from families.told()

    def _tell(self, families: Families, opened: OpenedJournal) -> None:
        one = str(opened.id)
        with self._lock:
            tally = self._tallies.get(opened.id)
        if tally is not None:
            tell_counts(families, one, tally)
        readable = True
        try:
            self._library.check_store(self._library.opened_file)
            tell_journal(families, opened)
            # While it is loading the newest state would be computed for this alone.
            if opened.timeline.following.state == "following":
                with opened.timeline.state_at(None) as standing:
                    pools = pools_of(standing)
                tell_levels(families, one, pools)
        except JournalError:
            readable = False
        except Refusal as refusal:
            # A journal that does not fold, or holds nothing yet, has no levels to tell.
            readable = refusal.status < 500
        told = "Whether the database answers for this journal."
        families.level("kvledger_journal_readable", told, float(readable), journal=one)

    def _tally_for(self, info: JournalInfo) -> Tally:
        tally = Tally()
        tally.learn_page_size((info.config or {}).get("page_size"))
        with self._lock:
            self._tallies[info.id] = tally
        return tally

    def _forget(self, journal_id: int) -> None:
        with self._lock:
            self._tallies.pop(journal_id, None)
