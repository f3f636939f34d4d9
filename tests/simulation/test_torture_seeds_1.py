"""Seeds 100 to 199 of the simulation: no check fails. The other half is next door. About ten seconds."""

import pytest

from tests.support.simulated import OPERATIONS, simulated

PILES = 10
SEEDS = 10
FIRST = 100


@pytest.mark.parametrize("pile", range(PILES))
def test_no_check_fails_whatever_happens_to_scheduler_cache_journal_and_store(pile: int) -> None:
    first = FIRST + pile * SEEDS
    assert simulated(first, first + SEEDS).operations == SEEDS * OPERATIONS
