"""The references of hit ratios: what a cache without limits finds, and one that knows the future."""

import numpy as np
import pytest

from kvledger.tools.bench.hits_bounds import bounds, next_uses, oracle, unlimited
from kvledger.tools.bench.hits_rows import rows_of
from kvledger.tools.workload import WorkRequest

PAGE = 64


def request(*blocks: int, tail: int = 1, output: int = 0, namespace: str = "") -> WorkRequest:
    """A prompt of whole pages, one per number, then `tail` tokens; equal numbers are equal pages."""
    parts = [np.arange(block * PAGE, (block + 1) * PAGE, dtype=np.int32) for block in blocks]
    parts.append(np.full(tail, 1_000_000, dtype=np.int32))
    return WorkRequest("r", 0, np.concatenate(parts), np.full(output, 2_000_000, dtype=np.int32), namespace)


def found(*requests: WorkRequest, pages: int, concurrency: int = 1) -> tuple[int, int]:
    """Pages found by both references."""
    rows = rows_of(requests, page_size=PAGE)
    answer = bounds(rows, page_size=PAGE, full_tokens=pages * PAGE, concurrency=concurrency)
    return answer.unlimited_tokens // PAGE, answer.oracle_tokens // PAGE


def test_without_limits_every_page_that_came_before_is_found() -> None:
    assert found(request(1, 2, 3), request(1, 2, 4), request(1, 2, 4), pages=100) == (2 + 3, 2 + 3)


def test_a_page_counts_only_behind_the_same_pages() -> None:
    assert found(request(1, 2), request(3, 2), pages=100) == (0, 0)


def test_namespaces_share_nothing() -> None:
    assert found(request(1, namespace="a"), request(1, namespace="b"), pages=100) == (0, 0)


def test_the_last_token_of_a_prompt_is_never_found() -> None:
    assert found(request(1, 2, tail=0), request(1, 2, tail=0), pages=100) == (1, 1)


def test_generated_tokens_are_found_by_a_prompt_that_repeats_them() -> None:
    said = np.arange(5 * PAGE, 6 * PAGE, dtype=np.int32)
    first = request(1, tail=0)
    asked = WorkRequest("r", 0, first.prompt, said, "")
    assert found(asked, request(1, 5), pages=100) == (2, 2)


def test_the_oracle_keeps_what_is_needed_soonest() -> None:
    # Room for two pages beside the partial one of whoever runs: 1 comes back first, 2 last.
    rows = [request(1), request(2), request(3), request(1), request(3)]
    assert found(*rows, pages=4) == (2, 2)
    assert found(*rows, pages=3) == (2, 2)
    assert found(*rows, pages=2) == (2, 0)


def test_the_oracle_lets_go_of_what_is_never_needed_before_anything_else() -> None:
    rows = [request(1), *[request(n) for n in range(10, 40)], request(1)]
    assert found(*rows, pages=3) == (1, 1)


def test_pages_of_running_requests_stay() -> None:
    # The first still runs when the third needs its room, so it is ended, and only then can its page go.
    rows = rows_of([request(1), request(2), request(3), request(1)], page_size=PAGE)
    assert oracle(rows, capacity=6, concurrency=3) == 1
    assert oracle(rows, capacity=2, concurrency=3) == 0


def test_a_request_too_long_for_the_pool_is_passed_over() -> None:
    rows = rows_of([request(1), request(*range(10, 20)), request(1)], page_size=PAGE)
    assert oracle(rows, capacity=4, concurrency=2) == 1


@pytest.mark.parametrize("seed", range(6))
def test_the_oracle_never_beats_the_cache_without_limits_and_reaches_it_with_room(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = rows_of(
        [request(*random.integers(0, 4, size=random.integers(1, 6)).tolist()) for _ in range(60)],
        page_size=PAGE,
    )
    most = unlimited(rows)
    by_size = [oracle(rows, capacity=size, concurrency=2) for size in (8, 16, 32, 10_000)]
    assert all(some <= most for some in by_size)
    assert by_size[-1] == most > by_size[0]


def test_next_uses_are_those_of_requests_that_may_reuse_the_page() -> None:
    rows = rows_of([request(1, 2), request(1, tail=0), request(1, 2)], page_size=PAGE)
    never = next_uses(rows)[2][0]
    # The second prompt is one page long: its only page holds its last token.
    assert next_uses(rows) == [[2, 2], [2], [never, never]]


def test_small_pages_are_counted_in_whole_units() -> None:
    rows = rows_of([request(1, 2), request(1, 2)], page_size=16)
    answer = bounds(rows, page_size=16, full_tokens=64 * PAGE, concurrency=1)
    assert answer.unlimited_tokens == answer.oracle_tokens == 2 * PAGE
