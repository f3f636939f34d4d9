"""Faults of events and of their undoing: family 31, and what a rollback may leave of the others."""

from kvledger.core import eviction
from kvledger.core import reset as reset_module
from kvledger.core.changes import locks, nodes
from kvledger.core.page_table import PageTable
from kvledger.core.state import CHANGES
from kvledger.core.transaction import Ledger
from tests.planted import tales
from tests.planted.evidence import Course
from tests.planted.planting import Planting
from tests.planted.variant import LIVES, Audit, Variant

HEALED_AND_UNDONE = (
    Course(tales.a_recovery_undone),
    Course(tales.a_recovery_undone, page=4, window=8),
)
UNDONE_SLIDE = (Course(tales.a_release_undone),)
UNDONE = (Course(tales.a_lock_undone), Course(tales.a_lock_undone, page=4, window=8))


def silent_cascade(p: Planting) -> None:
    """Nodes that a cascade takes are deleted past the ledger."""
    p.edit(
        eviction.delete,
        (
            "ledger.apply(",
            "apply = ledger.apply\n"
            "    if cause is Cause.CASCADE:\n"
            "        apply = lambda event: CHANGES[NodeDeleted](ledger.state, event)\n"
            "    apply(",
        ),
        CHANGES=CHANGES,
    )


def silent_reset(p: Planting) -> None:
    """What a reset deletes is taken off the list of events again."""
    right = "delete(ledger, node, Cause.RESET)"
    p.edit(reset_module.reset, (right, right + "\n            ledger.events.pop()"))


def leave_splits(p: Planting) -> None:
    """A rollback passes splits over."""
    right = "REVERSES[type(event)](state, event, token)"
    p.edit(Ledger.rollback, (right, f"event.kind == 'node_split' or {right}"))


VARIANTS = (
    Variant(
        "a cascade that no event tells",
        (31,),
        "Ancestors that a cascade takes are deleted past the single primitive.",
        silent_cascade,
        Audit("credit", "evicted"),
    ),
    Variant(
        "a reset that no event tells",
        (31,),
        "The bulk path of a reset deletes all nodes without an event for each.",
        silent_reset,
        Audit("well-formed", "cache_reset"),
    ),
    Variant(
        "undone events are not marked",
        (31,),
        "What a rollback took back goes to the sink as if it had not been.",
        lambda p: p.edit(Ledger._record, ('undone[first:end] = b"\\x01" * (end - first)', "pass")),
        Audit("rollback-neutral", "pages_allocated", "here"),
    ),
    Variant(
        "a rollback leaves a stamp",
        (31,),
        "Touches are not taken back.",
        lambda p: p.edit(nodes._touched_back, ("node.stamp = stamp", "pass")),
        Audit("checkpoint", "checkpoint"),
        UNDONE,
    ),
    Variant(
        "a rollback leaves a node split",
        (31,),
        "The split of an undone lock stays in the tree.",
        leave_splits,
        Audit("checkpoint", "checkpoint"),
        UNDONE,
    ),
    Variant(
        "a rollback leaves a recovery's mapping",
        (11, 13),
        "Kept pages of an undone recovery go on mapping to the SWA that was taken back.",
        lambda p: p.edit(PageTable.unremap, ("put_at(self.mapping, kept, 0)", "pass")),
        Audit("checkpoint", "checkpoint"),
        HEALED_AND_UNDONE,
    ),
    Variant(
        "a rollback gives pages to the wrong owner",
        (13,),
        "An undone free returns the pages to the raw caller, whoever held them.",
        lambda p: p.edit(
            PageTable.unfree_full_pages,
            ("put_at(self.owner, full, owner)", "put_at(self.owner, full, CALLER)"),
        ),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "a rollback leaves an SWA half released",
        (20, 23),
        "The lease of an undone early release goes on saying that its SWA half was given back.",
        lambda p: p.edit(locks._swa_released_back, ("token.swa_held = True", "pass")),
        Audit("checkpoint", "checkpoint"),
        UNDONE_SLIDE,
    ),
    Variant(
        "a rollback forgets a lock",
        (22, 23),
        "An undone release brings the lease back and not the lock.",
        lambda p: p.edit(
            locks._released_back,
            ("_lock(state, token.node, token.swa_from, full=True, swa=token.swa_held)", "pass"),
        ),
        Audit("checkpoint", "checkpoint"),
        HEALED_AND_UNDONE,
    ),
    Variant(
        "a rollback cuts off too little",
        (31, 13),
        "The first event of what is undone is left as it was done, and marked as undone.",
        lambda p: p.edit(
            Ledger.rollback, ("while len(undos) > to.undos:", "while len(undos) > to.undos + 1:")
        ),
        Audit("checkpoint", "checkpoint"),
        LIVES[1:],
    ),
)
