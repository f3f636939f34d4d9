"""Seeds of the simulation, run in a test: what failed, in the words that the command would print."""

from functools import cache

from kvledger.tools.torture.sim.many import simulate
from kvledger.tools.torture.sim.summary import SimulationSummary
from kvledger.tools.torture.sim.told import tell_failure

OPERATIONS = 200


@cache
def simulated(first: int, end: int) -> SimulationSummary:
    """The seeds [first, end), run once; whatever fails is told with its command."""
    summary = simulate(range(first, end), OPERATIONS)
    told = [line for failure in summary.failures for line in tell_failure(failure)]
    assert not told, "\n".join(told)
    return summary
