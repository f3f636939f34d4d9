"""How a recorder is to behave: what a crash may take, and what a failing store does to the scheduler.

How much a killed process can lose is the `durability`:

    commit       nothing that `append` returned from: it waits for the disk
    step         what came after the last `flush()`, which the scheduler calls once a step
    background   what the writer had not reached yet
"""

from dataclasses import dataclass
from typing import Literal

from kvledger.core.errors import InvalidArgument
from kvledger.journal.arguments import check_flag, check_number
from kvledger.journal.drain import check_can_drain

Durability = Literal["commit", "step", "background"]
OnFailure = Literal["halt", "degrade"]

DEFAULT_QUEUE_EVENTS = 65_536
"""Events that may wait for the writer: less than a second of its work, some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class RecorderSettings:
    """How a recorder behaves, as `Journal.record` explains it. Raises InvalidArgument for what cannot be."""

    durability: Durability = "step"
    queue_limit: int = DEFAULT_QUEUE_EVENTS
    on_failure: OnFailure = "halt"
    drain_on_sigterm: bool = False

    def __post_init__(self) -> None:
        if type(self.durability) is not str or self.durability not in ("commit", "step", "background"):
            raise InvalidArgument(f"durability is commit, step or background, not {self.durability!r}")
        if type(self.on_failure) is not str or self.on_failure not in ("halt", "degrade"):
            raise InvalidArgument(f"on_failure is halt or degrade, not {self.on_failure!r}")
        check_number(self.queue_limit, "queue_limit, a number of events,", least=1)
        check_flag(self.drain_on_sigterm, "drain_on_sigterm")
        if self.drain_on_sigterm:
            check_can_drain()
