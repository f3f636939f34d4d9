"""Who computes how many tokens in a step: pure arithmetic over the batch."""

from collections.abc import Iterable, Iterator

from kvledger.core.config import CacheConfig
from kvledger.tools.scheduler.job import Job


def step_budget(config: CacheConfig, token_budget: int) -> int:
    """Tokens of a step's prefill that the SWA pool can be expected to take.

    A chunk needs SWA for all its tokens beside the windows that are pinned meanwhile: its own, and those of
    the rest of the batch, for which three quarters of the pool are left.
    """
    own_window = config.window_pages * config.page_size
    room = min(config.swa_tokens - own_window, config.swa_tokens // 4)
    return min(token_budget, max(config.page_size, room))


def chunk_end(*, start: int, known: int, budget: int, page_size: int) -> int:
    """Where a chunk that starts at `start` ends: at a page boundary, so that it can be published whole.

    The last chunk ends with the prompt. A budget below a page moves on by what there is.
    """
    end = min(known, start + budget)
    if end < known:
        aligned = end - end % page_size
        if aligned > start:
            return aligned
    return end


def plan_step(running: Iterable[Job], *, budget: int, page_size: int) -> Iterator[tuple[Job, int]]:
    """Pairs of a job and how many tokens it may compute now: decoding jobs first, then prefill by admission.

    A prefill that the rest of the budget would cut to less than a page waits for the next step, unless the
    whole budget is that small.
    """
    left = budget
    prefills: list[Job] = []
    for job in running:
        if not job.decoding:
            prefills.append(job)
        elif left > 0:
            left -= 1
            yield job, 1
    for job in prefills:
        end = chunk_end(start=job.computed, known=job.known, budget=left, page_size=page_size)
        tokens = end - job.computed
        partial = end < job.known and end % page_size != 0
        if tokens <= 0 or (partial and left < min(page_size, budget)):
            return
        left -= tokens
        yield job, tokens
