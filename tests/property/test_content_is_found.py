"""One byte of KV that changes: found where a lock covers it, by seq, node and page, and nowhere else.

Seeded walks over small fingerprinting caches; no step writes KV. Somewhere between two operations one byte of
one page changes, the walk goes on, and in the end every lock is given back. What has to be found is read off
the journal: the first look at that page after the change.
"""

import random
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvledger.core.events import KvFingerprinted, SwaTombstoned
from kvledger.journal.audit import Finding, Verdict, audit
from kvledger.journal.records import StoredEvent, number_transactions
from tests.property.twin import STEPS, Twin

BOUNDED = settings(max_examples=30, deadline=None, derandomize=True, print_blob=True)


@dataclass
class Walk:
    """A walk, and where each page stands at the moment at which a byte changes."""

    seed: int
    steps: int

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.twin = Twin.drawn(self.chance.randrange, fingerprints=True)
        self.go(self.steps)
        self.written = len(self.twin.sink.transactions)

    def go(self, steps: int) -> None:
        """So many steps; no transaction is open afterwards."""
        for _ in range(steps):
            getattr(self.twin, self.chance.choice(STEPS))(self.chance.randrange)
            if not self.twin.stack:
                self.twin.model.settle()
        while self.twin.stack:
            self.twin.end(self.chance.randrange)
        self.twin.model.settle()

    def locked(self) -> tuple[list[int], list[int]]:
        """Full pages of locked nodes, and those SWA pages that stand beside one."""
        page = self.twin.page
        nodes = [node for node in self.twin.cache.nodes() if node.full_lock]
        full = [int(slot) // page for node in nodes for slot in node.full_slots[::page]]
        live = [node.swa_slots for node in nodes if node.swa_slots is not None]
        return full, [int(slot) // page for slots in live for slot in slots[::page]]

    def others(self, taken: list[int], pages: int) -> list[int]:
        """All pages of a pool but these: free, held, padding, or of nodes that nobody locks."""
        return sorted(set(range(pages + 1)) - set(taken))

    def change(self, page: int, *, swa: bool) -> None:
        """Flip bits of one byte of a page."""
        pool, size = self.twin.cache.pool, self.twin.page
        tensor = self.chance.choice([pool.k, pool.v])[1 if swa else 0]
        data = tensor[page * size : (page + 1) * size].view(torch.uint8).flatten()
        data[self.chance.randrange(len(data))] ^= 1 + self.chance.randrange(255)

    def verdict(self, more: int) -> Verdict:
        """Go on, give every lock back, and let the audit read all of it."""
        self.go(more)
        self.twin.cache.reset()
        self.stored = number_transactions(self.twin.sink.transactions)
        return audit(self.stored)

    def after_change(self) -> list[StoredEvent]:
        """What was kept of all that was journaled since the byte changed."""
        return [one for t in self.stored[self.written :] for one in t.events if not one.undone]

    def first_look(self, full_page: int, *, swa: bool) -> StoredEvent | None:
        """The first fingerprint of a page; None where its SWA is given up before."""
        for one in self.after_change():
            event = one.event
            if isinstance(event, SwaTombstoned) and swa and full_page in event.full_pages:
                return None
            if isinstance(event, KvFingerprinted) and full_page in event.full_pages:
                return one
        return None


def names(finding: Finding, look: StoredEvent, page: int, side: str) -> bool:
    """Whether a finding is of this look at this page."""
    assert isinstance(look.event, KvFingerprinted)
    return (
        finding.invariant == "locked-content"
        and (finding.seq, finding.node, finding.pages) == (look.seq, look.event.node, (page,))
        and finding.sentence.startswith(f"the {side} KV of a locked node is not what it was at seq ")
    )


WALKS = st.builds(Walk, st.integers(0, 2**32), st.integers(10, 60))
MORE = st.integers(0, 30)


@BOUNDED
@given(WALKS, MORE)
def test_a_byte_that_changes_in_a_locked_full_page_is_found_at_the_next_look(walk: Walk, more: int) -> None:
    full, _ = walk.locked()
    assume(full)
    page = walk.chance.choice(full)
    walk.change(page, swa=False)
    verdict = walk.verdict(more)
    look = walk.first_look(page, swa=False)
    assert look is not None
    (finding,) = verdict.findings
    assert names(finding, look, page, "Full")


@BOUNDED
@given(WALKS, MORE)
def test_a_byte_that_changes_in_locked_swa_is_found_unless_it_goes_first(walk: Walk, more: int) -> None:
    _, swa = walk.locked()
    assume(swa)
    swa_page = walk.chance.choice(swa)
    mapping = walk.twin.cache._state.pages.mapping
    page = int(np.flatnonzero(mapping == swa_page)[0])
    walk.change(swa_page, swa=True)
    verdict = walk.verdict(more)
    look = walk.first_look(page, swa=True)
    if look is None:
        assert verdict.findings == ()
    else:
        (finding,) = verdict.findings
        assert names(finding, look, page, "SWA")


@BOUNDED
@given(WALKS, MORE, st.booleans())
def test_a_byte_that_changes_where_nobody_holds_a_lock_is_accused_of_nothing(
    walk: Walk, more: int, swa: bool
) -> None:
    state = walk.twin.cache._state
    taken, pages = walk.locked()[swa], (state.config.full_pages, state.config.swa_pages)[swa]
    walk.change(walk.chance.choice(walk.others(taken, pages)), swa=swa)
    verdict = walk.verdict(more)
    assert (verdict.verdict, verdict.findings) == ("pass", ())
