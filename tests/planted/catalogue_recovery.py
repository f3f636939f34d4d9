"""Faults of the tree and of recovery: families 1 to 10."""

import numpy as np

from kvledger.core import commit, locking
from kvledger.core.insertion import Insertion
from kvledger.core.requests import Request
from tests.planted import tales
from tests.planted.evidence import Course
from tests.planted.planting import Planting
from tests.planted.variant import LIVES, SKIPPING_LIVES, Audit, Variant, Walk

HEALED = Course(tales.healed_under_lock)
HEALED_IN_PAGES = Course(tales.healed_under_lock, page=4, window=8)


def blind_locks(p: Planting) -> None:
    """Take the guard away that a lock has of its own against tombstones in its window."""
    p.edit(locking._check_live, ("if node.swa is None", "if False"))


def accept_all(p: Planting) -> None:
    """A commit takes everything it offered for usable."""
    blind_locks(p)
    p.edit(commit._accepted, ("if not tombstoned or run >= state.window:", "if True:"))


def return_early(p: Planting) -> None:
    """A locked tombstone is passed over, as with the policy "skip"."""
    p.edit(Insertion._recovers, ('== "remap"', '== "never"'))


def return_early_and_believe_it(p: Planting) -> None:
    """The same, and what the insert claims counts."""
    accept_all(p)
    return_early(p)


def replace_locked(p: Planting) -> None:
    """A recovery does not look at the lock."""
    p.edit(Insertion._recover, ("locked = node.full_lock > 0", "locked = False"))


def adopt_behind_the_event(p: Planting) -> None:
    """A recovery writes to the node past its event."""
    right = "locked = node.full_lock > 0"
    p.edit(Insertion._recover, (right, right + "\n    node.full = incoming if locked else node.full"))


def refuse_full_leaves(p: Planting) -> None:
    """What lies before the frontier becomes no node."""
    p.edit(
        Insertion._grow,
        (
            "node = self._create(node, position, end, live=False)",
            "self._free_incoming(position, end)\n"
            "        self._step(end, node, NOTHING, end - position)\n"
            "        return",
        ),
    )


def adopt_the_protected_part(p: Planting) -> None:
    """What a recovery brings begins with a page that the node has already."""
    right = "incoming = row.part(start, end)"
    wrong = right + "\n    incoming = joined((node.full[:1], incoming[1:]))"
    p.edit(Insertion._recover, (right, wrong), joined=np.concatenate)


def keep_the_old_lease(p: Planting) -> None:
    """A refresh names the old lease, and does not give it back."""
    p.edit(
        Request.refresh,
        (
            "RequestRowChanged(state.id, epoch, lease.id,",
            "RequestRowChanged(state.id, epoch, lease.id if old is None else old.id,",
        ),
        ("release(ledger, old)", "pass"),
    )


def insert_all_again(p: Planting) -> None:
    """The row of a commit begins with its first token."""
    p.edit(
        commit.insert_own,
        ("base, end = lease.length // page, upto // page", "base, end = 0, upto // page"),
        ("lease.node is None else lease.node", "True else lease.node"),
    )


