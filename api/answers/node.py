"""All about one node: its slots, who locks it, whose KV it holds and where that came from."""

from kvledger.api.answers.leases import holders_of, locking
from kvledger.api.answers.slot import slots_of
from kvledger.api.answers.tree import brief_of, node_named
from kvledger.api.projection import LeaseBirths, Standing
from kvledger.api.schemas.common import OriginOut
from kvledger.api.schemas.tree import NodeOut
from kvledger.api.told.events import Teller, told_text
from kvledger.api.told.runs import runs_of
from kvledger.core.events import Origin
from kvledger.journal.lookups.provenance import provenance
from kvledger.journal.reader import JournalReader

HOLDERS_SHOWN = 50
"""Leases told of one node: the panel of a node shows some, the list of leases has them all."""

CHILDREN_SHOWN = 1_000
PATH_SHOWN = 1_000
"""Ids named in one answer; the tree has all of them."""

STEPS_SHOWN = 100
"""Events of a node's provenance, the last ones: its history has them all."""


def node_of(
    standing: Standing, node: int, *, reader: JournalReader, births: LeaseBirths, teller: Teller
) -> NodeOut:
    """One node. Raises a refusal (404) where it is not in the tree.

    Cost: O(nodes) once for each state, O(pages of the node), and look-ups for holders and provenance.
    """
    state = standing.state
    found = node_named(state, node)
    leases = locking(standing, found)
    story = provenance(reader, found.id, upto_seq=standing.at.seq)
    size = state.page_size
    return NodeOut(
        at=standing.at,
        node=brief_of(standing, found, hide=teller.hide),
        path=tuple(one.id for one in state.path(found))[-PATH_SHOWN:],
        child_ids=tuple(found.children)[:CHILDREN_SHOWN],
        tokens=teller.hide.tokens(found.tokens, state.token_policy, count=found.end - found.start),
        full_slots=runs_of(slots_of(found.full, size)),
        swa_slots=None if found.swa is None else runs_of(slots_of(found.swa, size)),
        full_pages=runs_of(found.full),
        swa_pages=None if found.swa is None else runs_of(found.swa),
        full_origin=_origin(found.full_origin),
        swa_origin=None if found.swa_origin is None else _origin(found.swa_origin),
        stamp=found.stamp,
        holders=holders_of(leases[:HOLDERS_SHOWN], births=births, upto_seq=standing.at.seq),
        holders_total=len(leases),
        provenance=tuple(teller.event(step) for step in story.steps[-STEPS_SHOWN:]),
    )


def _origin(origin: Origin) -> OriginOut:
    request = origin.request_id
    return OriginOut(request=None if request is None else told_text(request), epoch=origin.epoch)
