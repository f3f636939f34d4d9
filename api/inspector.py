"""The service inside a scheduler's process: one line attaches it to a recorder.

It lives on threads of its own: an event loop that serves HTTP, the workers that build answers, and the
follower that folds what the recorder has stored. It never touches the cache, and nothing of it is ever waited
for by the scheduler's thread or by the recorder's writer, whose bus throws away what is not taken in time.
What is left is the interpreter's lock, which all threads of a process share: `SHARE` bounds what the
projection takes of it, and what takes long (states at past seqs, audits) has a process of its own (apart/).
"""

import threading
from types import TracebackType
from typing import Self

from kvledger.api.apart import Orders, OwnProcess
from kvledger.api.app import create_app
from kvledger.api.library import Library
from kvledger.api.projection import LiveBus, Pace
from kvledger.api.serving import Service
from kvledger.api.settings import ApiSettings
from kvledger.core.errors import InvalidArgument
from kvledger.journal import Journal
from kvledger.journal.recorder import Recorder

SHARE = 0.15
"""Of a core, what following and answering may take together: see `kvledger bench inspect`."""

STOP_SECONDS = 30.0
"""How long `close` waits for the service's thread; it is a daemon and holds nothing up after that."""


class Inspector:
    """A running service over one recorder. Made by `attach`; `close` it, or use it as a context manager."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        settings: ApiSettings,
        share: float | None = SHARE,
        own_process: bool = True,
    ) -> None:
        told: object = recorder
        if not isinstance(told, Recorder):
            raise InvalidArgument(
                f"an Inspector cannot hear {type(told).__name__}, only a recorder whose writer is a thread "
                f"of this process: follow its store with `kvledger serve`"
            )
        if recorder.url is None:
            raise InvalidArgument("this recorder writes to no store: make one with Journal.record")
        self._recorder = recorder
        self._bus = LiveBus()
        self._store = Journal(recorder.url)
        self.library = Library(
            self._store,
            live=recorder,
            bus=self._bus,
            pace=Pace(share),
            reveal_tokens=settings.reveal_tokens,
            followed=settings.followed_journals,
        )
        self.own_process = OwnProcess(Orders.of(self.library, settings)) if own_process else None
        """Answers about the past; None where that is this process's own matter."""
        self._service = Service(create_app(settings, self.library, process=self.own_process))
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._service.run, name=f"kvledger-inspect-{recorder.journal_id}", daemon=True
        )

    @classmethod
    def attach(
        cls,
        recorder: Recorder,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: ApiSettings | None = None,
        reveal_tokens: bool = False,
        share: float | None = SHARE,
        own_process: bool = True,
    ) -> Self:
        """Serve what `recorder` records, and return once that can be connected to; port 0 is any free one.

        `settings` stands for host, port and what is revealed where it is given. `share` is how much of a core
        the projection may take from this process, None all it wants; `own_process` whether questions about
        the past and audits go to a process beside it, begun when somebody first looks. Raises TokenRequired
        for an address that others can reach without a token, CannotListen for one that cannot be had, and
        InvalidArgument for a recorder without a store, and for one of `Journal.record_apart`.
        """
        if settings is None:
            settings = ApiSettings(host=host, port=port, reveal_tokens=reveal_tokens)
        inspector = cls(recorder, settings=settings, share=share, own_process=own_process)
        try:
            inspector._service.listen()
        except BaseException:
            inspector._store.close()
            raise
        recorder.subscribe(inspector._bus)
        inspector._thread.start()
        return inspector

    @property
    def url(self) -> str:
        """Where it is served."""
        return self._service.url

    def close(self) -> None:
        """End the service; the recorder goes on. A second call does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._recorder.unsubscribe(self._bus)
            self._service.should_exit = True
            self._thread.join(STOP_SECONDS)
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
