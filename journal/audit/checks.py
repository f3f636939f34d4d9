"""All groups of checks, in the order in which they are asked."""

from kvledger.journal.audit.acquisitions import Acquisitions
from kvledger.journal.audit.check import Check, Context
from kvledger.journal.audit.checkpoints import Checkpoints
from kvledger.journal.audit.content import Content
from kvledger.journal.audit.credit import Credit
from kvledger.journal.audit.endings import Endings
from kvledger.journal.audit.evictions import Evictions
from kvledger.journal.audit.inserts import Inserts
from kvledger.journal.audit.leases import LeaseBalance
from kvledger.journal.audit.locks import Locks
from kvledger.journal.audit.matching import Matching
from kvledger.journal.audit.origins import Origins
from kvledger.journal.audit.pages import PageMoves
from kvledger.journal.audit.passed import Passed
from kvledger.journal.audit.recency import Recency
from kvledger.journal.audit.recount import Recount
from kvledger.journal.audit.rollbacks import Rollbacks
from kvledger.journal.audit.rows import RowSafety
from kvledger.journal.audit.siblings import Siblings
from kvledger.journal.audit.statistics import Statistics


def all_checks(context: Context, *, locks: Locks, rollbacks: Rollbacks) -> list[Check]:
    """Every check, beside one state; `locks` and `rollbacks` are those that others ask."""
    return [
        locks,
        LeaseBalance(context),
        PageMoves(context, locks=locks, rollbacks=rollbacks),
        Matching(context),
        Acquisitions(context),
        Inserts(context),
        Passed(context),
        Origins(context),
        RowSafety(context),
        Content(context, locks=locks),
        Credit(context),
        Evictions(context),
        Endings(context),
        Recency(context),
        Siblings(context),
        Statistics(context),
        Checkpoints(context),
        Recount(context),
        rollbacks,
    ]
