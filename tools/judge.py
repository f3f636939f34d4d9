"""The audit of a stored journal: every invariant over its events, and the hash chain over its rows."""

from kvledger.journal import Journal
from kvledger.journal.audit import Verdict, audit
from kvledger.tools.progress import Progress


def judge(store: Journal, journal: int | None = None, *, progress: Progress | None = None) -> Verdict:
    """Audit one journal of an open store, the latest for None. Errors as `Journal.reader` and `audit`.

    `progress` hears how many events were audited. Cost: linear in the events and the pages they name.
    """
    reader = store.reader(journal)
    tell = None
    if progress is not None:
        total = reader.head().seq

        def tell(done: int) -> None:
            progress("events audited", done, total)

    return audit(reader.transactions(), chain=store.verify(reader.info.id), progress=tell)
