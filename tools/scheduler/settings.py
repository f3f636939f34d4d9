"""What a scheduler is told before it starts, and what it counts while it runs."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field


class SchedulerSettings(BaseModel):
    """Limits of one step. All of them decide the events of a run, so they belong to its seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_budget: int = Field(default=2048, gt=0)
    """Tokens computed per step over the whole batch; a decoding request takes one."""

    max_running: int = Field(default=64, gt=0)
    """Requests in the batch."""

    step_ms: int = Field(default=30, gt=0)
    """Simulated time per step, against which arrivals are held."""

    sweep_steps: int = Field(default=64, gt=0)
    """Every so many steps, all that running requests could read is checked, and a checkpoint is made."""


@dataclass(slots=True)
class Counts:
    """What happened so far. Tokens are those of admitted requests; `hit_tokens` needed no prefill."""

    requests: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    hit_tokens: int = 0
    finished: int = 0
    aborts: int = 0
    retractions: int = 0
    refreshes: int = 0
    branch_points: int = 0
    rejected: int = 0
    slid_tokens: int = 0
    refused_tokens: int = 0
