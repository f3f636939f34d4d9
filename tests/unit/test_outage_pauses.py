"""How long a degraded recorder waits between two looks at its store."""

from itertools import pairwise

from kvledger.journal.outage import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, pause_seconds


def test_pauses_double_up_to_a_limit_and_never_end() -> None:
    pauses = [pause_seconds(attempt) for attempt in range(40)]
    assert pauses[0] == FIRST_RETRY_SECONDS
    for before, after in pairwise(pauses):
        assert after == min(LAST_RETRY_SECONDS, 2 * before)
    assert pauses[-1] == pause_seconds(1_000_000) == LAST_RETRY_SECONDS
