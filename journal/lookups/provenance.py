"""Where the pages of a node came from: the events that brought its Full and its SWA pages, through splits."""

from dataclasses import dataclass

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import (
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    RecoveryMode,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.ids import NodeId, Seq
from kvledger.journal.lookups.births import Chapter, chapters
from kvledger.journal.lookups.questions import EventFilter, FoundEvent, LookUpSource

_TELLING = (NodeCreated, NodeSplit, NodeDeleted, SwaTombstoned, SwaRecovered)
"""Events that bring a node pages, or take them."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """What made a node's pages what they are.

    `full` and `swa` are the events that brought the pages it has: `node_created` or `swa_recovered`, of
    this node or of one it was cut from. `swa` is None for a tombstone. `steps` is the whole story in order,
    the splits on the way and SWA pages that were lost again included. It is `complete` if it begins with a
    `node_created`; where older events are not stored, what they brought is None here.
    """

    node: NodeId
    full: FoundEvent | None
    swa: FoundEvent | None
    steps: tuple[FoundEvent, ...]
    complete: bool


def provenance(source: LookUpSource, node: int, *, upto_seq: int | None = None) -> Provenance:
    """The story of the pages that `node` has at `upto_seq` (None: at the end).

    Raises InvalidArgument where it is known that there is no such node then. Cost: O(log(nodes)) look-ups
    and the events of the node, for it and for each that it was cut from; in files as many walks.
    """
    story = chapters(source, node, upto_seq=upto_seq)
    complete = story[0].birth is not None
    steps: list[FoundEvent] = []
    full: FoundEvent | None = None
    swa: FoundEvent | None = None
    for chapter in story:
        for found in _steps(source, chapter, upto_seq):
            event = found.event
            if isinstance(event, NodeDeleted):
                raise _no_node(node, upto_seq)
            if isinstance(event, NodeSplit) and found.seq != chapter.until:
                continue  # it took a head that is no part of this story
            steps.append(found)
            if isinstance(event, NodeCreated):
                full, swa = found, None if event.swa_pages is None else found
            elif isinstance(event, SwaRecovered):
                full = found if event.mode is RecoveryMode.ADOPT_INCOMING else full
                swa = found
            elif isinstance(event, SwaTombstoned):
                swa = None
    made = story[-1].birth
    if (made is None and not steps and source.beginning().seq == 1) or (made is not None and made.undone):
        raise _no_node(node, upto_seq)
    return Provenance(NodeId(node), full, swa, tuple(steps), complete)


def _steps(source: LookUpSource, chapter: Chapter, upto_seq: int | None) -> list[FoundEvent]:
    last = upto_seq if chapter.until is None else chapter.until
    wanted = EventFilter(
        kinds=[kind.kind for kind in _TELLING],
        nodes=(chapter.node,),
        undone=False,
        last_seq=None if last is None else Seq(last),
    )
    return list(source.find(wanted))


def _no_node(node: int, upto_seq: int | None) -> InvalidArgument:
    where = "at the end" if upto_seq is None else f"at seq {upto_seq}"
    return InvalidArgument(f"there is no node {node} {where}")
