"""The plan of a step: decoding first, then prefill in chunks that end where they can be published."""

import numpy as np
import pytest

from kvledger.core.config import CacheConfig
from kvledger.tools.scheduler.job import Job, new_job
from kvledger.tools.scheduler.plan import chunk_end, plan_step, step_budget
from kvledger.tools.workload import WorkRequest


@pytest.mark.parametrize(
    ("start", "known", "budget", "page_size", "end"),
    [
        (0, 100, 1_000, 16, 100),  # the whole prompt, its last page unfinished
        (0, 100, 100, 16, 100),
        (0, 100, 50, 16, 48),  # cut back to a page boundary
        (48, 100, 50, 16, 96),
        (96, 100, 50, 16, 100),
        (0, 100, 10, 16, 10),  # a budget below a page still moves on
        (10, 100, 10, 16, 16),
        (0, 100, 7, 1, 7),
        (5, 100, 0, 16, 5),
    ],
)
def test_a_chunk_ends_at_a_page_boundary_or_with_the_prompt(
    start: int, known: int, budget: int, page_size: int, end: int
) -> None:
    assert chunk_end(start=start, known=known, budget=budget, page_size=page_size) == end


def job(name: str, *, prompt: int, computed: int, generated: int = 0) -> Job:
    tokens = np.zeros(prompt, dtype=np.int32)
    made = new_job(WorkRequest(name, 0, tokens, np.zeros(20, dtype=np.int32)))
    made.known = prompt + generated
    made.computed = made.reserved = computed
    return made


def planned(jobs: list[Job], *, budget: int, page_size: int = 16) -> list[tuple[str, int]]:
    return [(job.name, n) for job, n in plan_step(jobs, budget=budget, page_size=page_size)]


def test_decoding_comes_first_and_takes_one_token_each() -> None:
    jobs = [
        job("prefill", prompt=100, computed=0),
        job("decode", prompt=50, computed=50, generated=1),
    ]
    assert planned(jobs, budget=40) == [("decode", 1), ("prefill", 32)]


def test_the_last_token_of_a_prompt_is_prefill_not_decode() -> None:
    assert planned([job("last", prompt=50, computed=49)], budget=40) == [("last", 1)]
    assert not job("last", prompt=50, computed=49).decoding


def test_a_resumed_request_prefills_what_it_had_generated() -> None:
    resumed = job("resumed", prompt=50, computed=48, generated=6)
    assert not resumed.decoding
    assert planned([resumed], budget=40) == [("resumed", 8)]


def test_the_budget_goes_round_in_order_of_admission() -> None:
    jobs = [job(name, prompt=100, computed=0) for name in ("first", "second", "third")]
    assert planned(jobs, budget=150) == [("first", 100), ("second", 48)]


def test_a_prefill_waits_rather_than_starting_a_part_of_a_page() -> None:
    jobs = [job("first", prompt=40, computed=0), job("second", prompt=100, computed=0)]
    assert planned(jobs, budget=48) == [("first", 40)]


def test_a_budget_below_a_page_is_used_whole() -> None:
    assert planned([job("only", prompt=100, computed=0)], budget=5) == [("only", 5)]
    assert planned([job("only", prompt=100, computed=5)], budget=5) == [("only", 5)]


def test_more_decoding_requests_than_budget_leaves_the_newest_waiting() -> None:
    jobs = [job(str(i), prompt=10, computed=10, generated=1) for i in range(5)]
    assert planned(jobs, budget=3) == [("0", 1), ("1", 1), ("2", 1)]


@pytest.mark.parametrize(
    ("page_size", "window", "swa_tokens", "budget", "expected"),
    [
        (16, 128, 6_144, 512, 512),  # as asked
        (16, 128, 1_024, 512, 256),  # a quarter of the pool
        (16, 128, 160, 512, 32),  # what its own window leaves
        (16, 128, 128, 512, 16),  # never less than a page
        (64, 10, 64, 512, 64),
    ],
)
def test_the_budget_of_a_step_is_one_that_the_swa_pool_can_take(
    page_size: int, window: int, swa_tokens: int, budget: int, expected: int
) -> None:
    config = CacheConfig(
        page_size=page_size, sliding_window=window, full_tokens=64 * page_size, swa_tokens=swa_tokens
    )
    assert step_budget(config, budget) == expected
