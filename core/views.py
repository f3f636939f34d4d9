"""Answers about the state as a whole: sizes, statistics, nodes as values."""

from kvledger.core.inputs import PageArithmetic, unpack_tokens
from kvledger.core.node import Node, mixed, parent_id
from kvledger.core.results import NodeView, PoolSizes, Sizes, Statistics
from kvledger.core.state import CacheState


def sizes(state: CacheState) -> Sizes:
    """Tokens by where they are."""
    page, table, config = state.page_size, state.pages, state.config
    return Sizes(
        full=PoolSizes(
            config.full_tokens,
            table.free_full * page,
            state.evictable_full * page,
            state.locked_full * page,
            table.held_full * page,
        ),
        swa=PoolSizes(
            config.swa_tokens,
            table.free_swa * page,
            state.evictable_swa * page,
            state.locked_swa * page,
            table.held_swa * page,
        ),
    )


def statistics(state: CacheState) -> Statistics:
    """Counters as values; walks the nodes for how many are mixed now."""
    return Statistics(
        hit_tokens=state.counters.hit_tokens,
        **state.counters.journaled(),
        nodes=len(state.nodes),
        mixed_nodes=sum(1 for node in state.nodes.values() if mixed(node)),
    )


def node_view(node: Node, arithmetic: PageArithmetic) -> NodeView:
    """A node as a frozen value."""
    return NodeView(
        id=node.id,
        parent=parent_id(node),
        namespace=node.namespace,
        start=node.start,
        tokens=unpack_tokens(node.key),
        full_slots=arithmetic.to_slots(node.full),
        swa_slots=None if node.swa is None else arithmetic.to_slots(node.swa),
        full_lock=node.full_lock,
        swa_lock=node.swa_lock,
        last_access=node.stamp,
        children=tuple(child.id for child in node.children.values()),
        full_origin=node.full_origin,
        swa_origin=node.swa_origin,
    )
