"""Faults of eviction and of identity: families 25 to 30."""

from kvledger.core import eviction, locking, matching
from kvledger.core.insertion import Insertion
from kvledger.core.recency import Recency
from tests.faults import test_families_core
from tests.planted import probes_work, tales
from tests.planted.evidence import Course
from tests.planted.planting import Planting
from tests.planted.variant import QUIET_LIVES, Audit, Named, Probe, Variant

USED = (
    Course(tales.a_used_one_and_a_cold_one, quiet=True),
    Course(tales.a_used_one_and_a_cold_one, page=4, window=8),
)
TOUCH = "ledger.apply(NodeTouched(tuple(n.id for n in window), state.ticks(len(window))))"


def touch_nothing(p: Planting) -> None:
    """A lock leaves the stamps of its window as they are."""
    p.edit(locking.lock, (TOUCH, "pass"))


def touch_every_ancestor(p: Planting) -> None:
    """A lock touches its path from the root on."""
    p.edit(
        locking.lock,
        (
            TOUCH,
            "path = list(window)\n"
            "        while not parent_of(path[0]).is_root:\n"
            "            path.insert(0, parent_of(path[0]))\n"
            "        ledger.apply(NodeTouched(tuple(n.id for n in path), state.ticks(len(path))))",
        ),
    )


def cascade_for_full_alone(p: Planting) -> None:
    """SWA eviction deletes a leaf and looks no further."""
    right = (
        "if not node.children and not node.full_lock:\n"
        "            gone_full, gone_swa = _delete_with_ancestors(ledger, node)"
    )
    wrong = (
        "if not node.children and not node.full_lock:\n"
        "            gone_full, gone_swa = len(node.full), len(node.swa)\n"
        "            delete(ledger, node, Cause.CAPACITY)"
    )
    p.edit(eviction.evict, (right, wrong))


def take_locked_swa(p: Planting) -> None:
    """The queue of SWA keeps nodes that are locked, and gives them away."""
    p.edit(Recency.next_swa, ("if node.swa is None or node.swa_lock:", "if node.swa is None:"))
    p.edit(Recency._queue_offered, ("and not node.swa_lock and", "and"))


NEWEST = (
    "max((n for n in state.nodes.values() if not n.children and not n.full_lock), "
    "key=lambda n: n.stamp, default=None)"
)
HELD = (Course(tales.held_above_a_leaf, quiet=True), Course(tales.held_above_a_leaf, page=4, window=8))

