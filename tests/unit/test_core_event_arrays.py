"""Arrays in events are their own, int32: nobody can write to them, and nothing that goes on changes them.

Two courses of the planted faults, whole lives with rollbacks. About a second.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kvledger.core import HybridCache
from kvledger.core.sinks import MemorySink
from tests.planted.evidence import Course
from tests.planted.life import life


def arrays(event: Any) -> Iterator[np.ndarray]:
    for name in event.__slots__:
        value = getattr(event, name)
        if isinstance(value, np.ndarray):
            yield value


@pytest.mark.parametrize("page", [1, 4])
def test_every_array_of_every_event_is_read_only_and_stays_what_it_was(page: int) -> None:
    sink = MemorySink()
    course = Course(life, page=page, window=6, full=240, swa=180)
    cache = HybridCache(course.config(), sink=sink)
    kept: list[tuple[np.ndarray, list[int]]] = []
    seen = 0

    def look() -> None:
        nonlocal seen
        for transaction in sink.transactions[seen:]:
            for event in transaction.events:
                for array in arrays(event):
                    assert not array.flags.writeable, event
                    # The very object: the journal's quick ways are for this one.
                    assert array.dtype is np.dtype(np.int32), event
                    kept.append((array, array.tolist()))
        seen = len(sink.transactions)

    life(cache, look, steps=100)
    assert len(kept) > 500
    assert all(array.tolist() == was for array, was in kept)
