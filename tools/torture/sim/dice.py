"""Numbers that follow from numbers: the only source of chance in a simulation.

The mixing is the published finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Dice are made of
numbers (a seed, that of an operation) in a microsecond, so that every operation has its own: what it draws
does not depend on any other being there.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15

T = TypeVar("T")


def mixed(value: int) -> int:
    """A bijection on 64-bit numbers that spreads every bit over all others."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)


class Dice:
    """An endless row of numbers that follows from `numbers`."""

    __slots__ = ("_state",)

    def __init__(self, *numbers: int) -> None:
        state = 0
        for number in numbers:
            state = mixed((state + number + GOLDEN) & MASK)
        self._state = state

    def below(self, limit: int) -> int:
        """A number in [0, limit), limit >= 1."""
        self._state = (self._state + GOLDEN) & MASK
        return mixed(self._state) % limit

    def one_in(self, times: int) -> bool:
        """True once in so many times."""
        return self.below(times) == 0

    def choose(self, items: Sequence[T]) -> T:
        """One of `items`; one that stands twice is twice as likely."""
        return items[self.below(len(items))]

    def prefer(self, numbers: Iterable[int]) -> int | None:
        """One of `numbers`, None where there are none.

        Taking others out changes the choice only where the chosen one is taken out.
        """
        state = self._state = (self._state + GOLDEN) & MASK
        return min(numbers, key=lambda number: mixed((state ^ mixed(number)) & MASK), default=None)
