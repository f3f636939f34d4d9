"""Faults of the allocator and the mapping: families 11 to 18."""

from kvledger.core.changes import nodes
from kvledger.core.device_pools import DevicePools
from kvledger.core.free_pages import FreePages
from kvledger.core.page_table import PageTable
from kvledger.tools.scheduler.loop import Scheduler
from tests.planted import probes_work, tales
from tests.planted.evidence import Course
from tests.planted.planting import Planting
from tests.planted.variant import QUIET_LIVES, Audit, Probe, Variant, Walk

IN_ONE = (
    Course(tales.healed_before_its_free_took_effect, window=4),
    Course(tales.healed_before_its_free_took_effect, page=4, window=8, full=128, swa=128),
)
TWICE = (Course(tales.named_twice, quiet=True),)


def keep_stale_mappings(p: Planting) -> None:
    """Frees on the SWA side leave the mapping as it was."""
    p.edit(PageTable.free_swa_pages, ("put_at(self.mapping, at, 0)", "pass"))


def bring_mappings_along(p: Planting) -> None:
    """Neither a free nor an allocation clears an entry."""
    keep_stale_mappings(p)
    p.edit(PageTable.hold, ("put_at(self.mapping, at, swa)", "self.mapping[full[swa != 0]] = swa[swa != 0]"))


def resolve_at_the_end(p: Planting) -> None:
    """What a free names on the SWA side is looked up when the transaction ends."""
    p.edit(
        PageTable.free_swa_pages,
        ("put_at(self.mapping, at, 0)", "self.mapping[at] = 0 if reusable else swa"),
        ("self.deferred_swa.append(swa)", "self.deferred_swa.append(full)"),
    )
    p.edit(
        PageTable.settle,
        (
            "for swa in self.deferred_swa:",
            "late = concatenate(self.deferred_swa)\n    found = self.mapping[late]\n"
            "    self.mapping[late] = 0\n    for swa in [found]:",
        ),
        ("[*self.deferred_swa,", "[found,"),
    )


VARIANTS = (
    Variant(
        "a tombstone keeps its mapping",
        (11,),
        "Eviction takes the SWA of a node and leaves the mapping of its Full pages.",
        lambda p: p.edit(
            nodes._tombstoned,
            ("return before", "state.pages.mapping[event.full_pages] = event.swa_pages\n    return before"),
        ),
        Audit("checkpoint", "checkpoint"),
    ),
    Variant(
        "a free through a stale mapping",
        (11, 14),
        "The mapping of pages whose SWA was given back stays, and the free of the page names it again.",
        keep_stale_mappings,
        Audit("mapping", "pages_freed", names=("pages",)),
        QUIET_LIVES,
    ),
    Variant(
        "a recovery frees both sides",
        (1, 11),
        "Incoming Full pages of a locked recovery are freed with the SWA that it has just taken over.",
        lambda p: p.edit(
            nodes._recovered,
            (
                "pages.remap(event.incoming_full, event.node_full, event.swa_pages)",
                "pages.remap(event.incoming_full, event.node_full, event.swa_pages)\n"
                "        pages.deferred_swa.append(event.swa_pages)",
            ),
        ),
        Audit("conservation", "pages_allocated", "here", ("pages",)),
        QUIET_LIVES,
    ),
    Variant(
        "grouped frees are resolved at the end",
        (12,),
        "Which SWA page a free means is looked up at the end, after a recovery has changed it.",
        resolve_at_the_end,
        Audit("mapping", "pages_freed", "in its transaction", ("pages",)),
        IN_ONE,
    ),
    Variant(
        "the end of a group frees twice",
        (13,),
        "Deferred pages stay on their list when they have been freed, and are freed by the next group again.",
        lambda p: p.edit(PageTable.settle, ("self.deferred_full.clear()", "pass")),
        Audit("conservation", "pages_allocated", names=("pages",)),
        QUIET_LIVES[2:],
    ),
    Variant(
        "an undone free stays deferred",
        (13,),
        "A rollback takes a free back and leaves the pages on the list of those that the end frees.",
        lambda p: p.edit(PageTable.unfree_full_pages, ("self.deferred_full.pop()", "pass")),
        Audit("conservation", "pages_allocated", "here", ("pages",)),
    ),
    Variant(
        "the mirror gets one entry of a change",
        (14,),
        "Of a change of the mapping the device hears of the first page alone.",
        lambda p: p.edit(
            DevicePools._update_on_host,
            (
                "put_at(mirror, index_of(mapped), 0 if swa is None else swa)",
                "mirror[mapped[:1]] = 0 if swa is None else swa[:1]",
            ),
        ),
        Walk("mapping"),
    ),
    Variant(
        "a recycled page brings its mapping along",
        (15,),
        "An allocation writes the entries that have a peer, and frees leave theirs.",
        bring_mappings_along,
        Audit("mapping", "pages_freed", names=("pages",)),
        QUIET_LIVES,
    ),
    Variant(
        "the padding page is handed out",
        (16,),
        "The free set begins with page 0.",
        lambda p: p.edit(FreePages.__init__, ("self._fresh = 1", "self._fresh = 0")),
        Audit("well-formed", "pages_allocated"),
    ),
    Variant(
        "a page that is named twice is freed twice",
        (17,),
        "A call that names a page twice is carried out.",
        lambda p: p.edit(PageTable.check_owned, ("if len(twice):", "if False:")),
        Audit("conservation", "pages_freed", names=("pages",)),
        TWICE,
    ),
    Variant(
        "a page is freed and reused in one transaction",
        (12,),
        "Pages of requests and callers go on the reuse list, like those that eviction took.",
        lambda p: p.edit(
            PageTable.free_full_pages,
            (
                "self.deferred_full.append(full)",
                "self.deferred_full.append(full)\n        self.reuse_full.append(full)",
            ),
        ),
        Audit("conservation", "pages_allocated", names=("pages",)),
        (Course(tales.freed_and_taken_in_one, quiet=True), Course(tales.freed_and_taken_in_one, page=4)),
    ),
    Variant(
        "an allocation hands out a page that is held",
        (15, 16),
        "The free set gives a page out and keeps it.",
        lambda p: p.edit(FreePages.take, ("self._fresh += missing", "self._fresh += max(1, missing - 1)")),
        Audit("conservation", "pages_allocated"),
        QUIET_LIVES,
    ),
    Variant(
        "the window slides under a launched batch",
        (18,),
        "What the host gives back after a step it gives back while the step runs, and mapping rows change.",
        lambda p: p.edit(
            Scheduler._step,
            (
                "self._forward.run(batch)",
                "for work in batch:\n            work.job.live.computed(work.end)\n"
                "            work.job.live.slide()\n        self._forward.run(batch)",
            ),
        ),
        Probe(probes_work.served, "MissingSwa"),
    ),
    Variant(
        "a remapped page keeps its own mapping",
        (1, 11),
        "A locked recovery maps the kept pages and leaves the mapping of the incoming ones.",
        lambda p: p.edit(PageTable.remap, ("put_at(self.mapping, incoming, 0)", "pass")),
        Audit("checkpoint", "checkpoint", after="later"),
    ),
)
