"""Changes of the tree: creation, split, deletion, tombstone, recovery, recency."""

from kvledger.core.events import (
    Cause,
    NodeCreated,
    NodeDeleted,
    NodeSplit,
    NodeTouched,
    Origin,
    Pages,
    RecoveryMode,
    SwaRecovered,
    SwaTombstoned,
)
from kvledger.core.node import Node, parent_of
from kvledger.core.page_arrays import part_of
from kvledger.core.page_table import TREE
from kvledger.core.state import CacheState, change

REUSABLE = frozenset({Cause.CAPACITY, Cause.CASCADE})
"""Causes whose pages may be allocated again in the same transaction."""


def attach(state: CacheState, node: Node, parent: Node) -> None:
    """Hang a node under its parent."""
    children = parent.children
    children[node.key[: state.page_bytes]] = node
    node.parent = parent
    if parent.parent is None:
        state.roots[parent.namespace] = parent
    elif len(children) == 1:
        state.recency.reconsider(parent)
    elif len(children) == 2:
        state.recency.parted(parent)


def detach(state: CacheState, node: Node, parent: Node) -> None:
    """Take a leaf off its parent, which may become a leaf or lie outside a window thereby."""
    children = parent.children
    del children[node.key[: state.page_bytes]]
    if parent.parent is None:
        if not children:
            del state.roots[parent.namespace]
    elif len(children) == 1:
        state.recency.reconsider(parent)
    elif not children:
        state.recency.offer(parent)


def _created_back(state: CacheState, event: NodeCreated, token: tuple[Node, int]) -> None:
    state.shape += 1
    node, owner = token
    detach(state, node, parent_of(node))
    del state.nodes[node.id]
    _drop_from_queues(node)
    state.pages.unadopt(event.full_pages, 0 if event.swa_pages is None else len(event.swa_pages), owner)


@change(NodeCreated, _created_back)
def _created(state: CacheState, event: NodeCreated) -> tuple[Node, int]:
    state.shape += 1
    parent = state.root_or_new(event.namespace) if event.parent is None else state.nodes[event.parent]
    full, swa = event.full_pages, event.swa_pages
    node = Node(
        event.node,
        parent,
        event.namespace,
        key=event.tokens,
        start=event.start,
        full=full,
        swa=swa,
        stamp=event.stamp,
        full_origin=event.full_origin,
        swa_origin=event.swa_origin,
    )
    owner = state.pages.adopt(full, 0 if swa is None else len(swa))
    state.nodes[node.id] = node
    attach(state, node, parent)
    state.recency.offer(node)
    return node, owner


def _split_back(state: CacheState, event: NodeSplit, token: tuple[bytes, Pages, Pages | None]) -> None:
    state.shape += 1
    node, head = state.nodes[event.node], state.nodes[event.head]
    parent = parent_of(head)
    node.key, node.full, node.swa = token
    node.start = head.start
    node.parent = parent
    parent.children[node.key[: state.page_bytes]] = node
    head.children = {}
    del state.nodes[head.id]
    _drop_from_queues(head)
    state.recency.renew(node)


@change(NodeSplit, _split_back)
def _split(state: CacheState, event: NodeSplit) -> tuple[bytes, Pages, Pages | None]:
    state.shape += 1
    node = state.nodes[event.node]
    parent = parent_of(node)
    key, full, swa = node.key, node.full, node.swa
    pages = (event.at - node.start) // state.page_size
    head = Node(
        event.head,
        parent,
        node.namespace,
        key=event.head_tokens,
        start=node.start,
        full=part_of(full, 0, pages),
        swa=None if swa is None else part_of(swa, 0, pages),
        stamp=node.stamp,
        full_origin=node.full_origin,
        swa_origin=node.swa_origin,
    )
    head.full_lock = node.full_lock
    head.swa_lock = node.swa_lock
    head.rank = node.rank
    node.key = key[len(event.head_tokens) :]
    node.full = part_of(full, pages, len(full))
    node.swa = None if swa is None else part_of(swa, pages, len(swa))
    node.start = event.at
    node.parent = head
    head.children[node.key[: state.page_bytes]] = node
    parent.children[head.key[: state.page_bytes]] = head
    state.nodes[head.id] = head
    state.recency.renew(node)
    state.recency.offer(head)
    return key, full, swa


