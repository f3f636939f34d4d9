"""Seeds 0 to 99 of the simulation: no check fails. The other half is next door. About ten seconds."""

import pytest

from tests.support.simulated import OPERATIONS, simulated

PILES = 10
SEEDS = 10
FIRST = 0


@pytest.mark.parametrize("pile", range(PILES))
def test_no_check_fails_whatever_happens_to_scheduler_cache_journal_and_store(pile: int) -> None:
    first = FIRST + pile * SEEDS
    assert simulated(first, first + SEEDS).operations == SEEDS * OPERATIONS


@pytest.mark.parametrize(
    "seen",
    [
        "rollbacks",
        "rollbacks by the caller",
        "recoveries",
        "recoveries under a Full lock",
        "tombstones",
        "Full tokens evicted",
        "SWA tokens evicted",
        "retractions",
        "resets",
        "rows changed by a commit",
        "tokens refused by a commit",
        "tokens refused by an advance",
        "no room",
        "crashes",
        "events lost in crashes",
        "restarts after a failed recorder",
        "events dropped in outages",
        "stalls of a full queue",
        "digests compared",
        "full walks",
    ],
)
def test_the_seeds_reach_what_they_are_meant_to_try(seen: str) -> None:
    piles = (simulated(FIRST + pile * SEEDS, FIRST + (pile + 1) * SEEDS) for pile in range(PILES))
    assert sum(summary.observed.get(seen, 0) for summary in piles) > 0


@pytest.mark.interpreted
@pytest.mark.parametrize(
    "fault",
    ["event", "sink", "begin", "memory", "store, begin", "store, commit", "store, answer", "store, never"],
)
def test_the_seeds_meet_every_kind_of_fault(fault: str) -> None:
    piles = (simulated(FIRST + pile * SEEDS, FIRST + (pile + 1) * SEEDS) for pile in range(PILES))
    assert sum(summary.faults.get(fault, 0) for summary in piles) > 0
