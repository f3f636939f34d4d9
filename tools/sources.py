"""A journal wherever it is kept: a database, exported files, or files and the database that follows them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvledger.core.errors import InvalidArgument
from kvledger.journal import ChainBreak, Journal, JournalReader
from kvledger.journal.export import ExportedJournal, is_exported


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """One journal that can be replayed and audited, and the parts of it that verify by themselves."""

    source: JournalReader | ExportedJournal
    store: Journal | None

    def breaks(self) -> Iterator[ChainBreak]:
        """What a verification of the chain finds, in the files and in the database."""
        if isinstance(self.source, ExportedJournal):
            yield from self.source.verify()
        if self.store is not None:
            yield from self.store.verify(self.source.info.id)


@contextmanager
def open_source(
    where: str, journal: int | None = None, *, exported: str | Path | None = None
) -> Iterator[OpenedSource]:
    """The journal at `where`, a database or exported files; `exported` names files that precede a database.

    Raises InvalidArgument for files beside files, and what opening a store or exported files raises.
    """
    if is_exported(where):
        if exported is not None:
            raise InvalidArgument(f"{where} holds exported files already: name a database beside them")
        yield OpenedSource(ExportedJournal.open(where, journal), None)
        return
    with Journal.open(where, create=False) as store:
        reader = store.reader(journal)
        if exported is None:
            yield OpenedSource(reader, store)
        else:
            yield OpenedSource(ExportedJournal.open(exported, rest=reader), store)
