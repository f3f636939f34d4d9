"""A state that can be asked: where it stands, and what was derived from it already."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kvledger.api.schemas.common import At
from kvledger.journal.state import State

Derived = TypeVar("Derived")

KEPT_ANSWERS = 256
"""Answers kept of one state: some megabytes, and more different ones than a page asks for."""


@dataclass(frozen=True, slots=True)
class Standing:
    """`state` as it was at `at`. Valid only inside the block that gave it; never changed by its reader.

    `derived` is shared by all who ask while the state stands still.
    """

    state: State
    at: At
    derived: dict[Any, Any] = field(default_factory=dict)

    def derive(self, key: Any, make: Callable[[], Derived]) -> Derived:
        """What `make` makes of this state, made once while the state stands still."""
        found: Derived | None = self.derived.get(key)
        if found is None:
            found = self.derived[key] = make()
        return found

    def answer(self, key: Any, make: Callable[[], bytes]) -> bytes:
        """As `derive`, for the bytes of an answer; of these only so many are kept."""
        answers: dict[Any, bytes] = self.derive("answers", dict)
        found = answers.get(key)
        if found is None:
            found = make()
            if len(answers) < KEPT_ANSWERS:
                answers[key] = found
        return found
