"""The built-in workload: seeded, and made of what presses on a cache."""

import numpy as np
import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.tools.workload import WorkRequest, builtin_workload
from kvledger.tools.workload.spec import MAX_REQUESTS


def as_values(request: WorkRequest) -> tuple[object, ...]:
    return (
        request.request_id,
        request.arrival_ms,
        request.namespace,
        request.abort_at,
        request.prompt.tobytes(),
        request.output.tobytes(),
    )


def shared_prefix(first: WorkRequest, second: WorkRequest) -> int:
    length = min(len(first.prompt), len(second.prompt))
    differ = np.flatnonzero(first.prompt[:length] != second.prompt[:length])
    return int(differ[0]) if len(differ) else length


def test_equal_seeds_make_equal_requests() -> None:
    first, second = builtin_workload(60, seed=5), builtin_workload(60, seed=5)
    assert [as_values(request) for request in first] == [as_values(request) for request in second]


def test_a_shorter_workload_is_the_head_of_a_longer_one() -> None:
    longer = [as_values(request) for request in builtin_workload(90, seed=5)]
    assert [as_values(request) for request in builtin_workload(40, seed=5)] == longer[:40]


def test_requests_are_made_when_they_are_asked_for() -> None:
    workload = builtin_workload(MAX_REQUESTS, seed=5)
    assert len(workload) == MAX_REQUESTS
    assert as_values(next(iter(workload))) == as_values(next(iter(builtin_workload(1, seed=5))))


def test_different_seeds_make_different_requests() -> None:
    first, second = builtin_workload(20, seed=5), builtin_workload(20, seed=6)
    assert [as_values(request) for request in first] != [as_values(request) for request in second]


def test_requests_come_in_order_of_arrival_under_names_that_do_not_repeat() -> None:
    workload = list(builtin_workload(120, seed=1))
    arrivals = [request.arrival_ms for request in workload]
    assert arrivals == sorted(arrivals)
    assert len({request.request_id for request in workload}) == len(workload) == 120


def test_tokens_are_int32_arrays_that_nobody_can_change() -> None:
    for request in builtin_workload(40, seed=2):
        for tokens in (request.prompt, request.output):
            assert tokens.dtype == np.int32
            assert len(tokens) > 0
            assert tokens.min() >= 0
            with pytest.raises(ValueError, match="read-only"):
                tokens[0] = 1


def test_several_namespaces_ask_with_the_same_system_prompts() -> None:
    workload = list(builtin_workload(200, seed=0))
    heads: dict[bytes, set[str]] = {}
    for request in workload:
        heads.setdefault(request.prompt[:90].tobytes(), set()).add(request.namespace)
    assert max(len(namespaces) for namespaces in heads.values()) == 3


def test_later_turns_of_a_chat_repeat_the_answer_before_them() -> None:
    workload = list(builtin_workload(200, seed=0))
    repeated = 0
    for earlier in workload:
        whole = np.concatenate([earlier.prompt, earlier.output])
        repeated += any(
            len(later.prompt) > len(whole) and np.array_equal(later.prompt[: len(whole)], whole)
            for later in workload
        )
    assert repeated > 20


def test_excerpts_of_a_document_part_inside_it_while_its_long_answer_is_decoded() -> None:
    workload = list(builtin_workload(200, seed=0))
    readers = [request for request in workload if len(request.output) > 300]
    assert len(readers) > 10
    inside = 0
    for reader in readers:
        for other in workload:
            shared = shared_prefix(reader, other)
            inside += other is not reader and 300 < shared < len(reader.prompt) - 60
    assert inside > 20


def test_some_clients_leave_in_prefill_some_in_decode_and_some_at_once() -> None:
    points = [
        (request.abort_at, len(request.prompt))
        for request in builtin_workload(600, seed=0)
        if request.abort_at is not None
    ]
    assert any(point == 0 for point, _ in points)
    assert any(0 < point < prompt for point, prompt in points)
    assert any(point >= prompt for point, prompt in points)


def test_edited_prompts_part_from_each_other_a_little_before_their_end() -> None:
    workload = list(builtin_workload(300, seed=0))
    late = [
        (first, second)
        for index, first in enumerate(workload)
        for second in workload[index + 1 :]
        if 0 < len(first.prompt) - shared_prefix(first, second) <= 60 < shared_prefix(first, second)
    ]
    assert len(late) > 10


@pytest.mark.parametrize(("requests", "seed"), [(0, 0), (-3, 0), (MAX_REQUESTS + 1, 0), (1, -1)])
def test_a_workload_of_no_or_too_many_requests_or_a_negative_seed_is_refused(
    requests: int, seed: int
) -> None:
    with pytest.raises(InvalidArgument):
        builtin_workload(requests, seed=seed)
