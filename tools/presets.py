"""Sizes that suit a workload, used where the command line names none."""

from dataclasses import dataclass

from kvledger.core.config import KVLayout
from kvledger.tools.scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class Preset:
    """Cache sizes in tokens, the KV layout and the limits of a step."""

    requests: int
    page_size: int
    window: int
    full_tokens: int
    swa_tokens: int
    layout: KVLayout
    settings: SchedulerSettings


BUILTIN = Preset(
    requests=400,
    page_size=16,
    window=128,
    full_tokens=24_576,
    swa_tokens=6_144,
    layout=KVLayout(full_layers=(1, 3), swa_layers=(0, 2), kv_heads=2, head_dim=8),
    settings=SchedulerSettings(token_budget=512, max_running=24, step_ms=25),
)
"""Pools so small that a handful of documents fill them: everything that pressure causes happens often."""

TRACE = Preset(
    requests=1_000,
    page_size=64,
    window=1_024,
    full_tokens=409_600,
    swa_tokens=102_400,
    layout=KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=4),
    settings=SchedulerSettings(token_budget=2_048, max_running=64, step_ms=30),
)
"""Pools of a real deployment's size. The KV per token is tiny, as only its content is of interest."""
