"""Random operations against the naive model, with journal, replay and audit looking on at every step."""

import functools
import random
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from kvledger.core import Statistics
from kvledger.core.events import KvFingerprinted
from tests.property.twin import STEPS, Pick, Twin
from tests.reference.retention import Learned, learned

BOUNDED = settings(
    max_examples=120,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
"""Bounded so that all of this folder takes a minute and a half on one core."""


def from_data(data: st.DataObject) -> Pick:
    """Let Hypothesis choose, so that it can shrink."""
    return lambda limit: data.draw(st.integers(0, limit - 1))


class CacheMachine(RuleBasedStateMachine):
    """Any step after any other, on a cache of any small size."""

    eviction = "lru"
    twin: Twin | None = None
    failed = False

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        self.twin = Twin.drawn(from_data(data), eviction=self.eviction)

    @rule(step=st.sampled_from(STEPS), data=st.data())
    def go(self, step: str, data: st.DataObject) -> None:
        assert self.twin is not None
        note(step)
        self.failed = True
        getattr(self.twin, step)(from_data(data))
        self.twin.compare()
        self.failed = False

    def teardown(self) -> None:
        if self.twin is not None and not self.failed:
            self.twin.close()


def test_any_operations_in_any_order_agree_with_the_model_the_replay_and_the_audit() -> None:
    run_state_machine_as_test(CacheMachine, settings=BOUNDED)


class Lru2Machine(CacheMachine):
    """The same with the other order of eviction."""

    eviction = "lru-2"


def test_any_operations_in_any_order_agree_under_lru_2_too() -> None:
    run_state_machine_as_test(Lru2Machine, settings=settings(BOUNDED, max_examples=50))


def walk(seed: int, steps: int = 200, *, fingerprints: bool = False, eviction: str = "lru") -> Twin:
    """A seeded walk: longer than what a state machine can afford, and the same each time."""
    chance = random.Random(seed)
    twin = Twin.drawn(chance.randrange, fingerprints=fingerprints, eviction=eviction)
    for number in range(steps):
        step = chance.choice(STEPS)
        try:
            getattr(twin, step)(chance.randrange)
            twin.compare()
        except BaseException as error:
            error.add_note(f"walk({seed}), step {number}: {step}")
            raise
    twin.close()
    return twin


WALKS = 60
WALKS_LRU_2 = 48


@functools.cache
def walked(seed: int) -> tuple[Statistics, Counter[str]]:
    """What a walk counted; the walk itself is taken once."""
    twin = walk(seed)
    return twin.cache.stats(), twin.moves


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_long_walk_agrees_with_the_model_the_replay_and_the_audit(seed: int) -> None:
    assert walked(seed)[0].nodes >= 0


@dataclass(frozen=True)
class Walked:
    """What a walk under lru-2 came to: its moves, and what its cache had learned at the end."""

    moves: Counter[str]
    learned: Learned


@functools.cache
def walked_lru2(seed: int) -> Walked:
    """A walk with the other order of eviction, taken once."""
    twin = walk(seed, eviction="lru-2")
    return Walked(twin.moves, learned(twin.cache))


@pytest.mark.parametrize("seed", range(WALKS_LRU_2))
def test_a_long_walk_under_lru_2_agrees_with_the_model_the_replay_and_the_audit(seed: int) -> None:
    assert walked_lru2(seed).learned.now >= 0


def test_the_walks_under_lru_2_learn_ranks_margins_and_cut_nodes() -> None:
    walks = [walked_lru2(seed) for seed in range(WALKS_LRU_2)]
    assert sum(walk.moves["nodes cut by eviction"] for walk in walks) >= 10
    assert sum(walk.learned.margin > 0 for walk in walks) >= 5
    assert sum(mark.rank >= 0 for walk in walks for mark in walk.learned.marks.values()) >= 50
    assert sum(mark.ends_row for walk in walks for mark in walk.learned.marks.values()) >= 100


@pytest.mark.parametrize("seed", range(WALKS, WALKS + 12))
def test_a_long_walk_with_fingerprints_agrees_with_the_model_the_replay_and_the_audit(seed: int) -> None:
    twin = walk(seed, fingerprints=True)
    told = [type(event) for transaction in twin.sink.transactions for event in transaction.events]
    assert KvFingerprinted in told


@pytest.mark.parametrize(
    "counter",
    [
        "hit_tokens",
        "evicted_full_tokens",
        "evicted_swa_tokens",
        "tombstones",
        "recoveries",
        "recoveries_locked",
        "rollbacks",
        "skipped",
        "resets",
    ],
)
def test_the_walks_reach_what_they_are_meant_to_try(counter: str) -> None:
    assert sum(getattr(walked(seed)[0], counter) for seed in range(WALKS)) > 0


@pytest.mark.parametrize(
    "move",
    [
        "inserts behind a lease",
        "advances",
        "rows changed",
        "too close to what was given back",
        "refused in part",
        "refused as a whole",
    ],
)
def test_the_walks_move_leases_in_every_way_there_is(move: str) -> None:
    assert sum(walked(seed)[1][move] for seed in range(WALKS)) > 0


def test_a_healthy_cache_meets_no_anomaly() -> None:
    assert sum(walked(seed)[0].anomalies for seed in range(WALKS)) == 0
