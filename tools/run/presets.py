"""Sizes that suit a workload, used where the command line names none."""

from dataclasses import dataclass
from typing import Any

from kvledger.core.config import CacheConfig, KVLayout
from kvledger.tools.scheduler.settings import SchedulerSettings


@dataclass(frozen=True, slots=True)
class Preset:
    """Cache sizes in tokens, the KV layout and the limits of a step.

    A `layout` of None is the model's own. Of a workload every `keep`-th token is kept, and its time runs
    `hurry` times as fast: what small models get of one that is made for large pools.
    """

    requests: int
    page_size: int
    window: int
    full_tokens: int
    swa_tokens: int
    layout: KVLayout | None
    settings: SchedulerSettings
    keep: int = 1
    hurry: int = 1

    def config(self, **more: Any) -> CacheConfig:
        """A cache of these sizes; `more` are its other settings, a layout among them."""
        return CacheConfig(
            page_size=self.page_size,
            sliding_window=self.window,
            full_tokens=self.full_tokens,
            swa_tokens=self.swa_tokens,
            **more,
        )


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

ENGINE = Preset(
    requests=200,
    page_size=4,
    window=15,
    full_tokens=2_048,
    swa_tokens=768,
    layout=None,
    settings=SchedulerSettings(token_budget=128, max_running=24, step_ms=25),
    keep=8,
    hurry=8,
)
"""The built-in workload at an eighth, for models whose sliding layers see 15 tokens back."""

ENGINE_TRACE = Preset(
    requests=200,
    page_size=4,
    window=15,
    full_tokens=6_144,
    swa_tokens=1_536,
    layout=None,
    settings=SchedulerSettings(token_budget=128, max_running=24, step_ms=30),
    keep=64,
    hurry=8,
)
"""A trace at a sixty-fourth: its blocks of 512 tokens become 8."""
