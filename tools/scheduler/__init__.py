"""A reference scheduler: how an engine drives the cache, complete but without a model.

Continuous batching with a token budget per step. A step is: arrivals, admission, a plan of who computes
how many tokens, slots for them (retracting somebody where there is no room), one forward over the batch,
publication, sampling, sliding, and the goodbye of whoever is done.
"""

from kvledger.tools.scheduler.loop import Scheduler
from kvledger.tools.scheduler.settings import Counts, SchedulerSettings

__all__ = ["Counts", "Scheduler", "SchedulerSettings"]
