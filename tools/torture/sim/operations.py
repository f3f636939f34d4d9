"""What a simulation does, drawn up front: operations that each mean something alone.

An operation has a number and numbers of its own to draw from: what it works on it chooses among what is there
when its turn comes. So any of them can be left out, and the others stay what they were.
"""

from dataclasses import dataclass

from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.setting import Setting

CACHE_KINDS = (
    *("serve",) * 20,
    *("decode",) * 10,
    *("open",) * 3,
    *("extend",) * 4,
    *("computed",) * 3,
    *("append",) * 2,
    *("commit",) * 6,
    *("slide",) * 3,
    *("finish",) * 9,
    *("abort",) * 2,
    *("retract",) * 2,
    *("refresh",) * 4,
    *("match",) * 2,
    *("acquire",) * 4,
    *("release",) * 4,
    *("release_swa",) * 2,
    *("insert_after",) * 2,
    *("advance",) * 3,
    *("lock_and_lose",) * 2,
    *("contend",) * 3,
    *("alloc",) * 3,
    *("free",) * 2,
    *("free_swa",) * 2,
    *("insert",) * 4,
    *("evict",) * 4,
    *("begin",) * 2,
    "savepoint",
    "rollback",
    *("end",) * 8,
    "reset",
    "misuse",
)
"""One that stands twice is twice as likely."""

JOURNAL_KINDS = ("write", "write", "write", "flush", "flush", "checkpoint", "crash")
STORE_FAULTS = ("store_fails", "store_fails", "store_heals")
"""Left out of calm seeds."""

RARE = ("crash", "reset", "store_fails")
RARE_ONE_IN = 5
"""They take away what was built up, and with it what there is to try."""

ONE_OF_THE_JOURNAL_IN = 13
ONE_FAULT_IN = 10
FAULTS = ("event", "event", "event", "event", "sink", "sink", "begin", "memory")
FURTHEST_EVENT = 12
FURTHEST_CALL = 4


@dataclass(frozen=True)
class Fault:
    """An exception that an operation meets: at which of its calls, and before which event of that call.

    `kind`: "event", "begin", "sink" (as it is handed a transaction) or "memory" (as pages are allocated).
    `interrupts`: the exception is no `Exception`, as that of a signal.
    """

    kind: str
    call: int
    at: int
    interrupts: bool

    def __str__(self) -> str:
        where = f" {self.at}" if self.kind == "event" else ""
        what = "an interrupt" if self.interrupts else "an error"
        return f"{what} at {self.kind}{where} of call {self.call}"


@dataclass(frozen=True)
class Operation:
    """One thing to do; `dice` gives the numbers it draws from, the same each time."""

    seed: int
    number: int
    kind: str
    fault: Fault | None

    def dice(self) -> Dice:
        """What the operation draws from."""
        return Dice(self.seed, self.number, 3)


def draw(setting: Setting, count: int) -> list[Operation]:
    """The first `count` operations of a seed."""
    return [_operation(setting, number) for number in range(count)]


def _operation(setting: Setting, number: int) -> Operation:
    dice = Dice(setting.seed, number, 2)
    if dice.one_in(ONE_OF_THE_JOURNAL_IN):
        kind = dice.choose(JOURNAL_KINDS if setting.calm else (*JOURNAL_KINDS, *STORE_FAULTS))
        if kind in RARE and not dice.one_in(RARE_ONE_IN):
            kind = "write"
        return Operation(setting.seed, number, kind, None)
    kind = dice.choose(CACHE_KINDS)
    if kind in RARE and not dice.one_in(RARE_ONE_IN):
        kind = "serve"
    fault = None
    if not setting.calm and dice.one_in(ONE_FAULT_IN):
        fault = Fault(
            kind=dice.choose(FAULTS),
            call=min(dice.below(FURTHEST_CALL) for _ in range(3)),
            at=dice.below(FURTHEST_EVENT) * dice.below(2),
            interrupts=dice.one_in(2),
        )
    return Operation(setting.seed, number, kind, fault)
