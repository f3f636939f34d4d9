"""What is done for each type of event, and what at the end of a transaction: worked out once for a state.

A transaction ends for those checks that one of its events was for. Most transactions are of one event, and
asking every check after each of them would cost more than the event. What was undone, or does not fit, ends
for every check.
"""

from collections.abc import Callable, Iterable, Sequence

from kvledger.journal.audit.check import Check, Hook
from kvledger.journal.effects import EFFECTS
from kvledger.journal.records import StoredTransaction
from kvledger.journal.structure import STRUCTURE

End = Callable[[StoredTransaction], None]
"""What a check does when a transaction ends."""


class Plan:
    """All that is done for one type of event. `ends` has a bit for each end that it calls for."""

    __slots__ = ("after", "before", "effect", "ends", "structure")

    def __init__(self, kind: type, checks: Iterable[Check], *, ends: int) -> None:
        self.structure = STRUCTURE[kind]
        self.effect = EFFECTS[kind]
        self.before: tuple[Hook, ...] = tuple(c.before[kind] for c in checks if kind in c.before)
        self.after: tuple[Hook, ...] = tuple(c.after[kind] for c in checks if kind in c.after)
        self.ends = ends


class Ends(dict[int, tuple[End, ...]]):
    """By the bits of what a transaction held: the ends that it has, in the order of the checks.

    `all` are the bits of every end.
    """

    def __init__(self, checks: Iterable[Check]) -> None:
        super().__init__()
        self._checks = [check for check in checks if type(check).end_transaction is not Check.end_transaction]
        self._kinds = [frozenset(check.ended_by()) for check in self._checks]
        self.all = (1 << len(self._checks)) - 1

    def bits(self, kind: type) -> int:
        """The ends that an event of type `kind` calls for."""
        return sum(1 << place for place, kinds in enumerate(self._kinds) if kind in kinds)

    def __missing__(self, bits: int) -> tuple[End, ...]:
        chosen = [check for place, check in enumerate(self._checks) if bits >> place & 1]
        self[bits] = ends = tuple(check.end_transaction for check in chosen)
        return ends


def plans_for(checks: Sequence[Check], ends: Ends) -> dict[type, Plan]:
    """The plan of every type of event that has an effect."""
    return {kind: Plan(kind, checks, ends=ends.bits(kind)) for kind in STRUCTURE}