def _deleted_back(state: CacheState, event: NodeDeleted, token: tuple[Node, Node, int, int]) -> None:
    state.shape += 1
    node, parent, parent_stamp, owner = token
    reusable = event.cause in REUSABLE
    pages = state.pages
    if event.swa_pages is not None:
        pages.unfree_swa_pages(event.full_pages, event.swa_pages, from_tree=True, reusable=reusable)
    pages.unfree_full_pages(event.full_pages, from_tree=True, reusable=reusable, owner=owner)
    state.nodes[node.id] = node
    attach(state, node, parent)
    if event.parent_stamp is not None:
        parent.stamp = parent_stamp
        state.recency.offer(parent)
    state.recency.offer(node)


@change(NodeDeleted, _deleted_back)
def _deleted(state: CacheState, event: NodeDeleted) -> tuple[Node, Node, int, int]:
    state.shape += 1
    node = state.nodes.pop(event.node)
    parent = parent_of(node)
    before = parent.stamp
    if event.parent_stamp is not None:
        parent.stamp = event.parent_stamp
    detach(state, node, parent)
    if event.parent_stamp is not None:
        state.recency.offer(parent)
    _drop_from_queues(node)
    reusable = event.cause in REUSABLE
    pages = state.pages
    owner = pages.free_full_pages(event.full_pages, from_tree=True, reusable=reusable)
    if event.swa_pages is not None:
        pages.free_swa_pages(event.full_pages, event.swa_pages, from_tree=True, reusable=reusable)
    return node, parent, before, owner


def _tombstoned_back(state: CacheState, event: SwaTombstoned, token: Origin | None) -> None:
    state.shape += 1
    node = state.nodes[event.node]
    node.swa = event.swa_pages
    node.swa_origin = token
    reusable = event.cause in REUSABLE
    state.pages.unfree_swa_pages(event.full_pages, event.swa_pages, from_tree=True, reusable=reusable)
    state.recency.offer(node)


@change(SwaTombstoned, _tombstoned_back)
def _tombstoned(state: CacheState, event: SwaTombstoned) -> Origin | None:
    state.shape += 1
    node = state.nodes[event.node]
    before = node.swa_origin
    node.swa = None
    node.swa_origin = None
    reusable = event.cause in REUSABLE
    state.pages.free_swa_pages(event.full_pages, event.swa_pages, from_tree=True, reusable=reusable)
    return before


RecoveryToken = tuple[int, int, Origin | None]


def _recovered_back(state: CacheState, event: SwaRecovered, token: RecoveryToken) -> None:
    state.shape += 1
    node = state.nodes[event.node]
    owner, stamp, origin = token
    pages = state.pages
    if event.mode is RecoveryMode.KEEP_LOCKED_FULL:
        pages.unfree_full_pages(event.incoming_full, from_tree=False, reusable=False, owner=owner)
        pages.unremap(event.incoming_full, event.node_full, event.swa_pages)
    else:
        node.full = event.node_full
        pages.unadopt(event.incoming_full, len(event.swa_pages), owner)
        pages.unfree_full_pages(event.node_full, from_tree=True, reusable=False, owner=TREE)
    node.swa = None
    node.full_origin = origin
    node.swa_origin = None
    node.stamp = stamp
    state.recency.renew(node)


@change(SwaRecovered, _recovered_back)
def _recovered(state: CacheState, event: SwaRecovered) -> RecoveryToken:
    state.shape += 1
    node = state.nodes[event.node]
    token_stamp, token_origin = node.stamp, node.full_origin
    pages = state.pages
    if event.mode is RecoveryMode.KEEP_LOCKED_FULL:
        pages.remap(event.incoming_full, event.node_full, event.swa_pages)
        owner = pages.free_full_pages(event.incoming_full, from_tree=False, reusable=False)
    else:
        pages.free_full_pages(event.node_full, from_tree=True, reusable=False)
        owner = pages.adopt(event.incoming_full, len(event.swa_pages))
        node.full = event.incoming_full
    node.swa = event.swa_pages
    node.full_origin = event.full_origin
    node.swa_origin = event.swa_origin
    node.stamp = event.stamp
    state.recency.renew(node)
    return owner, token_stamp, token_origin


def _touched_back(state: CacheState, event: NodeTouched, token: tuple[int, ...]) -> None:
    for id, stamp in zip(event.nodes, token, strict=True):
        node = state.nodes[id]
        node.stamp = stamp
        state.recency.offer(node)


@change(NodeTouched, _touched_back)
def _touched(state: CacheState, event: NodeTouched) -> tuple[int, ...]:
    before = []
    stamp = event.first_stamp
    for id in event.nodes:
        node = state.nodes[id]
        before.append(node.stamp)
        node.stamp = stamp
        stamp += 1
        state.recency.offer(node)
    return tuple(before)


def _drop_from_queues(node: Node) -> None:
    node.full_queued = -1
    node.swa_queued = -1
    node.swa_inside = False
