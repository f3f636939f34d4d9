"""Makes the documents of `kvledger.tools.documents.pictures` from what replay rebuilt, not from a cache."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Literal

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import Origin
from kvledger.core.ids import NodeId, RequestId
from kvledger.journal import LookUpSource
from kvledger.journal.lookups.holders import MAX_LEASES
from kvledger.journal.places import CALLER, DEFERRED, FREE
from kvledger.journal.replay import Replayed
from kvledger.journal.state import Node, NodeView, PoolPlaces, Request, State
from kvledger.tools.documents.locks import HolderDocument, holder_documents, locking
from kvledger.tools.documents.namespaces import Namespaces
from kvledger.tools.documents.pictures import (
    JournalPicture,
    LockedNodePicture,
    NodePicture,
    OpenRequests,
    PoolPicture,
    RequestPicture,
    SlotPicture,
    StatePicture,
    StorePicture,
    TreePicture,
)


def picture_journals(sources: Iterable[LookUpSource]) -> StorePicture:
    """The journals of an open store or folder. Cost: two look-ups a journal."""
    return StorePicture(
        journals=[
            JournalPicture(
                journal=source.info.id,
                name=source.info.name,
                epoch=source.info.epoch,
                created=datetime.fromtimestamp(source.info.created_us // 1_000_000, UTC).isoformat(),
                first_seq=source.beginning().seq,
                last_seq=source.head().seq,
            )
            for source in sources
        ]
    )


def picture_state(replayed: Replayed) -> StatePicture:
    """The whole state in figures. Cost O(state)."""
    state = replayed.state
    full, swa = state.places()
    nodes = state.nodes.values()
    return StatePicture(
        seq=replayed.seq,
        transaction=replayed.transaction,
        checkpoint_seq=replayed.checkpoint_seq,
        events=replayed.events,
        undone_events=replayed.undone_events,
        digest=state.digest(),
        generation=state.generation,
        page_size=state.page_size,
        window=state.window,
        nodes=len(state.nodes),
        tombstones=sum(node.swa is None for node in nodes),
        mixed_nodes=sum(node.is_mixed for node in nodes),
        leases=len(state.leases),
        requests=len(state.requests),
        full=_pool(full, state.page_size),
        swa=_pool(swa, state.page_size),
    )


def picture_tree(replayed: Replayed, namespace: str | None, *, names: Namespaces) -> TreePicture:
    """All nodes of one namespace, named or labelled, or of all (None). Cost O(tree).

    Raises `InvalidArgument` where no node is of the namespace at this seq.
    """
    if namespace is not None:
        namespace = names.find(namespace, replayed.state, seq=replayed.seq)
    depths: dict[NodeId, int] = {}
    nodes = []
    for view in replayed.state.walk(namespace):
        depths[view.id] = 0 if view.parent is None else depths[view.parent] + 1
        nodes.append(NodePicture(**_node(replayed, view, depths[view.id], names=names)))
    return TreePicture(seq=replayed.seq, nodes=nodes)


def picture_node(
    replayed: Replayed, node_id: int, *, source: LookUpSource, names: Namespaces
) -> LockedNodePicture:
    """One node and who locks it. Raises `InvalidArgument` where there is none of that id at this seq."""
    node = replayed.state.nodes.get(NodeId(node_id))
    if node is None:
        raise InvalidArgument(f"there is no node {node_id} at seq {replayed.seq}")
    leases = locking(replayed.state, node)
    told = holder_documents(source, leases[:MAX_LEASES], upto_seq=replayed.seq)
    depth = len(replayed.state.path(node)) - 1
    return LockedNodePicture(
        **_node(replayed, replayed.state.view(node), depth, names=names),
        holders=list(told.values()),
        holders_total=len(leases),
    )


def picture_slot(replayed: Replayed, slot: int) -> SlotPicture:
    """Where a Full slot is, and which open requests' rows name it. `InvalidArgument` outside the pool."""
    state = replayed.state
    page, offset = divmod(slot, state.page_size)
    if not 1 <= page <= state.full_pages:
        last = (state.full_pages + 1) * state.page_size - 1
        raise InvalidArgument(
            f"slot {slot} is not in the Full pool, whose slots are {state.page_size} to {last}"
        )
    code = int(state.full_at[page])
    readers: list[str] = []
    owner = None
    position = None
    for request in state.requests.values():
        where = (request.row == page).nonzero()[0]
        if len(where):
            readers.append(request.id)
            if request.code == code:
                owner, position = request.id, int(where[0]) * state.page_size + offset
    node = _holder(state, code)
    if node is not None:
        position = node.start + int((node.full == page).nonzero()[0][0]) * state.page_size + offset
    swa_page = int(state.mapping[page])
    place: Literal["free", "deferred", "tree", "request", "caller"]
    if node is not None:
        place = "tree"
    elif code == FREE:
        place = "free"
    elif code == DEFERRED:
        place = "deferred"
    elif code == CALLER:
        place = "caller"
    else:
        place = "request"
    return SlotPicture(
        seq=replayed.seq,
        slot=slot,
        page=page,
        offset=offset,
        place=place,
        beside=swa_page * state.page_size + offset if swa_page else None,
        node=None if node is None else node.id,
        request=owner,
        position=position,
        read_by=sorted(readers),
    )


