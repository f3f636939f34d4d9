"""conservation and mapping once more, by counting: the whole state is walked at the end of a journal.

Events are checked one by one in `pages.py`; this is the second opinion, which does not care how the
state came about.
"""

import numpy as np

from kvledger.journal.audit.check import Check


class Recount(Check):
    """What the tree, the mapping and the places say about the pages must be the same. Cost O(state)."""

    def end(self) -> None:
        """Walk every node, then count both pools."""
        state = self.state
        for node in state.nodes.values():
            strayed = state.full_at.take(node.full, mode="clip") != node.place
            if strayed.any():
                self.findings.add(
                    "conservation", "pages of a node are elsewhere", node=node.id, pages=node.full[strayed]
                )
            wrong = state.mapping.take(node.full, mode="clip") != (0 if node.swa is None else node.swa)
            if wrong.any():
                self.findings.add(
                    "mapping", "a node and the mapping differ", node=node.id, pages=node.full[wrong]
                )
        self._count()

    def _count(self) -> None:
        state = self.state
        bound = sum(len(node.full) for node in state.nodes.values())
        mapped = int(np.count_nonzero(state.mapping))
        full, swa = state.places()
        if full.tree != bound or full.free + full.deferred + full.tree + full.held != full.total:
            self.findings.add(
                "conservation",
                f"the tree names {bound} Full pages; {full.tree} are bound to it, {full.free} free, "
                f"{full.deferred} deferred, {full.held} held, of {full.total}",
            )
        if swa.tree + swa.held != mapped or swa.free + swa.deferred + swa.tree + swa.held != swa.total:
            self.findings.add(
                "conservation",
                f"{mapped} Full pages map to an SWA page; {swa.tree} SWA pages are in the tree, "
                f"{swa.held} held, {swa.free} free, {swa.deferred} deferred, of {swa.total}",
            )
