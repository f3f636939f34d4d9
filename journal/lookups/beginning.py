"""Which part of an answer is not known, because what would tell it is not stored here any more.

Old events leave a database for exported files. Every look-up that would have to see them says so, instead of
passing what is left for the whole.
"""

from dataclasses import dataclass

from kvledger.core.ids import Seq
from kvledger.journal.lookups.questions import Beginning, LookUpSource


@dataclass(frozen=True, slots=True)
class Unseen:
    """The seqs [first_seq, last_seq], both included, that an answer would have to see and could not."""

    first_seq: Seq
    last_seq: Seq
    sentence: str


def unseen(
    source: LookUpSource,
    *,
    first_seq: int | None = None,
    since_us: int | None = None,
    transaction: int | None = None,
) -> Unseen | None:
    """What is not there of the events from `first_seq` on (None: from the journal's first); None for nothing.

    An answer about times from `since_us` on misses nothing when the oldest transaction that is there is
    older, as far as the recorder's clock rose; one about a `transaction` only if that went. Cost: two
    look-ups.
    """
    begins = source.beginning()
    first = 1 if first_seq is None else max(1, first_seq)
    if first >= begins.seq or (transaction is not None and transaction >= begins.transaction):
        return None
    if since_us is not None:
        oldest = next(source.find_transactions(limit=1), None)
        if oldest is not None and oldest.time_us < since_us:
            return None
    return Unseen(Seq(first), Seq(begins.seq - 1), sentence_of(begins))


def sentence_of(begins: Beginning) -> str:
    """What to say of events before `begins`, and where to look for them."""
    if begins.in_files:
        return f"events before seq {begins.seq} are not in the exported files"
    return f"events before seq {begins.seq} were pruned; look in the exported files (--exported DIR)"
