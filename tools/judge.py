"""The audit of a stored journal: every invariant over its events, and the hash chain over its rows."""

from collections.abc import Iterable

from kvledger.journal import ChainBreak, Journal
from kvledger.journal.audit import Verdict, audit
from kvledger.tools.progress import Progress
from kvledger.tools.sources import OpenedSource


def judge(
    store: Journal,
    journal: int | None = None,
    *,
    chain: Iterable[ChainBreak] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Audit one journal of an open store, the latest for None. Errors as `Journal.reader` and `audit`.

    `chain`: what a verification of its chain finds, None for one without an anchor. `progress` hears how
    many events were audited. Cost: linear in the events and the pages they name.
    """
    reader = store.reader(journal)
    tell = None
    if progress is not None:
        total = reader.head().seq

        def tell(done: int) -> None:
            progress("events audited", done, total)

    if chain is None:
        chain = store.verify(reader.info.id)
    return audit(reader, chain=chain, progress=tell)


def judge_source(
    opened: OpenedSource,
    *,
    chain: Iterable[ChainBreak] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Audit a journal from wherever it is kept, its chain too (`chain` as in `judge`). Errors as `audit`."""
    tell = None
    if progress is not None:
        total = opened.source.head().seq

        def tell(done: int) -> None:
            progress("events audited", done, total)

    return audit(opened.source, chain=opened.breaks() if chain is None else chain, progress=tell)
