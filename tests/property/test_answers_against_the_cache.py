"""What the service computes from a replayed state is what the cache itself says at that moment."""

import random
import re

import numpy as np
import pytest

from kvledger.api.answers.eviction import eviction_of
from kvledger.api.answers.explain import explain
from kvledger.api.answers.pools import evictable_tokens, map_of, pools_of
from kvledger.api.answers.requests import own_pages
from kvledger.api.answers.slot import slot_of
from kvledger.api.projection import Standing
from kvledger.api.schemas.pools import EvictionCandidate
from kvledger.api.schemas.tree import ExplanationOut
from kvledger.core.events import NodeDeleted, SwaTombstoned
from kvledger.core.ids import NodeId
from tests.support.lives import KINDS_OF_TOKENS, Moment, live

SEEDS = (1, 2, 3)
SHAPES = [
    {"page": 4, "window": 8},
    {"page": 4, "window": 21, "swa": 400},
    {"page": 1, "window": 5, "full": 320, "swa": 120},
    {"page": 8, "window": 3, "full": 960, "swa": 320},
]


@pytest.fixture(params=SHAPES, ids=lambda shape: f"page{shape['page']}-window{shape['window']}")
def shape(request: pytest.FixtureRequest) -> dict[str, int]:
    found: dict[str, int] = request.param
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_add_up_and_are_those_of_the_cache(shape: dict[str, int], seed: int) -> None:
    for moment in live(seed=seed, **shape):
        answer = pools_of(moment.standing)
        sizes = moment.cache.sizes()
        for pool, theirs in zip(answer.pools, (sizes.full, sizes.swa), strict=True):
            assert pool.total == pool.free + pool.evictable + pool.protected + pool.held
            assert (pool.total, pool.free, pool.evictable, pool.protected, pool.held) == (
                theirs.total,
                theirs.free,
                theirs.evictable,
                theirs.protected,
                theirs.held,
            )
            assert evictable_tokens(moment.standing, pool.pool) == theirs.evictable
        nodes = moment.cache.nodes()
        assert answer.nodes == len(nodes)
        assert answer.tombstones == sum(node.swa_slots is None for node in nodes)
        assert answer.pools[0].tombstoned == sum(len(n.tokens) for n in nodes if n.swa_slots is None)
        assert answer.mixed_nodes == moment.cache.stats().mixed_nodes


def taken_by(moment: Moment, **tokens: int) -> list[tuple[int, str]]:
    """What the cache takes when it is asked for room, undone again."""
    with moment.cache.transaction("probe") as transaction:
        moment.cache.evict(**tokens)
        transaction.rollback()
    taken: list[tuple[int, str]] = []
    for event in moment.sink.transactions[-1].events:
        if isinstance(event, NodeDeleted):
            taken.append((event.node, "delete_leaf"))
        elif isinstance(event, SwaTombstoned):
            taken.append((event.node, "tombstone"))
    return taken


def named(candidates: tuple[EvictionCandidate, ...]) -> list[tuple[int, str]]:
    return [(one.node, one.action) for one in candidates]


@pytest.mark.parametrize("seed", SEEDS)
def test_eviction_takes_the_candidates_in_their_order(shape: dict[str, int], seed: int) -> None:
    taken = 0
    for moment in live(seed=seed, every=7, **shape):
        sizes = moment.cache.sizes()
        full = eviction_of(moment.standing, "full", limit=1_000)
        assert ("nothing can be evicted" in full.sentence) == (not full.candidates)
        assert named(full.candidates) == taken_by(moment, full_tokens=sizes.full.total)
        assert (
            sum(one.full_tokens for one in full.candidates) == sizes.full.evictable == full.evictable_tokens
        )
        swa = eviction_of(moment.standing, "swa", limit=1_000)
        assert ("nothing can be evicted" in swa.sentence) == (not swa.candidates)
        assert named(swa.candidates) == taken_by(moment, swa_tokens=sizes.swa.total)
        assert sum(one.swa_tokens for one in swa.candidates) == sizes.swa.evictable == swa.evictable_tokens
        assert eviction_of(moment.standing, "swa", limit=3).candidates == swa.candidates[:3]
        classes = [one.outside_windows for one in swa.candidates]
        assert set(classes) <= {True, False}
        taken += len(full.candidates) + len(swa.candidates)
    assert taken > 100


