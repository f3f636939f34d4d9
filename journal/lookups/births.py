"""Which event gave an id, and from which node a node was cut.

Ids of nodes and leases rise with the seq of the event that gives them (docs/events.md), undone ones
included. No index knows them, but the one by kind is in order of seq, and so in order of the ids too: an id
is found by bisection. Files have no index: one walk finds any number of ids.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from kvledger.core.events import LockAcquired, NodeCreated, NodeSplit
from kvledger.core.ids import NodeId, Seq
from kvledger.journal.lookups.questions import EventFilter, FoundEvent, LookUpSource


@dataclass(frozen=True, slots=True)
class Chapter:
    """A node whose pages a later node has: what befell them up to `until`, where the later one was cut from
    it.

    `birth` is the event that made the node, None where it is not stored here; `until` is None for the node
    itself. Both ends are included.
    """

    node: NodeId
    birth: FoundEvent | None
    until: Seq | None


def acquisitions(
    source: LookUpSource, leases: Collection[int], *, upto_seq: int | None = None
) -> dict[int, FoundEvent]:
    """The `lock_acquired` event of each lease, as far as it is stored at or before `upto_seq`.

    Cost: O(log(lock_acquired events)) look-ups for each lease; in files one walk.
    """
    return _given(source, (LockAcquired.kind,), lambda event: int(event.lease), leases, upto_seq)


def birth(source: LookUpSource, node: int, *, upto_seq: int | None = None) -> FoundEvent | None:
    """The event that made a node, `node_created` or the `node_split` of which it is the head; None where that
    is not stored at or before `upto_seq`. Cost: O(log(events of these kinds)) look-ups; in files one walk.
    """
    return _given(source, (NodeCreated.kind, NodeSplit.kind), _node_given, (node,), upto_seq).get(node)


def chapters(source: LookUpSource, node: int, *, upto_seq: int | None = None) -> list[Chapter]:
    """The node and the nodes it was cut from, one from the other, oldest first. Cost: a `birth` for each."""
    found: list[Chapter] = []
    until: Seq | None = None
    while True:
        made = birth(source, node, upto_seq=upto_seq if until is None else until)
        found.append(Chapter(NodeId(node), made, until))
        if made is None or not isinstance(made.event, NodeSplit):
            return found[::-1]
        node, until = made.event.node, made.seq


def _node_given(event: Any) -> int:
    return int(event.head if isinstance(event, NodeSplit) else event.node)


def _given(
    source: LookUpSource,
    kinds: Sequence[str],
    id_of: Callable[[Any], int],
    wanted: Collection[int],
    upto_seq: int | None,
) -> dict[int, FoundEvent]:
    """By id, the events of these kinds that gave the ids that are wanted."""
    found: dict[int, FoundEvent] = {}
    if not wanted:
        return found
    last = source.head().seq if upto_seq is None else min(upto_seq, source.head().seq)
    if not source.indexed:
        missing = set(wanted)
        for given in source.find(EventFilter(kinds=kinds, last_seq=Seq(last))):
            if id_of(given.event) in missing:
                found[id_of(given.event)] = given
                missing.discard(id_of(given.event))
                if not missing:
                    break
        return found
    among = EventFilter(kinds=kinds, last_seq=Seq(last))
    below = next(source.find(among, limit=1), None)
    above = next(source.find(among, limit=1, newest_first=True), None)
    if below is None or above is None:
        return found
    for id in sorted(set(wanted)):
        # What is greater stands behind: the next search goes on from here.
        below, one = _search(source, kinds, id_of, id, below, above)
        if one is not None:
            found[id] = one
    return found


def _search(
    source: LookUpSource,
    kinds: Sequence[str],
    id_of: Callable[[Any], int],
    id: int,
    below: FoundEvent,
    above: FoundEvent,
) -> tuple[FoundEvent, FoundEvent | None]:
    """The event that gave `id`, from `below` to `above`, and one that gave none that is greater.

    The place is guessed from the ids at both ends, and halved every other time: about as many steps as the
    logarithm at worst, a few where ids come at an even pace.
    """
    for end in (below, above):
        if id_of(end.event) == id:
            return end, end
    if not id_of(below.event) < id < id_of(above.event):
        return below, None
    guessed = False
    low, high = int(below.seq) + 1, int(above.seq) - 1
    while low <= high:
        if guessed:
            middle = (low + high) // 2
        else:
            pace = (above.seq - below.seq) / (id_of(above.event) - id_of(below.event))
            middle = max(low, min(high, below.seq + int((id - id_of(below.event)) * pace)))
        guessed = not guessed
        among = EventFilter(kinds=kinds, first_seq=Seq(middle), last_seq=Seq(high))
        probe = next(source.find(among, limit=1), None)
        if probe is None:
            high = middle - 1
        elif id_of(probe.event) == id:
            return probe, probe
        elif id_of(probe.event) < id:
            below, low = probe, int(probe.seq) + 1
        else:
            above, high = probe, middle - 1
    return below, None
