"""How a step of a cache is watched: under a profile of its own, or by the clock.

Each profile holds one step, so that nothing has to be told apart by time. What is counted in it:

| | on a CUDA device | on a processor |
|---|---|---|
| copies | `Memcpy HtoD` of the device | calls of `aten::to`, which copy nothing here |
| mapping updates | the operations that write in place | updates of the mirror |

Whether a step changed the mapping is seen from the mirror, before and after.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from kvledger.core import HybridCache
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvalidArgument
from kvledger.core.sinks import MemorySink
from kvledger.tools.bench.device_rounds import TO_DEVICE

COPY_TO_DEVICE = "Memcpy HtoD"
COPY_ON_HOST = "aten::to"
UPDATES_ON_DEVICE = ("aten::index_put_", "aten::index_copy_", "aten::scatter_")
UPDATE_ON_HOST = "kvledger::mirror"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Seen:
    """What one step did: its outermost commits, and by its profile."""

    step: str
    commits: int
    changed: bool
    copies: int
    updates: int

    def as_expected(self, *, on_device: bool) -> bool:
        """One copy for a prefix; one update where the mapping changed, which takes a copy to a device."""
        if self.step == TO_DEVICE:
            return (self.copies, self.updates, self.commits) == (1, 0, 0)
        expected = 1 if self.changed else 0
        return self.updates == expected and self.copies == (expected if on_device else 0)


class ProfiledEvent(Protocol):
    """What is read of an event of a profile."""

    name: str
    device_type: DeviceType


def show_updates(pools: DevicePools) -> None:
    """Have a profile show updates of a mirror on the processor, of which it would see nothing."""
    update = pools._update_on_host

    def shown(*given: Any) -> None:
        with record_function(UPDATE_ON_HOST):
            update(*given)

    pools._update_on_host = shown  # type: ignore[assignment]


class Profiler:
    """Makes steps of a cache, each under a profile of its own, and keeps what was `seen`."""

    def __init__(self, cache: HybridCache, sink: MemorySink) -> None:
        self.seen: list[Seen] = []
        self.on_device = cache.pool.device.type == "cuda"
        self._cache = cache
        self._sink = sink
        self._activities = [ProfilerActivity.CPU]
        # Kineto tells stderr of each profile that begins and ends.
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")
        if self.on_device:
            self._activities.append(ProfilerActivity.CUDA)
            self._check_the_profiler()
        else:
            show_updates(cache.pool)

    def __call__(self, step: str, call: Callable[[], Result]) -> Result:
        """The result of one step."""
        commits, before = len(self._sink.transactions), self._mirror()
        result, (copies, updates) = self._profiled(call)
        changed = not np.array_equal(before, self._mirror())
        commits = len(self._sink.transactions) - commits
        self.seen.append(Seen(step, commits, changed, copies, updates))
        return result

    def _profiled(self, call: Callable[[], Result]) -> tuple[Result, tuple[int, int]]:
        with profile(activities=self._activities) as found:
            result = call()
            if self.on_device:
                torch.cuda.synchronize(self._cache.pool.device)
        return result, counted(found.events(), on_device=self.on_device)

    def _check_the_profiler(self) -> None:
        """Raises InvalidArgument where the profiler does not see a copy that is made."""
        copies = 0
        for _ in range(2):  # The first profile of a process begins before the device is ready.
            _, (copies, _) = self._profiled(lambda: self._cache.pool.to_device(np.arange(4)))
        if copies != 1:
            raise InvalidArgument(f"the profiler counts {copies} copies to this device where one was made")

    def _mirror(self) -> "np.ndarray[Any, np.dtype[Any]]":
        mapping: np.ndarray[Any, np.dtype[Any]] = self._cache.pool.mapping.cpu().numpy()
        return mapping.copy()


class Stopwatch:
    """Makes steps of a cache and keeps what each took, in microseconds, by its kind."""

    def __init__(self, cache: HybridCache) -> None:
        self.spent: dict[str, list[float]] = {}
        self._device = cache.pool.device
        self._on_device = self._device.type == "cuda"
        self._clock = time.perf_counter_ns if self._on_device else time.thread_time_ns

    def __call__(self, step: str, call: Callable[[], Result]) -> Result:
        """The result of one step."""
        began = self._clock()
        result = call()
        if self._on_device:
            torch.cuda.synchronize(self._device)
        self.spent.setdefault(step, []).append((self._clock() - began) / 1e3)
        return result


def counted(events: Sequence[ProfiledEvent], *, on_device: bool) -> tuple[int, int]:
    """Copies to the device and mapping updates among the events of a profile."""
    on_host = [event.name for event in events if event.device_type == DeviceType.CPU]
    if not on_device:
        return on_host.count(COPY_ON_HOST), on_host.count(UPDATE_ON_HOST)
    copies = sum(
        event.device_type == DeviceType.CUDA and event.name.startswith(COPY_TO_DEVICE) for event in events
    )
    return copies, sum(name in UPDATES_ON_DEVICE for name in on_host)
