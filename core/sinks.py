"""Where events go: ended transactions, what is kept of their tokens, and the sink that takes them.

Part of the vocabulary: whoever stores or reads events needs it, and nothing here knows the cache.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from kvledger.core.errors import JournalError
from kvledger.core.events import CacheOpened, Event
from kvledger.core.ids import RequestId


@dataclass(slots=True)
class TransactionRecord:
    """One outermost transaction as it is handed to a sink, after it has ended in the cache.

    `undone[i]` is 1 where `events[i]` was rolled back; `rolled_back` says that all of it was.
    Core reads no clock: times are the sink's to add.
    """

    op: str
    request_id: RequestId | None
    events: list[Event]
    undone: bytearray
    rolled_back: bool = False
    reason: str = ""


class TokenForm(Protocol):
    """What of the tokens and namespaces, which are private data, is stored and enters the digest.

    A sink that stores another form than the tokens themselves has one in its attribute `token_form`.
    Called by the cache for digests, and by the writer for events, on different threads.
    """

    def namespace(self, namespace: str) -> str:
        """What stands for a namespace; distinct for distinct ones."""

    def seed(self, namespace: str) -> bytes:
        """What the first node under a namespace continues from."""

    def node(self, above: bytes, tokens: bytes) -> bytes:
        """What stands for a node's own `tokens` below one that `above` stands for."""


class PlainTokens:
    """The form that hides nothing: tokens as they are."""

    def namespace(self, namespace: str) -> str:
        """The namespace itself."""
        return namespace

    def seed(self, namespace: str) -> bytes:
        """Nothing: tokens stand for themselves wherever they are."""
        return b""

    def node(self, above: bytes, tokens: bytes) -> bytes:
        """The tokens themselves."""
        return tokens


class EventSink(Protocol):
    """Where transactions go. `append` runs on the scheduler's thread before the cache commits.

    A sink that wants to know how long transactions take is a `BeginningListener` too.
    """

    def append(self, transaction: TransactionRecord) -> None:
        """Take one ended transaction; whatever is raised makes the cache undo it."""


@runtime_checkable
class BeginningListener(Protocol):
    """What a sink may be besides an `EventSink`: it hears when an outermost transaction begins.

    Whether it is one the cache looks once, when it is made.
    """

    def begin_transaction(self) -> None:
        """An outermost transaction begins, on the scheduler's thread. Must not raise.

        Need not be followed by an `append`: what changes nothing is not handed over.
        """


def beginnings_of(sink: object) -> Callable[[], None] | None:
    """What a sink hears beginnings by, None for one that does not listen, and for no sink."""
    return sink.begin_transaction if isinstance(sink, BeginningListener) else None


def opens_cache(transaction: TransactionRecord) -> bool:
    """Whether a cache began with this transaction."""
    return transaction.op == "open" and any(type(event) is CacheOpened for event in transaction.events)


@dataclass(slots=True)
class MemorySink:
    """Keeps every transaction in a list: for tests and for embedding without a database."""

    transactions: list[TransactionRecord] = field(default_factory=list)

    def append(self, transaction: TransactionRecord) -> None:
        """Keep the transaction. Raises JournalError for the opening of a second cache."""
        if self.transactions and opens_cache(transaction):
            raise JournalError("this sink already keeps the events of a cache: make another")
        self.transactions.append(transaction)
