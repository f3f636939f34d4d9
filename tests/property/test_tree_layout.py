"""In the picture of a tree siblings never overlap, and any viewport is exactly the nodes in its rows."""

import random

import pytest

from kvledger.api.answers.layout import Layout, whole_layout
from kvledger.api.answers.tree import Viewport, tree_of
from kvledger.api.problems import Refusal
from kvledger.api.projection import Standing
from kvledger.api.schemas.tree import NodeBrief, TreeOut
from kvledger.api.told.hiding import Hiding
from tests.support.lives import live

HIDE = Hiding(reveals=True)


def shown(standing: Standing, **view: object) -> TreeOut:
    settings = {"first_row": 0, "rows": 10**6, "limit": 10**6} | view
    return tree_of(standing, Viewport(**settings), hide=HIDE)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_leaf_has_a_row_and_every_node_spans_the_rows_of_its_leaves(seed: int) -> None:
    for moment in live(seed=seed, requests=40):
        layout = whole_layout(moment.standing.state)
        assert {spot.node.id for spot in layout.spots} == set(moment.standing.state.nodes)
        check_layout(layout)


def check_layout(layout: Layout) -> None:
    leaves = [spot for spot in layout.spots if not spot.node.children]
    assert [spot.row for spot in leaves] == list(range(layout.rows))
    assert all(spot.rows == 1 for spot in leaves)
    place = {spot.node.id: index for index, spot in enumerate(layout.spots)}
    for spot in layout.spots:
        children = [layout.by_id[child] for child in spot.node.children]
        if children:
            rows = sorted(row for child in children for row in range(child.row, child.row + child.rows))
            assert rows == list(range(spot.row, spot.row + spot.rows)), "siblings overlap or leave a hole"
            assert spot.below == sum(child.below + 1 for child in children)
            assert all(place[child.node.id] > place[spot.node.id] for child in children)
            assert all(child.depth == spot.depth + 1 for child in children)
    assert layout.row_starts == sorted(layout.row_starts)
    assert layout.tokens == sum(spot.node.end - spot.node.start for spot in layout.spots)
    assert layout.end == max((spot.node.end for spot in layout.spots), default=0)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_viewport_gives_exactly_the_nodes_that_have_a_row_in_it(seed: int) -> None:
    dice = random.Random(seed)
    for moment in live(seed=seed, requests=40, every=10):
        whole = shown(moment.standing)
        assert (whole.truncated, len(whole.nodes)) == (False, whole.nodes_total)
        for _ in range(40):
            first, rows = dice.randrange(whole.rows_total + 3), dice.randrange(1, whole.rows_total + 3)
            part = shown(moment.standing, first_row=first, rows=rows)
            expected = [n.id for n in whole.nodes if n.row < first + rows and n.row + n.rows > first]
            assert [node.id for node in part.nodes] == expected
            assert part.rows == max(0, min(rows, whole.rows_total - first))
            assert (part.rows_total, part.nodes_total, part.truncated) == (
                whole.rows_total,
                whole.nodes_total,
                False,
            )


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_left_out_can_be_told_from_the_answer(seed: int) -> None:
    dice = random.Random(seed)
    for moment in live(seed=seed, requests=40, every=10):
        whole = {node.id: node for node in shown(moment.standing).nodes}
        for _ in range(20):
            limit, depth = dice.randrange(1, len(whole) + 2), dice.choice([None, 1, 2, 3, 50])
            part = shown(moment.standing, limit=limit, depth=depth)
            ids = {node.id for node in part.nodes}
            assert len(ids) == len(part.nodes) <= limit
            assert part.truncated == (len(ids) < len(whole))
            for node in part.nodes:
                assert node.parent is None or node.parent in ids
                assert depth is None or node.depth < depth
                below = [one for one in whole.values() if is_below(one.id, node.id, whole)]
                hidden = [one for one in below if not one.children and one.id not in ids]
                assert (node.nodes_below, node.rows_hidden) == (len(below), len(hidden))


def is_below(node: int, above: int, nodes: dict[int, NodeBrief]) -> bool:
    parent = nodes[node].parent
    return parent is not None and (parent == above or is_below(parent, above, nodes))


def test_a_namespace_or_a_node_is_a_picture_of_its_own() -> None:
    moment = list(live(seed=5, requests=40))[-1]
    standing = moment.standing
    whole = shown(standing)
    assert whole.namespaces == ("n0", "n1")
    names = {name: shown(standing, namespace=name) for name in whole.namespaces}
    assert sum(part.nodes_total for part in names.values()) == whole.nodes_total
    assert sum(part.rows_total for part in names.values()) == whole.rows_total
    for name, part in names.items():
        assert {node.namespace for node in part.nodes} == {name}
        assert min(node.row for node in part.nodes) == 0
    assert shown(standing, namespace="elsewhere").nodes == ()
    inner = next(node for node in whole.nodes if node.children and node.parent is not None)
    below = shown(standing, root=inner.id)
    assert (below.nodes_total, below.rows_total) == (inner.nodes_below + 1, inner.rows)
    assert below.nodes[0].id == inner.id
    assert below.nodes[0].depth == inner.depth
    other = next(name for name in whole.namespaces if name != inner.namespace)
    for root, namespace in ((10**6, None), (inner.id, other)):
        with pytest.raises(Refusal):
            shown(standing, root=root, namespace=namespace)


def test_leaves_keep_their_order_while_nodes_come_and_are_split_around_them() -> None:
    """Where something went a subtree may lose its oldest node, and with it its place."""
    before: dict[int, int] = {}
    nodes: set[int] = set()
    compared = 0
    for moment in live(seed=4, requests=50, every=1, full=1_600, swa=1_600):
        layout = whole_layout(moment.standing.state)
        rows = {int(spot.node.id): spot.row for spot in layout.spots if not spot.node.children}
        if nodes <= set(map(int, layout.by_id)):
            kept = sorted((node for node in before if node in rows), key=lambda node: before[node])
            assert kept == sorted(kept, key=lambda node: rows[node])
            compared += len(kept)
        before, nodes = rows, set(map(int, layout.by_id))
    assert compared > 100
