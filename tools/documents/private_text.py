"""Words of callers and of exceptions: they may quote tokens and namespaces, and are shown on request alone.

The rule is that of the journal's token policies (journal/stored_tokens.py): lengths that the cache itself
tells stay, of an exception its name, of all else nothing.
"""

from kvledger.core.events import RollbackCause
from kvledger.journal.stored_tokens import OWN_OPS, WITHHELD

KNOWN_OPS = OWN_OPS | {"events_dropped"}
"""Names of transactions that are the cache's or the recorder's own."""


def told_op(op: str, *, reveal: bool) -> str:
    """The name of a transaction."""
    return op if reveal or op in KNOWN_OPS else WITHHELD


def told_reason(reason: str, cause: RollbackCause, *, reveal: bool) -> str:
    """Why something was undone."""
    if reveal or cause in (RollbackCause.REFUSED, RollbackCause.SKIPPED):
        return reason
    name = reason.partition(":")[0]
    if cause is RollbackCause.ERROR and name.isidentifier():
        return name
    return reason and WITHHELD