VARIANTS = (
    Variant(
        "recovery replaces locked Full",
        (1,),
        "A tombstone gets the Full pages of whoever computed it last, whoever reads the old ones.",
        replace_locked,
        Audit("locked-full", "swa_recovered", names=("node", "holders", "pages")),
    ),
    Variant(
        "recovery replaces locked Full of a raw caller",
        (1,),
        "The same where a lease of a caller's own is the lock.",
        replace_locked,
        Audit("locked-full", "swa_recovered", names=("node", "holders", "pages")),
        (HEALED, HEALED_IN_PAGES),
    ),
    Variant(
        "recovery returns early",
        (1, 4),
        "A locked tombstone is passed over although the policy is to remap, and all of a commit is refused.",
        return_early,
        Audit("insert-match", "rolled_back", "in its transaction", ("request",)),
    ),
    Variant(
        "recovery returns early and the commit believes it",
        (1, 4),
        "A locked tombstone is passed over, the insert claims the prefix, and the lock takes the claim over.",
        return_early_and_believe_it,
        Audit("insert-match", "prefix_inserted", "in its transaction", ("node", "request")),
        LIVES[1:2],
    ),
    Variant(
        "recovery returns early for a raw caller",
        (1,),
        "A locked tombstone is passed over by a raw insert, which frees the SWA that would have healed it.",
        return_early,
        Audit("insert-match", "prefix_inserted", "in its transaction", ("node", "pages")),
        (HEALED, HEALED_IN_PAGES),
    ),
    Variant(
        "a locked recovery tells one thing and does another",
        (1, 31),
        "The event says that the locked Full pages are kept, and the node has the incoming ones.",
        adopt_behind_the_event,
        Audit("conservation", "swa_recovered", "here", ("node", "pages")),
    ),
    Variant(
        "publication forgets the frontier",
        (2,),
        "Tokens whose SWA was given back long ago enter the tree as live.",
        lambda p: p.edit(commit.insert_own, ("dead=request.frontier // page", "dead=0")),
        Audit("mapping", "node_created", "later", ("node", "pages")),
    ),
    Variant(
        "a Full leaf without SWA is refused",
        (3,),
        "What lies wholly before the frontier is freed as a duplicate instead of becoming a tombstone leaf.",
        refuse_full_leaves,
        Audit("credit", "prefix_inserted", "in its transaction", ("request",)),
    ),
    Variant(
        "a commit is not matched again",
        (4,),
        "With the policy skip a commit locks all that it offered, past a tombstone that it left.",
        accept_all,
        Audit("window-match", "lock_acquired", "in its transaction", ("node", "request")),
        SKIPPING_LIVES[1:],
    ),
    Variant(
        "what a match refused is not rolled back",
        (4,),
        "The tree keeps pages past the match, and the request goes on using them unlocked.",
        lambda p: p.edit(
            commit._undo_refused, ("ledger.rollback(savepoint,", "return\n    ledger.rollback(savepoint,")
        ),
        Audit("row-safety", "pages_freed", "in its transaction", ("request", "pages")),
        SKIPPING_LIVES,
    ),
    Variant(
        "the frontier rounds the window down",
        (5,),
        "A window that is no multiple of the page is taken for the page below it.",
        lambda p: p.edit(
            Request.slide,
            ("- self._ledger.state.window_tokens)", "- self._ledger.state.window // page * page)"),
        ),
        Audit("row-safety", "pages_freed", names=("request", "pages")),
    ),
    Variant(
        "the frontier is a page too far",
        (5,),
        "Sliding starts from the page after the last computed token.",
        lambda p: p.edit(Request.slide, ("last // page * page -", "(last // page + 1) * page -")),
        Audit("row-safety", "pages_freed", names=("request", "pages")),
    ),
    Variant(
        "the frontier is that of a shorter key",
        (6,),
        "Frontier and inserted key disagree by a page, as where a key has a token less than its row.",
        lambda p: p.edit(
            commit.insert_own, ("dead=request.frontier // page", "dead=max(0, request.frontier // page - 1)")
        ),
        Audit("mapping", "node_created", "later", ("node", "pages")),
    ),
    Variant(
        "the volatile last page is published at the end",
        (7,),
        "A finish publishes the page that its last token does not fill.",
        lambda p: p.edit(
            commit.publish, ("request.computed // page * page", "-(-request.computed // page) * page")
        ),
        Audit("conservation", "pages_freed", "in its transaction", ("pages",)),
    ),
    Variant(
        "the volatile last page is published in a commit",
        (7,),
        "A commit publishes the page that is still being written.",
        lambda p: p.edit(Request.commit, ("end = upto // page * page", "end = -(-upto // page) * page")),
        Audit("well-formed", "node_created", after="in its transaction", names=("node",)),
    ),
    Variant(
        "no split where the protected part ends",
        (8,),
        "A tombstone that is protected in part is recovered as a whole.",
        lambda p: p.edit(Insertion._pass, ("split(self.ledger, node, row.base * page)", "pass")),
        Audit("well-formed", "swa_recovered", "here", ("node",)),
        (
            Course(tales.protected_inside_a_tombstone),
            Course(tales.protected_inside_a_tombstone, page=4, window=8),
        ),
    ),
    Variant(
        "the protected part is freed with the old Full",
        (8,),
        "A recovery adopts the kept head of a node again and frees the pages that it has just adopted.",
        adopt_the_protected_part,
        Audit("locked-full", "swa_recovered", "here", ("node", "holders", "pages")),
    ),
    Variant(
        "a grown prefix keeps the old lease in its row",
        (9,),
        "A refresh changes row and length and leaves the request on the lease that it gives back.",
        keep_the_old_lease,
        Audit("lock-order", "request_row_changed", "here", ("request",)),
    ),
    Variant(
        "a grown prefix is not in the row",
        (9,),
        "A refresh changes the lease and leaves the row as it was.",
        lambda p: p.edit(
            Request.refresh, ("lease.id, 0, pages, len(pages))", "lease.id, 0, pages[:0], state.row_pages)")
        ),
        Audit("row-safety", "request_row_changed", names=("node", "request")),
    ),
    Variant(
        "a grown prefix is not in the lengths",
        (9,),
        "A refresh changes lease and row and leaves the lengths of the request as they were.",
        lambda p: p.edit(
            Request.refresh, ("start_progress(state, found,", "(lambda *left: None)(state, found,")
        ),
        Walk("row-safety"),
    ),
    Variant(
        "a commit inserts the protected part again",
        (10,),
        "A second commit offers the row from its first token on, pages that are the tree's included.",
        insert_all_again,
        Audit("locked-full", "pages_freed", "in its transaction", ("node", "holders", "pages")),
        LIVES[2:],
    ),
)
