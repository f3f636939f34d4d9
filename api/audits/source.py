"""A journal as an audit in the background reads it: up to a fixed seq, watched, and left when told to."""

from collections.abc import Iterable, Iterator
from threading import Event
from typing import Any, TypeVar

from kvledger.core.ids import Seq, TxnId
from kvledger.journal import JournalReader, StoredTransaction
from kvledger.journal.records import StoredCheckpoint

Item = TypeVar("Item")


class Cancelled(Exception):
    """Somebody cancelled the audit."""


class BoundedSource:
    """The transactions of `reader` that end at or before `upto_seq`, while `stop` is not set.

    `reached` is the last seq that was read. Raises Cancelled between two transactions once `stop` is set.
    """

    def __init__(self, reader: JournalReader, *, upto_seq: int) -> None:
        self._reader = reader
        self._upto = Seq(upto_seq)
        self.stop = Event()
        self.reached = 0

    def transactions(
        self, first: TxnId | int | None = None, *, upto_seq: Seq | int | None = None
    ) -> Iterator[StoredTransaction]:
        """As `JournalReader.transactions`, up to the bound."""
        upto = self._upto if upto_seq is None else min(upto_seq, self._upto)
        for transaction in self.until_stopped(self._reader.transactions(first, upto_seq=upto)):
            self.reached = transaction.last_seq
            yield transaction

    def checkpoint_before(self, seq: Seq | int | None = None) -> StoredCheckpoint | None:
        """As `JournalReader.checkpoint_before`, none past the bound."""
        return self._reader.checkpoint_before(self._upto if seq is None else min(seq, self._upto))

    def checkpoint_after(self, seq: Seq | int) -> StoredCheckpoint | None:
        """As `JournalReader.checkpoint_after`, none past the bound."""
        found = self._reader.checkpoint_after(seq)
        return None if found is None or found.seq > self._upto else found

    def checkpoint_places(self) -> Iterator[tuple[TxnId, str]]:
        """As `JournalReader.checkpoint_places`."""
        return self._reader.checkpoint_places()

    def recorded_config(self) -> dict[str, Any] | None:
        """As `JournalReader.recorded_config`."""
        return self._reader.recorded_config()

    def until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items; raises Cancelled before the next one once it is told to stop."""
        for item in items:
            if self.stop.is_set():
                raise Cancelled
            yield item
