"""The part of the tree that is visible: the nodes in some rows, and totals that show what is not there."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvledger.api.answers.layout import Layout, Spot, layout_of, whole_layout
from kvledger.api.problems import unknown
from kvledger.api.projection import Standing
from kvledger.api.schemas.tree import NodeBrief, TreeOut
from kvledger.api.told.events import told_text
from kvledger.api.told.hiding import Hiding
from kvledger.core.ids import NodeId
from kvledger.journal.state import Node, State

NAMESPACES_SHOWN = 200
"""Names of namespaces in one answer; a filter can name any other."""


@dataclass(frozen=True, slots=True)
class Viewport:
    """Rows [first_row, first_row + rows) of a scope are asked for, `depth` levels and `limit` nodes at most.

    The scope is the whole tree, one `namespace` (as the service tells it), or what hangs from node `root`.
    """

    first_row: int
    rows: int
    limit: int
    depth: int | None = None
    namespace: str | None = None
    root: int | None = None


def tree_of(standing: Standing, view: Viewport, *, hide: Hiding) -> TreeOut:
    """The nodes of a viewport. Cost: O(nodes) once for each state and scope, then O(nodes found)."""
    state = standing.state
    layout, above = _scope(standing, view, hide)
    found = None if view.namespace is None else bool(layout.spots)
    visible = layout.within(view.first_row, view.rows)
    shown = visible if view.depth is None else [spot for spot in visible if spot.depth < view.depth]
    if len(shown) > view.limit:
        # The levels nearest the root tell most: what is left out is below what is shown.
        kept = sorted(range(len(shown)), key=lambda place: (shown[place].depth, place))[: view.limit]
        shown = [shown[place] for place in sorted(kept)]
    names = sorted(state.roots)
    return TreeOut(
        at=standing.at,
        first_row=view.first_row,
        rows=max(0, min(view.rows, layout.rows - view.first_row)),
        rows_total=layout.rows,
        nodes_total=len(layout.spots),
        tokens_total=layout.tokens,
        end_max=layout.end,
        truncated=len(shown) < len(visible),
        namespaces=tuple(told_text(hide.namespace(name)) for name in names[:NAMESPACES_SHOWN]),
        namespaces_total=len(names),
        namespace_found=found,
        sentence=hide.absence(view.namespace or "") if found is False else None,
        nodes=_briefs(shown, depth_above=above, hide=hide),
    )


def brief_of(standing: Standing, node: Node, *, hide: Hiding) -> NodeBrief:
    """One node as the whole tree shows it, nothing below it shown. Cost: O(nodes) once for each state."""
    layout = standing.derive("layout", lambda: whole_layout(standing.state))
    return _briefs([layout.by_id[node.id]], depth_above=0, hide=hide)[0]


def node_named(state: State, node: int) -> Node:
    """The node with this id. Raises a refusal (404) where there is none."""
    found = state.nodes.get(NodeId(node))
    if found is None:
        raise unknown("node", detail=f"node {node} is not in the tree at this seq; its history tells more")
    return found


def _scope(standing: Standing, view: Viewport, hide: Hiding) -> tuple[Layout, int]:
    """The layout of what is asked for, and how many nodes stand above its tops."""
    state = standing.state
    if view.root is not None:
        root = node_named(state, view.root)
        if view.namespace is not None and hide.namespace(root.namespace) != view.namespace:
            raise unknown("node", detail=f"node {view.root} is of another namespace")
        layout = standing.derive(("layout", "root", root.id), lambda: layout_of([[root]]))
        return layout, len(state.path(root)) - 1
    if view.namespace is None:
        return standing.derive("layout", lambda: whole_layout(state)), 0
    name = hide.namespace_named(view.namespace, state)
    if name is None:
        return layout_of([]), 0
    return standing.derive(("layout", name), lambda: layout_of([state.roots[name].values()])), 0


def _briefs(shown: Sequence[Spot], *, depth_above: int, hide: Hiding) -> tuple[NodeBrief, ...]:
    names: dict[str, str] = {}
    leaves_shown: dict[NodeId, int] = {}
    for spot in reversed(shown):
        node = spot.node
        leaves = leaves_shown.setdefault(node.id, 0) if node.children else 1
        leaves_shown[node.id] = leaves
        if node.parent is not None:
            leaves_shown[node.parent.id] = leaves_shown.get(node.parent.id, 0) + leaves
    briefs = []
    for spot in shown:
        node = spot.node
        label = names.get(node.namespace)
        if label is None:
            label = names[node.namespace] = told_text(hide.namespace(node.namespace))
        briefs.append(
            NodeBrief(
                id=node.id,
                parent=None if node.parent is None else node.parent.id,
                namespace=label,
                depth=spot.depth + depth_above,
                start=node.start,
                end=node.end,
                row=spot.row,
                rows=spot.rows,
                full_lock=node.full_lock,
                swa_lock=node.swa_lock,
                tombstone=node.swa is None,
                mixed=node.is_mixed,
                evictable_full=node.full_lock == 0,
                evictable_swa=node.swa is not None and node.swa_lock == 0,
                children=len(node.children),
                nodes_below=spot.below,
                rows_hidden=spot.rows - leaves_shown[node.id],
            )
        )
    return tuple(briefs)
