"""The audit of a stored journal: every invariant over its events, and the hash chain over its rows."""

from collections.abc import Callable, Iterable, Iterator

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.journal import ChainBreak, Journal, JournalReader
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.export import ExportedJournal
from kvledger.journal.records import StoredTransaction
from kvledger.tools.progress import Progress
from kvledger.tools.reading.sources import OpenedSource


def judge(
    store: Journal,
    journal: int | None = None,
    *,
    chain: Iterable[ChainBreak] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Audit one journal of an open store, the latest for None. Errors as `Journal.reader` and `audit`.

    Where its own row cannot be read, the verdict is what the chain finds, and it raises if that is nothing.
    `chain`: what a verification of its chain finds, None for one without an anchor. `progress` hears how
    many events were audited. Cost: linear in the events and the pages they name.
    """
    try:
        reader = store.reader(journal)
    except JournalError as error:
        return judge_unread(error, chain=store.verify(journal) if chain is None else chain)
    if chain is None:
        chain = store.verify(reader.info.id)
    return audit(reader, chain=chain, progress=_teller(reader, progress))


def judge_unread(error: JournalError, *, chain: Iterable[ChainBreak]) -> Verdict:
    """The verdict on a journal of which no row can be read, for the reason given: what its chain finds.

    Raises `error` where that is nothing.
    """
    return audit(_unread(error), chain=chain)


def judge_source(
    opened: OpenedSource,
    *,
    chain: Iterable[ChainBreak] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Audit a journal from wherever it is kept, its chain too (`chain` as in `judge`). Errors as `audit`."""
    tell = _teller(opened.source, progress)
    return audit(opened.source, chain=opened.breaks() if chain is None else chain, progress=tell)


def _teller(
    source: JournalReader | ExportedJournal, progress: Progress | None
) -> Callable[[int], None] | None:
    if progress is None:
        return None
    try:
        total = source.head().seq
    except JournalFormatError:
        # How long the journal is cannot be told; what is wrong with its end is the audit's to say.
        return None
    return lambda done: progress("events audited", done, total)


def _unread(error: JournalError) -> Iterator[StoredTransaction]:
    """The transactions of a journal of which not one can be read, and why."""
    yield from ()
    raise JournalFormatError(str(error)) from error
