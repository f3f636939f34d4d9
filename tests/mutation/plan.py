"""What is mutated, and the tests that have to notice.

Two targets. Of each, `quick` tests are tried first, those that reach the mutant's statement and no others.
What survives them and is not explained meets the `thorough` ones too: it has then met what `make test` has to
say about the file, short of more seeds of the same kind and of what runs through a database or over HTTP.
"""

from dataclasses import dataclass

SEED = 7
SAMPLE = 400


@dataclass(frozen=True)
class Target:
    """Files to be mutated, and tests: patterns of paths, or node ids. None takes more than some seconds."""

    files: tuple[str, ...]
    quick: tuple[str, ...]
    thorough: tuple[str, ...]
    once: tuple[tuple[str, str], ...] = ()
    """Functions, by file of tests and name, whose cached answers no mutant can change: asked before any."""


def _walks(name: str, seeds: range) -> tuple[str, ...]:
    return tuple(f"tests/property/test_cache_against_model.py::{name}[{seed}]" for seed in seeds)


def _piles(numbers: range) -> tuple[str, ...]:
    """Ten seeds of the simulation each."""
    name = "test_no_check_fails_whatever_happens_to_scheduler_cache_journal_and_store"
    return tuple(f"tests/simulation/test_torture_seeds_0.py::{name}[{pile}]" for pile in numbers)


LRU = "test_a_long_walk_agrees_with_the_model_the_replay_and_the_audit"
LRU_2 = "test_a_long_walk_under_lru_2_agrees_with_the_model_the_replay_and_the_audit"
PRINTS = "test_a_long_walk_with_fingerprints_agrees_with_the_model_the_replay_and_the_audit"

CORE = Target(
    files=(
        "core/matching.py",
        "core/insertion.py",
        "core/raw_insert.py",
        "core/locking.py",
        "core/eviction.py",
        "core/eviction_queue.py",
        "core/commit.py",
        "core/transaction.py",
        "core/page_arrays.py",
        "core/page_table.py",
        "core/recency.py",
        "core/state.py",
        "core/changes/facts.py",
        "core/changes/locks.py",
        "core/changes/nodes.py",
        "core/changes/pages.py",
        "core/changes/requests.py",
    ),
    quick=(
        "tests/scenario/test_scenarios_*.py",
        "tests/unit/test_core_*.py",
        "tests/unit/test_fingerprint*.py",
        "tests/unit/test_transaction_beginnings.py",
        "tests/faults/test_families_core.py",
        "tests/faults/test_transaction_endings.py",
        "tests/mutation/courses.py",
        "tests/property/test_lru*_order.py",
        *_walks(LRU, range(4)),
        *_walks(LRU_2, range(4)),
    ),
    thorough=(
        "tests/contract/test_page_allocators.py",
        "tests/contract/test_sinks.py",
        "tests/faults/test_event_boundaries.py",
        "tests/property/test_advance_equals_its_parts.py",
        "tests/property/test_answers_against_the_cache.py",
        "tests/property/test_tree_layout.py",
        *_piles(range(4)),
        *_walks(LRU, range(4, 12)),
        *_walks(LRU_2, range(4, 10)),
    ),
)

AUDIT = Target(
    files=("journal/audit/*.py",),
    quick=(
        "tests/faults/test_audit_[!e]*.py",
        "tests/faults/test_audit_ends.py",
        "tests/mutation/courses.py",
    ),
    thorough=(
        "tests/faults/test_audit_edits.py",
        "tests/faults/test_honest_verdicts.py",
        "tests/planted/test_planted_[!t]*.py",
        "tests/faults/test_content_evidence.py",
        *_walks(LRU, range(4)),
        *_walks(PRINTS, range(60, 62)),
    ),
    once=(("tests/faults/test_audit_edits.py", "places"),),
)

TARGETS = {"core": CORE, "audit": AUDIT}
