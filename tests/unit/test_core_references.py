"""The reference history of "lru-2": which prefix was asked for when, and what rank that gives its nodes."""

from itertools import pairwise

import numpy as np
import pytest

from kvledger.core.free_pages import EMPTY
from kvledger.core.ids import NodeId
from kvledger.core.node import ROOT_ID, Node, parent_of
from kvledger.core.references import (
    ANCHOR_TOKENS,
    LEAST_ENTRIES,
    MOST_CONTINUATIONS,
    NEVER,
    References,
    checksums,
)

UNIT = ANCHOR_TOKENS
PAGES = 64
"""Of the Full pool, one unit each: references less than 8 pages apart are one."""


def path(*blocks: int, cuts: tuple[int, ...] = (), namespace: str = "") -> list[Node]:
    """Nodes for units of equal tokens, cut at the positions (tokens) that are named."""
    row = np.repeat(np.asarray(blocks, dtype=np.int32), UNIT)
    above = Node(ROOT_ID, None, namespace, key=b"", start=0, full=EMPTY, swa=None, stamp=0)
    nodes: list[Node] = []
    edges = [0, *cuts, len(row)]
    for first, end in pairwise(edges):
        key = row[first:end].tobytes()
        above = Node(
            NodeId(len(nodes) + 1), above, namespace, key=key, start=first, full=EMPTY, swa=None, stamp=0
        )
        nodes.append(above)
    return nodes


def asked(references: References, *blocks: int, namespace: str = "", after: int = 0) -> int:
    """Ask for a prefix once `after` pages have come; the rank of its last node."""
    references.now += after
    nodes = path(*blocks, namespace=namespace)
    references.refer(nodes, 0, nodes[-1].end)
    return nodes[-1].rank


def test_a_prefix_that_was_never_asked_for_has_no_rank() -> None:
    assert asked(References(PAGES, UNIT), 1, 2) == NEVER


def test_the_rank_is_the_time_of_the_reference_before_the_last() -> None:
    references = References(PAGES, UNIT)
    assert [asked(references, 1, after=after) for after in (5, 20, 30, 9)] == [NEVER, 5, 25, 55]


def test_references_within_an_eighth_of_the_pool_are_one() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1, after=5)
    assert asked(references, 1, after=8) == NEVER
    assert asked(references, 1, after=1) == 5, "the ninth page is past the period"


def test_namespaces_have_histories_of_their_own() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1)
    assert asked(references, 1, namespace="x", after=20) == NEVER
    assert asked(references, 1) == 0


def test_a_prefix_is_all_of_its_tokens() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1, 2)
    assert asked(references, 3, 2, after=20) == NEVER


def test_the_next_turn_of_a_conversation_is_worth_what_the_conversation_is() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1, after=5)
    asked(references, 1, after=20)
    assert asked(references, 1, 2) == 5


def test_more_than_two_continuations_make_it_a_shared_head_and_get_no_rank_from_it() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1, after=5)
    asked(references, 1, after=20)
    ranks = [asked(references, 1, block) for block in range(2, 6)]
    assert ranks == [5] * MOST_CONTINUATIONS + [NEVER, NEVER]


def test_only_what_ends_in_the_part_that_is_asked_for_is_asked_for() -> None:
    references = References(PAGES, UNIT)
    whole = path(1, 2, 3, cuts=(UNIT, 2 * UNIT))
    references.refer(whole, UNIT, 2 * UNIT)
    references.now = 20
    again = path(1, 2, 3, cuts=(UNIT, 2 * UNIT))
    changed = references.refer(again, 0, 3 * UNIT)
    assert [node.rank for node in again] == [NEVER, 0, 0]
    assert changed == again[1:], "the third continues the second; the first was never asked for"


def test_a_node_that_ends_past_what_is_asked_for_keeps_its_rank() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1)
    references.now = 20
    (node,) = path(1, 2)
    assert references.refer([node], 0, UNIT) == []
    assert node.rank == NEVER
    assert asked(references, 1, after=20) == 20, "its first unit was asked for all the same"


@pytest.mark.parametrize("cuts", [(), (UNIT,), (7, UNIT - 1, UNIT + 300), (64, 128, 2 * UNIT)])
def test_checksums_do_not_depend_on_how_a_path_is_cut(cuts: tuple[int, ...]) -> None:
    plain = checksums(path(1, 2, 3)[-1])
    cut = path(1, 2, 3, cuts=cuts)
    assert (checksums(cut[-1]).crc, checksums(cut[-1]).anchor) == (plain.crc, plain.anchor)
    assert tuple(anchor for node in cut for anchor in checksums(node).anchors) == plain.anchors


def test_checksums_follow_a_node_that_is_cut_after_they_were_taken() -> None:
    (tail,) = path(1, 2, 3)
    before = checksums(tail)
    cut = path(1, 2, 3, cuts=(UNIT + 64,))
    tail.parent, tail.key, tail.start = cut[0], cut[1].key, cut[1].start
    assert checksums(tail).crc == before.crc
    assert checksums(tail).anchors == before.anchors[1:]


def test_a_prompt_shorter_than_a_unit_has_no_history_and_takes_the_rank_above_it() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1)
    references.now = 20
    nodes = path(1, 2, cuts=(UNIT, UNIT + 64))[:2]
    references.refer(nodes, 0, UNIT + 64)
    assert [node.rank for node in nodes] == [0, 0]
    assert len(references) == 1


def test_the_memory_is_bounded_and_lets_go_of_what_was_asked_for_longest_ago() -> None:
    references = References(1, UNIT)
    for block in range(LEAST_ENTRIES):
        asked(references, block, after=1)
    asked(references, 0, after=1)
    asked(references, LEAST_ENTRIES, after=1)
    assert len(references) == LEAST_ENTRIES
    assert asked(references, 0, after=1) != NEVER
    assert asked(references, 1, after=1) == NEVER, "it was the oldest"


def test_the_memory_covers_eight_times_the_pool() -> None:
    references = References(1_000, UNIT)
    for block in range(8_001):
        asked(references, block)
    assert len(references) == 8_000


def test_forgetting_forgets_everything() -> None:
    references = References(PAGES, UNIT)
    asked(references, 1, after=5)
    references.forget()
    assert (len(references), references.now) == (0, 0)
    assert asked(references, 1, after=20) == NEVER


def test_the_root_stands_above_every_first_node() -> None:
    assert parent_of(path(1)[0]).is_root