VARIANTS = (
    Variant(
        "a hit refreshes nothing",
        (25,),
        "A lock is taken on a path whose window nobody touches, and the hot node goes first.",
        touch_nothing,
        Audit("recency", "lock_acquired", names=("node",)),
    ),
    Variant(
        "a hit refreshes every ancestor",
        (25,),
        "The whole path up to the root is touched, and nothing old ever goes.",
        touch_every_ancestor,
        Audit("recency", "lock_acquired", after="later", names=("node",)),
    ),
    Variant(
        "an insert refreshes nothing",
        (25,),
        "What is published again stays as old as it was.",
        lambda p: p.edit(Insertion._touch, ("if self.touch and", "if False and")),
        Audit("recency", "prefix_inserted"),
        USED,
    ),
    Variant(
        "an insert refreshes nothing above its start",
        (25,),
        "A finish leaves the window of its row that lies under the lock as old as it was.",
        lambda p: p.edit(Insertion.run, ("self._touch_above(node)", "pass")),
        Audit("recency", "prefix_inserted", names=("node",)),
    ),
    Variant(
        "a parent left a leaf keeps its stamp",
        (25,),
        "What was used through a leaf that is gone counts as unused.",
        lambda p: p.edit(eviction.delete, ("node.stamp if inherits else None", "None")),
        Audit("recency", "node_deleted", names=("node",)),
    ),
    Variant(
        "stamps fall from root to leaf",
        (25,),
        "A leaf is touched before its parent.",
        lambda p: p.edit(locking.lock, ("window.reverse()", "pass")),
        Audit("recency", "node_touched", names=("node",)),
    ),
    Variant(
        "the newest leaf goes first",
        (25,),
        "Full eviction takes leaves in the wrong order.",
        lambda p: p.edit(eviction.evict, ("state.recency.next_full()", NEWEST)),
        Named(test_families_core.test_25_a_hit_refreshes_the_window_and_the_end_and_nothing_older),
    ),
    Variant(
        "the SWA inside a window goes first",
        (25,),
        "SWA eviction does not spare nodes that lie within a window of a place where rows part.",
        lambda p: p.edit(Recency._is_inside, ("limit = node.end + self._window", "limit = node.end")),
        Named(
            test_families_core.test_25_swa_inside_a_window_of_a_place_further_down_is_inside_and_goes_by_its_stamp
        ),
    ),
    Variant(
        "no cascade",
        (26,),
        "Tombstones that eviction leaves childless stay.",
        lambda p: p.edit(eviction._delete_with_ancestors, ("while not parent.is_root", "while False")),
        Audit("credit", "node_deleted", names=("node",)),
    ),
    Variant(
        "a cascade for Full eviction alone",
        (26,),
        "Where SWA eviction deletes a leaf its tombstone ancestors stay.",
        cascade_for_full_alone,
        Audit("credit", "evicted", after="in its transaction", names=("node",)),
    ),
    Variant(
        "a cascade takes what is held",
        (26,),
        "A tombstone ancestor is deleted although somebody has locked it.",
        lambda p: p.edit(eviction._delete_with_ancestors, (" and not parent.full_lock", "")),
        Audit("locked-full", "node_deleted", names=("node", "holders", "pages")),
        HELD,
    ),
    Variant(
        "eviction takes a locked leaf",
        (22, 26),
        "The next leaf of the queue is taken whether it is locked or not.",
        lambda p: p.edit(
            Recency.next_full, ("if not node.children and not node.full_lock:", "if not node.children:")
        ),
        Audit("locked-full", "node_deleted", after="later", names=("node", "holders", "pages")),
        QUIET_LIVES,
    ),
    Variant(
        "a Full-locked leaf is deleted for its SWA",
        (26,),
        "SWA eviction deletes a leaf of which a running request has locked the Full side.",
        lambda p: p.edit(
            eviction.evict, ("if not node.children and not node.full_lock:", "if not node.children:")
        ),
        Audit("locked-full", "node_deleted", names=("node", "holders", "pages")),
    ),
    Variant(
        "SWA eviction takes what is locked",
        (22,),
        "A node under an SWA lock becomes a tombstone.",
        take_locked_swa,
        Audit("locked-swa", "swa_tombstoned", after="later", names=("node", "holders", "pages")),
        QUIET_LIVES,
    ),
    Variant(
        "an eviction counts what was asked for",
        (27,),
        "The summary of an eviction repeats the question.",
        lambda p: p.edit(
            eviction.evict,
            (
                "swa_pages * page, full * page, swa * page))",
                "swa_pages * page, full_pages * page, swa_pages * page))",
            ),
        ),
        Audit("credit", "evicted"),
    ),
    Variant(
        "the cascade is not counted",
        (27,),
        "Pages that ancestors give up are not in the count, and the caller frees more than it has to.",
        lambda p: p.edit(eviction._delete_with_ancestors, ("full += len(parent.full)", "pass")),
        Audit("credit", "evicted", after="later"),
    ),
    Variant(
        "an eviction stops too early",
        (27,),
        "One page less than was asked for is freed.",
        lambda p: p.edit(eviction.evict, ("while full < full_pages:", "while full < full_pages - 1:")),
        Audit("credit", "evicted", names=("node",)),
        USED,
    ),
    Variant(
        "namespaces meet",
        (28,),
        "A prefix is looked for under the name that joined names begin with.",
        lambda p: p.edit(
            matching.walk, ("state.roots.get(namespace)", 'state.roots.get("") or state.roots.get(namespace)')
        ),
        Audit("namespace", "prefix_matched", after="later", names=("node",)),
    ),
    Variant(
        "tokens are compared by their first page",
        (29,),
        "An edge counts as matched where its first page does, as it would by a hash of that.",
        lambda p: p.edit(
            matching.walk,
            ("if offset + size > limit or not key.startswith(edge, offset):", "if offset + size > limit:"),
        ),
        Probe(probes_work.served, "the reads: "),
    ),
    Variant(
        "the namespace is missing from the lock",
        (30,),
        "A lock is taken in the namespace without a name.",
        lambda p: p.edit(
            locking.lock, ("LockAcquired(lease, node_id, namespace,", 'LockAcquired(lease, node_id, "",')
        ),
        Audit("window-match", "lock_acquired", after="here"),
    ),
)