def test_both_classes_of_windows_and_both_actions_come_up() -> None:
    """A leaf ends no token past its own end, so it is always inside a window."""
    seen = set()
    for moment in live(seed=1):
        for one in eviction_of(moment.standing, "swa", limit=1_000).candidates:
            seen.add((one.action, one.outside_windows))
    assert seen == {("tombstone", True), ("tombstone", False), ("delete_leaf", False)}


def prefixes(moment: Moment, dice: random.Random) -> list[list[int]]:
    """Prompts that were served, cut, lengthened and bent."""
    found = []
    for _ in range(12):
        prompt = list(dice.choice(moment.prompts))
        cut = dice.randrange(len(prompt) + 1)
        match dice.randrange(4):
            case 0:
                prompt = prompt[:cut]
            case 1:
                prompt += [dice.randrange(KINDS_OF_TOKENS) for _ in range(dice.randrange(12))]
            case 2:
                prompt[cut:] = [KINDS_OF_TOKENS + 1] * dice.randrange(9)
            case _:
                pass
        found.append(prompt)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_explanations_are_those_of_the_cache(shape: dict[str, int], seed: int) -> None:
    dice = random.Random(seed)
    reasons = set()
    for moment in live(seed=seed, requests=80, **shape):
        for tokens in prefixes(moment, dice):
            for namespace in ("n0", "n1"):
                theirs = moment.cache.explain(tokens, namespace=namespace)
                matched = moment.cache.match_prefix(tokens, namespace=namespace)
                ours = explain(moment.standing, np.array(tokens, "<i4").tobytes(), namespace=namespace)
                assert (ours.length, ours.full_length, ours.branch_length, ours.live_missing) == (
                    theirs.length,
                    theirs.full_length,
                    theirs.branch_length,
                    theirs.missing_tokens,
                )
                begins = None if theirs.first_tombstone is None else theirs.first_tombstone[1]
                assert ours.first_tombstone == begins
                assert ours.node == matched.node_id
                assert ours.length == matched.length
                reasons.add(theirs.reason)
                if theirs.reason == "dead_window":
                    check_decider(moment.standing, ours)
                else:
                    assert ours.deciding_tombstone is None
    assert reasons == {"whole", "no_full", "dead_window"}


def test_it_is_not_always_the_first_tombstone_that_decides() -> None:
    dice = random.Random(1)
    seen = set()
    for moment in live(seed=1, requests=80, **SHAPES[2]):
        for tokens in prefixes(moment, dice):
            told = explain(moment.standing, np.array(tokens, "<i4").tobytes(), namespace="n0")
            if told.length < told.full_length:
                seen.add((told.first_tombstone == told.deciding_tombstone, " in the way" in told.sentence))
    assert seen >= {(True, False), (False, True)}


def check_decider(standing: Standing, told: ExplanationOut) -> None:
    """What the sentence wants live lets the match reach the end of Full; all but the one named does not."""
    nodes = [standing.state.nodes[NodeId(node)] for node in told.path]
    live = [node.swa is not None for node in nodes for _ in range(node.start, node.end)][: told.full_length]
    found = re.search(
        r"the (\d+) tokens right before (\d+) would have to be live too(?:, (\d+) of which are not)?$",
        told.sentence,
    )
    assert found is not None, told.sentence
    more, place, dead = (int(number or found[1]) for number in found.groups())
    assert not reaches_the_end(live, standing.state.window)
    assert reaches_the_end(revived(live, place - more, place), standing.state.window)
    assert live[place - more : place].count(False) == dead > 0
    assert place - more == max(0, told.full_length - standing.state.window)
    decider = told.deciding_tombstone
    assert decider is not None
    (end,) = (node.end for node in nodes if node.start == decider and node.swa is None)
    assert f"tokens {decider} to {end - 1}" in told.sentence
    everything_else = [position < decider or position >= end for position in range(len(live))]
    assert not reaches_the_end(everything_else, standing.state.window)


def revived(live: list[bool], start: int, end: int) -> list[bool]:
    return [was or start <= position < end for position, was in enumerate(live)]


def reaches_the_end(live: list[bool], window: int) -> bool:
    """The match rule at the last position, token by token."""
    return all(live[max(0, len(live) - window) :])


@pytest.mark.parametrize("seed", SEEDS)
def test_every_slot_is_where_nodes_and_rows_say_it_is(shape: dict[str, int], seed: int) -> None:
    for moment in live(seed=seed, requests=40, every=20, **shape):
        check_slots(moment, shape["page"])


