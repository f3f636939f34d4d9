"""The trace reader: prefixes are shared exactly where block ids say so, and a bad line is named."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.tools.workload import trace
from kvledger.tools.workload.trace import BLOCK_TOKENS, MAX_TOKEN, TraceError, parse_trace, read_trace

GOOD = {"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [7, 9]}


def line(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


def without(field: str) -> str:
    return json.dumps({name: value for name, value in GOOD.items() if name != field})


def test_equal_leading_ids_are_equal_tokens_and_other_blocks_share_none() -> None:
    first, second = parse_trace(
        [
            line(input_length=1_500, hash_ids=[10**12, 0, 5]),
            line(input_length=1_500, hash_ids=[10**12, 6, 5]),
        ],
        name="trace",
    )
    assert first.prompt.dtype == np.int32
    assert len(first.prompt) == len(second.prompt) == 1_500
    equal = first.prompt == second.prompt
    assert equal[:BLOCK_TOKENS].all()
    assert not equal[BLOCK_TOKENS : 2 * BLOCK_TOKENS].any()
    assert equal[2 * BLOCK_TOKENS :].all()
    assert len(set(first.prompt.tolist()) | set(second.prompt.tolist())) == 3 * BLOCK_TOKENS + 1_500 - 1_024


def test_generated_tokens_belong_to_one_request_and_to_no_block() -> None:
    first, second = parse_trace([line(output_length=40), line(output_length=50)], name="trace")
    seen = np.concatenate([first.output, second.output])
    assert len(set(seen.tolist())) == 90
    assert seen.max() == MAX_TOKEN
    assert seen.min() > first.prompt.max()


def test_requests_are_in_order_of_arrival_and_as_many_as_asked() -> None:
    lines = [line(timestamp=30), line(timestamp=10), "\n", line(timestamp=10), line(timestamp=0)]
    workload = parse_trace(lines, name="trace", requests=3)
    assert [(request.request_id, request.arrival_ms) for request in workload] == [
        ("t000002", 10),
        ("t000004", 10),
        ("t000001", 30),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{not json", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"timestamp": ' + "9" * 10_000 + "}", "not JSON"),
        ("[1, 2]", "an object is needed"),
        ("null", "an object is needed"),
        (without("timestamp"), "has no 'timestamp'"),
        (without("input_length"), "has no 'input_length'"),
        (without("output_length"), "has no 'output_length'"),
        (without("hash_ids"), "'hash_ids' must be a list"),
        (line(timestamp=-1), "'timestamp' must be a whole number"),
        (line(timestamp=1.5), "'timestamp' must be a whole number"),
        (line(input_length=0), "'input_length' must be a whole number of at least 1"),
        (line(input_length="700"), "'input_length' must be a whole number"),
        (line(output_length=True), "'output_length' must be a whole number"),
        (line(output_length=2**31), "'output_length' is 2147483648, more than 16777216"),
        (line(timestamp=10**4_000), "'timestamp' is 1000"),
        (line(hash_ids=[7]), "names 1 block where 700 tokens have 2"),
        (line(hash_ids=[7, 8, 9]), "names 3 blocks where 700 tokens have 2"),
        (line(hash_ids=[7, "9"]), "whole numbers"),
        (line(hash_ids=[7, -9]), "whole numbers"),
        (line(hash_ids={"7": 9}), "must be a list"),
    ],
)
def test_a_line_that_is_not_of_the_format_is_named_with_its_number(bad: str, reason: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_trace([line(), bad, line()], name="some.jsonl")
    assert caught.value.line == 2
    assert reason in caught.value.reason
    assert str(caught.value).startswith("some.jsonl, line 2: ")
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value, InvalidArgument)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_lines_after_the_last_request_asked_for_are_not_read() -> None:
    assert len(parse_trace([line(), "{not json"], name="trace", requests=1)) == 1


def test_more_requests_than_a_run_can_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MAX_REQUESTS", 2)
    assert len(parse_trace([line(), line(), line()], name="trace", requests=2)) == 2
    with pytest.raises(TraceError, match="line 3: is past 2 requests"):
        parse_trace([line(), line(), line()], name="trace")
    with pytest.raises(InvalidArgument, match="1 to 1,000,000 requests, 1000001 asked"):
        parse_trace([line()], name="trace", requests=1_000_001)


def test_a_trace_gives_the_same_requests_each_time() -> None:
    workload = parse_trace([line(), line(timestamp=0)], name="trace")
    first, second = (
        [(request.request_id, request.prompt.tolist(), request.output.tolist()) for request in workload]
        for _ in range(2)
    )
    assert first == second
    assert len(first) == len(workload) == 2


def test_more_tokens_than_an_int32_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # A smaller largest id stands for int32's, which only gigabytes of tokens could exhaust.
    monkeypatch.setattr(trace, "MAX_TOKEN", 2_047)
    assert len(parse_trace([line(output_length=1_024)], name="trace")) == 1
    with pytest.raises(TraceError, match="line 1: brings more different tokens"):
        parse_trace([line(output_length=1_025)], name="trace")
    with pytest.raises(TraceError, match="line 2: brings more different tokens"):
        parse_trace([line(output_length=600), line(hash_ids=[1, 2])], name="trace")


def test_a_trace_without_requests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(TraceError, match="holds no request") as caught:
        read_trace(path)
    assert caught.value.line is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="binary: is not UTF-8 text"):
        read_trace(binary)
    with pytest.raises(TraceError, match=r"missing\.jsonl: cannot be read: No such file"):
        read_trace(tmp_path / "missing.jsonl")
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path)
