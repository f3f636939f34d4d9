"""A journal wherever it is kept: a database, exported files, or files and the database that follows them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvledger.core.errors import InvalidArgument
from kvledger.journal import ChainBreak, Journal, JournalReader, LookUpSource
from kvledger.journal.arguments import check_path
from kvledger.journal.export import ExportedJournal, is_exported
from kvledger.journal.export.folder import pieces_in

EXPORTED = "a folder of exported files"


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
    where: str,
    journal: int | None = None,
    *,
    exported: str | Path | None = None,
    may_be_torn: bool = False,
) -> Iterator[OpenedSource]:
    """The journal at `where`, a database or exported files; `exported` names files that precede a database.

    With `may_be_torn` a database that does not go on where they end is a break of the chain, and no error.
    Raises InvalidArgument for files beside files, and what opening a store or exported files raises.
    """
    if is_exported(where):
        _refuse_beside_files(where, exported)
        yield OpenedSource(ExportedJournal.open(where, journal), None)
        return
    with Journal.open(where, create=False) as store:
        reader = store.reader(journal)
        if exported is None:
            yield OpenedSource(reader, store)
        else:
            files = ExportedJournal.open(exported, rest=reader, may_be_torn=may_be_torn)
            yield OpenedSource(files, store)


@contextmanager
def open_sources(where: str, *, exported: str | Path | None = None) -> Iterator[list[LookUpSource]]:
    """All journals at `where`, oldest first; those of a database with what precedes them in `exported`.

    Raises as `open_source`.
    """
    if is_exported(where):
        _refuse_beside_files(where, exported)
        yield list(_in_files(check_path(where, EXPORTED)))
        return
    with Journal.open(where, create=False) as store:
        before = [] if exported is None else list(_in_files(check_path(exported, EXPORTED)))
        epochs = {journal.info.epoch for journal in before}
        yield [
            store.reader(info.id)
            if exported is None or info.epoch not in epochs
            else ExportedJournal.open(exported, rest=store.reader(info.id))
            for info in store.list()
        ]


def _in_files(path: Path) -> Iterator[ExportedJournal]:
    pieces = pieces_in(path)
    times = {piece.facts.journal.epoch: piece.facts.journal.created_us for piece in pieces}
    for epoch in sorted(times, key=lambda epoch: (times[epoch], epoch)):
        yield ExportedJournal([piece for piece in pieces if piece.facts.journal.epoch == epoch])


def _refuse_beside_files(where: str, exported: str | Path | None) -> None:
    if exported is not None:
        raise InvalidArgument(f"{where} holds exported files already: name a database beside them")