def check_slots(moment: Moment, page: int) -> None:
    standing, cache = moment.standing, moment.cache
    expected_full: dict[int, tuple[str, int | str, int]] = {}
    expected_swa: dict[int, tuple[str, int | str, int]] = {}
    beside: dict[int, int] = {}
    for node in cache.nodes():
        for place, slot in enumerate(node.full_slots.tolist()):
            expected_full[slot] = ("tree", node.id, node.start + place)
            if node.swa_slots is not None:
                expected_swa[int(node.swa_slots[place])] = ("tree", node.id, node.start + place)
                beside[slot] = int(node.swa_slots[place])
    for request in standing.state.requests.values():
        row = (request.row[:, None] * page + np.arange(page)).reshape(-1).tolist()
        peers = cache.swa_slots(np.array(row)).tolist()
        owned = 0
        for place, (slot, peer) in enumerate(zip(row, peers, strict=True)):
            if slot in expected_full and expected_full[slot][0] == "tree":
                continue
            owned += 1
            expected_full[slot] = ("request", request.id, place)
            if peer:
                expected_swa[peer] = ("request", request.id, place)
                beside[slot] = peer
        assert own_pages(standing.state, request) == owned // page
    swa_of = {peer: slot for slot, peer in beside.items()}
    counted: dict[str, int] = {}
    for pool, expected, other in (("full", expected_full, beside), ("swa", expected_swa, swa_of)):
        pages = standing.state.full_pages if pool == "full" else standing.state.swa_pages
        for slot in range(page, (pages + 1) * page):
            answer = slot_of(standing, pool, slot)  # type: ignore[arg-type]
            assert (answer.page, answer.offset) == divmod(slot, page)
            if slot in expected:
                holder, who, position = expected[slot]
                assert (answer.place, answer.node or answer.request, answer.position) == (
                    holder,
                    who,
                    position,
                )
                assert answer.beside == other.get(slot)
            else:
                assert answer.place in ("free", "caller")
            counted[f"{pool} {answer.place}"] = counted.get(f"{pool} {answer.place}", 0) + 1
            if answer.place == "tree":
                check_locks(moment, pool, answer.node, answer.position, answer.locked_by)
    sizes = cache.sizes()
    assert counted.get("full free", 0) == sizes.full.free
    assert counted.get("swa free", 0) == sizes.swa.free
    held = counted.get("full request", 0) + counted.get("full caller", 0)
    assert held == sizes.full.held


def check_locks(
    moment: Moment, pool: str, node: int | None, position: int | None, locked_by: tuple[int, ...]
) -> None:
    """As many leases reach a slot as its node counts."""
    assert node is not None
    assert position is not None
    found = moment.standing.state.nodes[node]  # type: ignore[index]
    assert len(locked_by) == (found.full_lock if pool == "full" else found.swa_lock)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_map_covers_each_pool_once_and_agrees_with_its_slots(shape: dict[str, int], seed: int) -> None:
    dice = random.Random(seed)
    for moment in live(seed=seed, every=15, **shape):
        standing = moment.standing
        for pool, pages in (("full", standing.state.full_pages), ("swa", standing.state.swa_pages)):
            check_map(standing, pool, pages, shape["page"], dice)


def check_map(standing: Standing, pool: str, pages: int, page_size: int, dice: random.Random) -> None:
    whole = map_of(standing, pool, first_page=1, pages=10**6, limit=10**6)  # type: ignore[arg-type]
    assert (whole.pages, whole.pages_total) == (pages, pages)
    at = 1
    for run in whole.runs:
        assert (run.page, run.count > 0) == (at, True)
        at += run.count
        for page in (run.page, run.page + run.count - 1):
            slot = slot_of(standing, pool, page * page_size)  # type: ignore[arg-type]
            assert (run.place, run.node, run.request) == (slot.place, slot.node, slot.request)
            assert run.locked == bool(slot.locked_by)
    assert at == pages + 1
    # Any part of it, taken in answers that are cut, is that part of the whole.
    first = dice.randrange(1, pages + 1)
    asked = dice.randrange(1, pages + 1)
    covered, owners = first, []
    while covered < min(first + asked, pages + 1):
        part = map_of(standing, pool, first_page=covered, pages=first + asked - covered, limit=3)  # type: ignore[arg-type]
        assert part.pages > 0
        assert len(part.runs) <= 3
        for run in part.runs:
            owners += [(run.place, run.node, run.request)] * run.count
        covered += part.pages
    expected = [(run.place, run.node, run.request) for run in whole.runs for _ in range(run.count)]
    assert owners == expected[first - 1 : first - 1 + asked]
