"""Events: by kind, node, request, transaction, seq and time, either way round."""

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Path, Query, Request

from kvledger.api.etags import immutable
from kvledger.api.problems import pruned, unknown
from kvledger.api.routes.dependencies import (
    KEPT,
    LIMIT,
    OF_A_JOURNAL,
    CursorParam,
    Limit,
    Opened,
    TellerDep,
)
from kvledger.api.routes.lists import OrderParam, Place, SeqParam, TimeParam, missing_before, page_of
from kvledger.api.schemas.common import SEQ_MAX, Page
from kvledger.api.schemas.events import EventOut
from kvledger.core.events import EVENTS
from kvledger.core.ids import NAME_CHARACTERS, NodeId, RequestId, Seq, TxnId
from kvledger.journal import EventFilter

router = APIRouter(prefix="/v1/journals/{journal}/events", tags=["events"], responses=OF_A_JOURNAL)

if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(EVENTS)]

Kinds = Annotated[
    list[Kind],
    Query(alias="kind", max_length=len(EVENTS), description="Of this kind; may be given more than once."),
]
NodeParam = Annotated[int | None, Query(ge=0, le=SEQ_MAX, description="About this node.")]
RequestParam = Annotated[
    str | None,
    Query(
        max_length=NAME_CHARACTERS,
        description="Naming this request, and all events of its own transactions.",
    ),
]
NumberParam = Annotated[int | None, Query(ge=1, le=SEQ_MAX, description="Of the transaction of this number.")]
UndoneParam = Annotated[
    bool | None, Query(description="Only those that were rolled back, or only those that were not.")
]


def event_filter(
    *, kinds: list[str] | None = None, node: int | None = None, request: str | None = None
) -> EventFilter:
    """The filter of what an event is about."""
    return EventFilter(
        kinds=tuple(kinds or ()),
        nodes=() if node is None else (NodeId(node),),
        request_id=None if request is None else RequestId(request),
    )


@router.get("")
def events(
    opened: Opened,
    teller: TellerDep,
    kinds: Kinds = [],  # noqa: B006
    node: NodeParam = None,
    request: RequestParam = None,
    transaction: NumberParam = None,
    undone: UndoneParam = None,
    first_seq: SeqParam = None,
    last_seq: SeqParam = None,
    since_us: TimeParam = None,
    until_us: TimeParam = None,
    order: OrderParam = "asc",
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Page[EventOut]:
    """Events that meet every condition given, undone ones included unless `undone` says otherwise."""
    place = Place.of("events", cursor, order)
    about = event_filter(kinds=kinds, node=node, request=request)
    wanted = EventFilter(
        kinds=about.kinds,
        nodes=about.nodes,
        request_id=about.request_id,
        transaction=None if transaction is None else TxnId(transaction),
        undone=undone,
        since_us=since_us,
        until_us=until_us,
        first_seq=None if first_seq is None else Seq(first_seq),
        last_seq=None if last_seq is None else Seq(last_seq),
    )
    found = opened.reader.find(
        wanted,
        limit=limit + 1,
        after_seq=place.after,
        before_seq=place.before,
        newest_first=place.newest_first,
    )
    return page_of(
        place,
        found,
        limit=limit,
        number=lambda one: one.seq,
        tell=teller.event,
        not_here_before=lambda: missing_before(
            opened, first_seq=first_seq, since_us=since_us, transaction=transaction
        ),
    )


@router.get("/{seq}", responses=KEPT)
def event(
    request: Request, opened: Opened, teller: TellerDep, seq: Annotated[int, Path(ge=1, le=SEQ_MAX)]
) -> EventOut:
    """One event."""
    last = opened.reader.head().seq
    if seq > last:
        raise unknown("event", detail=f"seq {seq} is not there yet, the journal ends at {last}")
    first = opened.reader.beginning().seq
    if seq < first:
        raise pruned(
            f"seq {seq} was pruned: what is stored begins at seq {first}; look in the exported files"
        )
    immutable(request, opened, seq)
    wanted = EventFilter(first_seq=Seq(seq), last_seq=Seq(seq))
    found = next(opened.reader.find(wanted, limit=1), None)
    if found is None:
        raise unknown("event", detail=f"seq {seq} was never stored: the recorder gave it up")
    return teller.event(found)
