"""The simulation finds what was put in: wrong variants of core and journal, each within 50 seeds.

A failure shrinks to a few operations, which fail in the same way when they are run alone. Ten seconds of CPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kvledger.core import commit
from kvledger.core.changes import locks
from kvledger.core.insertion import Insertion
from kvledger.core.page_table import PageTable
from kvledger.journal.rows import RowWriter
from kvledger.journal.submission_queue import SubmissionQueue
from kvledger.tools.torture.sim.many import simulate
from kvledger.tools.torture.sim.run import Failure, run_seed
from kvledger.tools.torture.sim.shrink import minimal, shrink
from kvledger.tools.torture.sim.store import stores
from tests.support.old_recovery import replace_full_whoever_reads_it
from tests.support.simulated import OPERATIONS

MOST_SEEDS = 50
MOST_RUNS = 50
FEW = 20
"""Operations of a list that was shrunk in so many runs; most have three."""


def recover_as_before_the_mend(real: Any) -> Any:
    return replace_full_whoever_reads_it


def free_twice(real: Any) -> Any:
    def freed(table: PageTable, full: Any, *, from_tree: bool, reusable: bool) -> Any:
        before = real(table, full, from_tree=from_tree, reusable=reusable)
        if not reusable:
            table.deferred_full.append(full)
        return before

    return freed


def publish_dead_pages_as_live(real: Any) -> Any:
    def inserted(ledger: Any, request: Any, lease: Any, upto: int, *, touch: bool) -> Any:
        frontier, request.frontier = request.frontier, 0
        try:
            return real(ledger, request, lease, upto, touch=touch)
        finally:
            request.frontier = frontier

    return inserted


def unlock_all_but_the_first_node(real: Any) -> Any:
    def unlocked(state: Any, node: Any, swa_from: int, *, full: bool, swa: bool) -> None:
        path = []
        while node is not None and node.parent is not None:
            path.append(node)
            node = node.parent
        for held in path[:-1]:
            above, held.parent = held.parent, state.roots[held.namespace]
            try:
                real(state, held, swa_from, full=full, swa=swa)
            finally:
                held.parent = above

    return unlocked


def drop_the_last_row(real: Any) -> Any:
    def committed(writer: RowWriter, linked: Any, config: str | None) -> None:
        if len(linked.events[0]) > 3:
            linked = linked._replace(events=tuple(list(column)[:-1] for column in linked.events))
        real(writer, linked, config)

    return committed


def say_durable_too_early(real: Any) -> Any:
    def settled(queue: SubmissionQueue, batch: Sequence[Any], *, durable_seq: int) -> None:
        real(queue, batch, durable_seq=queue.last_seq)

    return settled


@dataclass(frozen=True)
class Wrong:
    """A variant: what is replaced, and by what."""

    owner: Any
    name: str
    variant: Callable[[Any], Any]


WRONG = {
    "recovery replaces locked Full": Wrong(Insertion, "_recover", recover_as_before_the_mend),
    "a page is freed twice": Wrong(PageTable, "free_full_pages", free_twice),
    "a tombstone is forgotten": Wrong(commit, "insert_own", publish_dead_pages_as_live),
    "an unlock forgets a node": Wrong(locks, "_unlock", unlock_all_but_the_first_node),
    "the store drops a row": Wrong(RowWriter, "_commit", drop_the_last_row),
    "durable is said too early": Wrong(SubmissionQueue, "settle", say_durable_too_early),
}


def put(wrong: Wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong.owner, wrong.name, wrong.variant(getattr(wrong.owner, wrong.name)))


def first_failure() -> Failure:
    with stores() as folder:
        for seed in range(MOST_SEEDS):
            failure = run_seed(folder, seed, OPERATIONS).failure
            if failure is not None:
                return failure
    raise AssertionError(f"{MOST_SEEDS} seeds found nothing")


@pytest.mark.interpreted
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variant_is_found_shrunk_and_repeated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(WRONG[name], monkeypatch)
    failure = first_failure()
    with stores() as folder:
        shrunk = shrink(folder, failure, OPERATIONS, most_runs=MOST_RUNS)
        assert shrunk is not None
        assert 0 < len(shrunk.only) <= FEW
        told = shrunk.outcome.failure
        assert told is not None
        again = run_seed(folder, failure.seed, OPERATIONS, only=shrunk.only)
        assert again.failure == told


@pytest.mark.interpreted
def test_a_failure_is_reported_with_one_command_and_the_story_of_its_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(WRONG["recovery replaces locked Full"], monkeypatch)
    seed = first_failure().seed
    (report,) = simulate(range(seed, seed + 1), OPERATIONS).failures
    only = ",".join(map(str, report.only))
    assert report.command == f"kvledger torture sim --seed {seed} --ops {OPERATIONS} --only {only}"
    assert [step.number for step in report.steps][: len(report.only)] == report.only
    assert all(step.did for step in report.steps)
    (again,) = simulate(range(seed, seed + 1), OPERATIONS, only=report.only).failures
    assert (again.check, again.sentence, again.command) == (report.check, report.sentence, report.command)


def test_a_list_is_shrunk_until_no_single_one_can_be_left_out() -> None:
    needed = {3, 17, 18, 90}
    tried = []

    def fails(subset: Sequence[int]) -> bool:
        tried.append(list(subset))
        return needed <= set(subset)

    assert minimal(list(range(100)), fails) == sorted(needed)
    assert len(tried) < 150


def test_what_fails_whatever_is_done_shrinks_to_one() -> None:
    assert len(minimal(list(range(64)), lambda subset: True)) == 1