def picture_requests(replayed: Replayed, *, source: LookUpSource, names: Namespaces) -> OpenRequests:
    """All open requests. Cost: O(their rows), and a few look-ups for each."""
    requests = [replayed.state.requests[name] for name in sorted(replayed.state.requests)]
    return OpenRequests(seq=replayed.seq, requests=_requests(replayed, requests, source=source, names=names))


def picture_request(
    replayed: Replayed, request_id: str, *, source: LookUpSource, names: Namespaces
) -> RequestPicture:
    """An open request. Raises `InvalidArgument` where none of that name is open at this seq."""
    request = replayed.state.requests.get(RequestId(request_id))
    if request is None:
        raise InvalidArgument(f"no request {request_id!r} is open at seq {replayed.seq}")
    (told,) = _requests(replayed, [request], source=source, names=names)
    return told


def _requests(
    replayed: Replayed, requests: list[Request], *, source: LookUpSource, names: Namespaces
) -> list[RequestPicture]:
    leases = replayed.state.leases
    held = [leases[request.lease] for request in requests if request.lease in leases]
    told = holder_documents(source, held, upto_seq=replayed.seq)
    return [
        _request(replayed, request, None if request.lease is None else told.get(request.lease), names=names)
        for request in requests
    ]


def _request(
    replayed: Replayed, request: Request, holder: HolderDocument | None, *, names: Namespaces
) -> RequestPicture:
    state = replayed.state
    return RequestPicture(
        seq=replayed.seq,
        request=request.id,
        namespace=names.told(request.namespace),
        epoch=request.epoch,
        waiting=holder is None,
        lease=request.lease,
        node=None if holder is None else holder.node,
        protected=0 if holder is None else holder.length,
        swa_from=None if holder is None else holder.swa_from,
        locked_since_seq=None if holder is None else holder.since_seq,
        locked_since=None if holder is None else holder.since,
        row_tokens=request.row_pages * state.page_size,
        row_pages=request.row.tolist(),
    )


def _holder(state: State, code: int) -> Node | None:
    """The node whose place reads `code`: ids are stored plus one, so that 0 can mean free."""
    return state.nodes.get(NodeId(code - 1)) if code > 0 else None


def _pool(places: PoolPlaces, page_size: int) -> PoolPicture:
    return PoolPicture(
        total=places.total * page_size,
        free=places.free * page_size,
        tree=places.tree * page_size,
        held=places.held * page_size,
    )


def _node(replayed: Replayed, view: NodeView, depth: int, *, names: Namespaces) -> dict[str, Any]:
    """What all pictures of a node say of it."""
    return {
        "seq": replayed.seq,
        "node": view.id,
        "parent": view.parent,
        "children": view.children,
        "namespace": names.told(view.namespace),
        "depth": depth,
        "start": view.start,
        "end": view.end,
        "tombstone": view.swa_pages is None,
        "full_lock": view.full_lock,
        "swa_lock": view.swa_lock,
        "stamp": view.stamp,
        "full_origin": _origin(view.full_origin),
        "swa_origin": None if view.swa_origin is None else _origin(view.swa_origin),
        "full_pages": view.full_pages.tolist(),
        "swa_pages": None if view.swa_pages is None else view.swa_pages.tolist(),
    }


def _origin(origin: Origin) -> str:
    return f"{origin.request_id or 'raw insert'}#{origin.epoch}"
