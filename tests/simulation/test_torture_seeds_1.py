"""Seeds 100 to 149 of the simulation: no check fails. The first hundred are next door. About five seconds."""

import pytest

from tests.support.simulated import OPERATIONS, simulated

PILES = 5
SEEDS = 10
FIRST = 100


@pytest.mark.parametrize("pile", range(PILES))
def test_no_check_fails_whatever_happens_to_scheduler_cache_journal_and_store(pile: int) -> None:
    first = FIRST + pile * SEEDS
    assert simulated(first, first + SEEDS).operations == SEEDS * OPERATIONS
