"""The chain of a journal, wherever it is kept: which one is meant, and its check against an anchor."""

from collections.abc import Iterator

from kvledger.core.errors import UnknownJournal
from kvledger.journal import ChainBreak, Journal
from kvledger.journal.chain_check import ChainCheck, KeptAnchor
from kvledger.journal.database import reading_engine
from kvledger.journal.export import ExportedJournal, verify_exported
from kvledger.journal.verify import ChainTally, rows_without_journal, stored_journals
from kvledger.tools.reading.sources import OpenedSource


def journal_of(store: Journal, journal: int | None, anchor: KeptAnchor | None) -> int:
    """The journal to look at: the one named, the one of the anchor's epoch, or else the latest.

    Where rows are left of a journal that is gone, and there is no other, it is that one.
    """
    if journal is not None:
        return journal
    journals = journals_in(store)
    if anchor is not None:
        for number, epoch in journals:
            if epoch == anchor.epoch.encode():
                return number
    if journals:
        return journals[-1][0]
    lost = _lost_rows(store)
    if lost is None:
        raise UnknownJournal("the store holds no journal yet")
    return lost[0]


def journals_in(store: Journal) -> tuple[tuple[int, bytes], ...]:
    """Number and epoch of every journal, oldest first, also of one whose row cannot be read."""
    engine = reading_engine(store.url)
    try:
        return stored_journals(engine)
    finally:
        engine.dispose()


def check_stored(store: Journal, journal: int, anchor: KeptAnchor | None) -> ChainCheck:
    """The check of one journal in a database.

    Raises UnknownJournal where there is no such journal, unless rows are left of one that is gone.
    """
    tally = ChainTally()
    return ChainCheck(_stored_breaks(store, journal, anchor, tally), tally, anchor=anchor)


def check_source(opened: OpenedSource, anchor: KeptAnchor | None) -> ChainCheck:
    """The check of a journal wherever it is kept: in a database, in files, or in both, as one chain."""
    source = opened.source
    if isinstance(source, ExportedJournal):
        tally = ChainTally()
        breaks = verify_exported(source, anchor=None if anchor is None else anchor.head, tally=tally)
        return ChainCheck(breaks, tally, anchor=anchor, notes=source.notes())
    if opened.store is None:
        raise UnknownJournal("there is neither a file nor a database to verify")
    return check_stored(opened.store, source.info.id, anchor)


def _stored_breaks(
    store: Journal, journal: int, anchor: KeptAnchor | None, tally: ChainTally
) -> Iterator[ChainBreak]:
    try:
        found = store.verify(journal, anchor=None if anchor is None else anchor.head, tally=tally)
    except UnknownJournal:
        lost = _lost_rows(store)
        if lost is None:
            raise
        yield lost[1]
        return
    yield from found


def _lost_rows(store: Journal) -> tuple[int, ChainBreak] | None:
    engine = reading_engine(store.url)
    try:
        return rows_without_journal(engine)
    finally:
        engine.dispose()
