"""Makes the documents of `kvledger.tools.documents` from the state that replay rebuilt, not from a cache."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from kvledger.core.errors import InvalidArgument
from kvledger.core.events import Origin
from kvledger.core.ids import NodeId, RequestId
from kvledger.journal import LookUpSource
from kvledger.journal.places import CALLER, DEFERRED, FREE
from kvledger.journal.replay import Replayed
from kvledger.journal.state import Node, NodeView, PoolPlaces, State
from kvledger.tools.documents import (
    JournalPicture,
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


def picture_tree(replayed: Replayed, namespace: str | None) -> TreePicture:
    """All nodes of one namespace, or of all (None). Cost O(tree)."""
    depths: dict[NodeId, int] = {}
    nodes = []
    for view in replayed.state.walk(namespace):
        depths[view.id] = 0 if view.parent is None else depths[view.parent] + 1
        nodes.append(_node(replayed, view, depths[view.id]))
    return TreePicture(seq=replayed.seq, nodes=nodes)


def picture_node(replayed: Replayed, node_id: int) -> NodePicture:
    """One node. Raises `InvalidArgument` where there is none of that id at this seq."""
    node = replayed.state.nodes.get(NodeId(node_id))
    if node is None:
        raise InvalidArgument(f"there is no node {node_id} at seq {replayed.seq}")
    return _node(replayed, replayed.state.view(node), len(replayed.state.path(node)) - 1)


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
        swa_page=int(state.mapping[page]) or None,
        node=None if node is None else node.id,
        request=owner,
        position=position,
        read_by=sorted(readers),
    )


def picture_requests(replayed: Replayed) -> OpenRequests:
    """All open requests. Cost: O(their rows)."""
    return OpenRequests(
        seq=replayed.seq,
        requests=[picture_request(replayed, name) for name in sorted(replayed.state.requests)],
    )


def picture_request(replayed: Replayed, request_id: str) -> RequestPicture:
    """An open request. Raises `InvalidArgument` where none of that name is open at this seq."""
    state = replayed.state
    request = state.requests.get(RequestId(request_id))
    if request is None:
        raise InvalidArgument(f"no request {request_id!r} is open at seq {replayed.seq}")
    lease = None if request.lease is None else state.leases.get(request.lease)
    return RequestPicture(
        seq=replayed.seq,
        request=request.id,
        namespace=request.namespace,
        epoch=request.epoch,
        waiting=lease is None,
        lease=request.lease,
        node=None if lease is None or lease.node is None else lease.node.id,
        protected=0 if lease is None else lease.length,
        swa_from=None if lease is None or not lease.swa_held else lease.swa_from,
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


def _node(replayed: Replayed, view: NodeView, depth: int) -> NodePicture:
    return NodePicture(
        seq=replayed.seq,
        node=view.id,
        parent=view.parent,
        children=view.children,
        namespace=view.namespace,
        depth=depth,
        start=view.start,
        end=view.end,
        tombstone=view.swa_pages is None,
        full_lock=view.full_lock,
        swa_lock=view.swa_lock,
        stamp=view.stamp,
        full_origin=_origin(view.full_origin),
        swa_origin=None if view.swa_origin is None else _origin(view.swa_origin),
        full_pages=view.full_pages.tolist(),
        swa_pages=None if view.swa_pages is None else view.swa_pages.tolist(),
    )


def _origin(origin: Origin) -> str:
    return f"{origin.request_id or 'raw insert'}#{origin.epoch}"
