"""A value that runs code of the test while somebody pickles it."""

from collections.abc import Callable
from typing import Any


class Calls:
    """Pickled, it calls something."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def __reduce__(self) -> tuple[Any, ...]:
        self._call()
        return int, ()
