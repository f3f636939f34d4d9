"""Faults of locks: families 19 to 24."""

from kvledger.core import commit, locking
from kvledger.core import reset as reset_module
from kvledger.core.cache import HybridCache
from kvledger.core.changes import locks, nodes
from kvledger.core.errors import StaleLease
from kvledger.core.requests import Request
from tests.planted import tales
from tests.planted.evidence import Course
from tests.planted.variant import QUIET_LIVES, Audit, Raised, Variant, Walk

CALLERS = (Course(tales.two_callers, quiet=True),)
SPLIT = (
    Course(tales.a_lock_and_a_shorter_one, quiet=True),
    Course(tales.a_lock_and_a_shorter_one, page=4, window=8, full=160, swa=160, quiet=True),
)
NO_ROOM = (Course(tales.refused_for_want_of_room),)

OTHER = "next(other for other in self._ledger.state.leases.values() if other.node is lease.node)"

VARIANTS = (
    Variant(
        "a release takes whatever lock lies on the node",
        (19,),
        "A request that ends gives back the oldest lock on its node, whoever holds it.",
        lambda p: p.edit(
            Request._give_up, ("release(self._ledger, lease)", f"release(self._ledger, {OTHER})")
        ),
        Audit("lock-order", "request_closed"),
    ),
    Variant(
        "a release walks to the root on the SWA side",
        (19,),
        "A release lowers the SWA locks up to the root, those of others with them.",
        lambda p: p.edit(
            locks._released,
            ("_unlock(state, lease.node, lease.swa_from, full", "_unlock(state, lease.node, 0, full"),
        ),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "a release walks to the root on the SWA side, and room is made",
        (19,),
        "The same, where nothing but its consequence can tell: eviction takes SWA under lock.",
        lambda p: p.edit(
            locks._released,
            ("_unlock(state, lease.node, lease.swa_from, full", "_unlock(state, lease.node, 0, full"),
        ),
        Audit("locked-swa", "swa_tombstoned", after="later", names=("node", "holders", "pages")),
        QUIET_LIVES,
    ),
    Variant(
        "an early SWA release is not noted",
        (20,),
        "The lease goes on saying that its SWA half is held, which the end releases a second time.",
        lambda p: p.edit(locks._swa_released, ("lease.swa_held = False", "pass")),
        Audit("lock-order", "lock_released", "here", ("request",)),
        QUIET_LIVES,
    ),
    Variant(
        "an early SWA release leaves the counts",
        (20,),
        "The lease notes that its SWA half was given back, and the nodes keep their SWA locks.",
        lambda p: p.edit(
            locks._swa_released, ("_unlock(state, lease.node, lease.swa_from, full=False, swa=True)", "pass")
        ),
        Audit("credit", "evicted", "later", ("node",)),
        QUIET_LIVES[2:],
    ),
    Variant(
        "a split forgets the Full locks",
        (21,),
        "The head of a split node is unlocked.",
        lambda p: p.edit(nodes._split, ("head.full_lock = node.full_lock", "head.full_lock = 0")),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "a split forgets the Full locks, and room is made",
        (21,),
        "The same, where nothing but its consequence can tell.",
        lambda p: p.edit(nodes._split, ("head.full_lock = node.full_lock", "head.full_lock = 0")),
        Audit("credit", "evicted", "later", ("node",)),
        QUIET_LIVES[1:],
    ),
    Variant(
        "a split forgets the SWA locks",
        (21,),
        "The head of a split node has no SWA lock.",
        lambda p: p.edit(nodes._split, ("head.swa_lock = node.swa_lock", "head.swa_lock = 0")),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "a split forgets the SWA locks, and room is made",
        (21,),
        "The same, where nothing but its consequence can tell.",
        lambda p: p.edit(nodes._split, ("head.swa_lock = node.swa_lock", "head.swa_lock = 0")),
        Audit("locked-swa", "swa_tombstoned", after="later", names=("node", "holders", "pages")),
        SPLIT,
    ),
    Variant(
        "an SWA lock begins inside a node",
        (21,),
        "The node in which the window begins is not split there, and a later split moves the boundary.",
        lambda p: p.edit(locking.lock, ("if window[-1].start < swa_from:", "if False:")),
        Audit("window-match", "lock_acquired", after="in its transaction", names=("node",)),
    ),
    Variant(
        "the matched node itself is not locked",
        (22,),
        "The walk that locks begins at the parent.",
        lambda p: p.edit(
            locks._acquired,
            (
                "_lock(state, node, event.swa_from,",
                "_lock(state, None if node is None else node.parent, event.swa_from,",
            ),
        ),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "the matched node itself is not locked, and room is made",
        (22,),
        "The same, where nothing but its consequence can tell: a locked node is deleted.",
        lambda p: p.edit(
            locks._acquired,
            (
                "_lock(state, node, event.swa_from,",
                "_lock(state, None if node is None else node.parent, event.swa_from,",
            ),
        ),
        Audit("locked-full", "node_deleted", after="later", names=("node", "holders", "pages")),
        QUIET_LIVES[1:],
    ),
    Variant(
        "a release unlocks twice",
        (22,),
        "Counts go below those of the leases that are left, and below zero.",
        lambda p: p.edit(
            locks._released,
            (
                "return lease",
                "_unlock(state, lease.node, lease.swa_from, full=True, swa=False)\n    return lease",
            ),
        ),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "resuming locks once more",
        (23,),
        "A refresh takes the new lock and keeps the old one.",
        lambda p: p.edit(Request.refresh, ("release(ledger, old)", "pass")),
        Audit("lock-order", "request_row_changed", after="here", names=("request",)),
    ),
    Variant(
        "a commit keeps the old lock",
        (23,),
        "The lock moves to the new end and stays at the old one as well.",
        lambda p: p.edit(commit.move_lock, ("release(ledger, old_lease)", "pass")),
        Audit("lock-order", "request_row_changed", after="here", names=("request",)),
    ),
    Variant(
        "a request closes and stays locked",
        (23,),
        "An abort frees the pages and forgets the lock.",
        lambda p: p.edit(
            Request._give_up,
            ("release(self._ledger, lease)", "cause is Cause.ABORT or release(self._ledger, lease)"),
        ),
        Audit("lock-order", "request_closed", names=("request",)),
    ),
    Variant(
        "a refused extension stays reserved",
        (24,),
        "The slots that a request asked for in vain count as its own.",
        lambda p: p.edit(
            Request.extend,
            ("ledger = self._ledger", "ledger = self._ledger\n    state.reserved += n\n    n = 0"),
        ),
        Walk("row-safety"),
        NO_ROOM,
    ),
    Variant(
        "a waiting request is nobody's owner",
        (24,),
        "A reset closes the requests that run and forgets those that wait.",
        lambda p: p.edit(
            reset_module.reset,
            (
                "ledger.apply(RequestClosed(request.id, Cause.RESET))",
                "lease is None or ledger.apply(RequestClosed(request.id, Cause.RESET))",
            ),
        ),
        Audit("well-formed", "cache_reset"),
    ),
    Variant(
        "an SWA lock is longer than the window",
        (21, 25),
        "A lock pins all the SWA of its path.",
        lambda p: p.edit(locking.lock, ("swa_from = max(0, length - state.window_tokens)", "swa_from = 0")),
        Audit("window-match", "lock_acquired", names=("node",)),
    ),
    Variant(
        "a lease of an older generation is released",
        (19,),
        "After a reset a release is carried out, on a node of the new tree.",
        lambda p: p.edit(
            HybridCache._live_lease,
            ("if state is lease._state:", "if state is not None:"),
            (
                "state = self._state.leases.get(lease.id)",
                "state = self._state.leases.get(lease.id) or next(iter(self._state.leases.values()), None)",
            ),
        ),
        Raised(StaleLease, "was released before"),
        (Course(tales.a_reset_under_locks),),
    ),
)
