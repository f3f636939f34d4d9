"""Event streams: what a journal stores, sent to whoever listens, each event once and none left out.

The seq of the last event sent is all there is to remember: a stream that was cut goes on behind it. What is
sent is read from the store, so that a listener that is slow, or away for a while, costs no memory here; one
that does not read is cut. `Streams` bounds how many there are at once, and ends them when the service goes
down: nothing else would, they have no end of their own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from kvledger.api.library import OpenedJournal
from kvledger.api.problems import Refusal, problem_response, too_many
from kvledger.api.told.events import Teller
from kvledger.core.errors import JournalError
from kvledger.journal import EventFilter

log = logging.getLogger("kvledger.api")

BATCH_EVENTS = 200
"""Events read at once for a stream: what it holds in memory."""

HEARTBEAT_SECONDS = 5.0
"""A stream without news says so this often: proxies close connections that are silent."""

LINGER_SECONDS = 0.1
"""After news a stream waits so long for more: nobody reads faster, and a busy journal grows a hundred times a
second."""

SEND_SECONDS = 20.0
"""A listener whose connection takes nothing for so long is cut; it can go on later where it was."""

RETRY_SECONDS = 5
"""When to try again where there are too many streams."""


class Head(BaseModel):
    """What a stream says when there is nothing new: the newest seq that it has looked at."""

    last_seq: int


class Missing(BaseModel):
    """What a stream says first where events that it should have begun with were pruned."""

    not_here_before: int


class Streams:
    """The streams of one service. Belongs to the event loop's thread."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._open: set[asyncio.Event] = set()
        self.ending = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def place(self, wake: asyncio.Event) -> Iterator[None]:
        """Count one stream, which `wake` wakes. Raises a 429 refusal where there are too many."""
        if len(self._open) >= self._limit:
            raise too_many(
                f"{self._limit} event streams are open, which is the limit", retry_after_s=RETRY_SECONDS
            )
        self._open.add(wake)
        try:
            yield
        finally:
            self._open.discard(wake)

    def end(self) -> None:
        """Let every stream end, now and from now on."""
        self.ending = True
        for wake in self._open:
            wake.set()


@dataclass(frozen=True, slots=True)
class Listening:
    """What one stream listens to: events of `opened` that meet `wanted`, behind seq `after`."""

    opened: OpenedJournal
    teller: Teller
    wanted: EventFilter
    after: int
    not_here_before: int | None = None
    check_store: Callable[[], None] = lambda: None
    """Raises a JournalError where the store is not any more what the stream began with."""


class EventStream(EventSourceResponse):
    """The response that is a stream; a problem document where there are too many."""

    def __init__(self, listening: Listening, streams: Streams) -> None:
        self._streams = streams
        self._wake = asyncio.Event()
        super().__init__(_sent(listening, streams, self._wake), ping=0, send_timeout=SEND_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._streams.place(self._wake):
                await super().__call__(scope, receive, send)
        except Refusal as refusal:
            await problem_response(refusal)(scope, receive, send)
        except SendTimeoutError:
            log.info("a listener took nothing for %s seconds and was cut", SEND_SECONDS)


async def _sent(
    listening: Listening, streams: Streams, wake: asyncio.Event
) -> AsyncIterator[ServerSentEvent]:
    """What a stream sends, until the service goes down or the journal cannot be read."""
    after, caught_up = listening.after, False
    loop = asyncio.get_running_loop()

    def hear(seq: int) -> None:
        # The follower tells how far it is whether there is news or not.
        if seq > after:
            _wake(loop, wake)

    unsubscribe = listening.opened.timeline.subscribe(hear)
    try:
        if listening.not_here_before is not None:
            yield _message("missing", Missing(not_here_before=listening.not_here_before))
        while not streams.ending:
            # Cleared before the look: what is stored after it wakes the stream again.
            wake.clear()
            batch, seen = await run_in_threadpool(_read, listening, after)
            for seq, data in batch:
                yield ServerSentEvent(data=data, event="event", id=str(seq))
                after = seq
            if seen is None:
                continue
            after = seen
            if not caught_up:
                caught_up = True
                yield _message("head", Head(last_seq=after))
            elif batch:
                await asyncio.sleep(LINGER_SECONDS)
            if not await _woken(wake):
                yield _message("head", Head(last_seq=after))
    except JournalError as error:
        # Who comes back for the rest is told in a problem document why there is none.
        message = listening.teller.hide.message(str(error))
        log.warning("an event stream ends behind seq %s: %s", after, message)
    finally:
        unsubscribe()


def _read(listening: Listening, after: int) -> tuple[list[tuple[int, str]], int | None]:
    """The next events behind `after`, told, and how far was looked; None where there are more at once."""
    listening.check_store()
    reader = listening.opened.reader
    head = int(reader.head().seq)
    found = list(reader.find(listening.wanted, limit=BATCH_EVENTS, after_seq=after))
    told = [(int(one.seq), listening.teller.event(one).model_dump_json()) for one in found]
    if len(found) == BATCH_EVENTS:
        return told, None
    # Events may have been stored between the two looks: what was found last is then past the head.
    return told, max(after, head, told[-1][0] if told else 0)


def _wake(loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> None:
    """Wake a stream from the follower's thread. A loop that was closed meanwhile has no stream any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(wake.set)


async def _woken(wake: asyncio.Event) -> bool:
    """Wait for news; False where none came for a heartbeat."""
    try:
        await asyncio.wait_for(wake.wait(), HEARTBEAT_SECONDS)
    except TimeoutError:
        return False
    return True


def _message(name: str, content: BaseModel) -> ServerSentEvent:
    return ServerSentEvent(data=content.model_dump_json(), event=name)
