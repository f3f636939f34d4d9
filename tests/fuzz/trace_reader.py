"""The trace reader under any file: the requests that its lines name, or a refusal that names the line."""

import io
import json
from itertools import pairwise
from pathlib import PosixPath
from typing import Any

import numpy as np

from kvledger.tools.workload.spec import WorkRequest
from kvledger.tools.workload.trace import BLOCK_TOKENS, FIELDS, TraceError, read_trace

TOKENS = 2**18
"""So many tokens of an input are made and looked at: one line may name 32 million."""

WORDS = {b'"%s": ' % name.encode() for name in (*FIELDS, "hash_ids")}
"""What inputs are made of."""


class HeldFile(PosixPath):
    """A path whose file is in memory."""

    data = b""

    def open(self, *arguments: Any, **options: Any) -> Any:
        """The file as text, decoded as whoever opens it asks."""
        return io.TextIOWrapper(io.BytesIO(self.data), encoding=options["encoding"])


def one(data: bytes) -> None:
    """Every request is the one of its line, in order of arrival; tokens are equal exactly where ids are."""
    path = HeldFile("input")
    path.data = data
    try:
        workload = read_trace(path)
    except TraceError:
        return
    # Python's own reading of the lines; what is read at all is JSON of the format.
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").readlines()
    rows = [(number, json.loads(line)) for number, line in enumerate(lines, 1) if not line.isspace()]
    rows.sort(key=lambda row: row[1]["timestamp"])
    assert len(workload) == len(rows)
    made = iter(workload)
    room = TOKENS
    looked_at = []
    for number, row in rows:
        room -= -(-row["input_length"] // BLOCK_TOKENS) * BLOCK_TOKENS + row["output_length"]
        if room < 0:
            break
        request = next(made)
        _check(request, number, row)
        looked_at.append((request, row))
    _check_sharing(looked_at)


def _check(request: WorkRequest, number: int, row: dict[str, Any]) -> None:
    assert (request.request_id, request.arrival_ms) == (f"t{number:06d}", row["timestamp"])
    assert (len(request.prompt), len(request.output)) == (row["input_length"], row["output_length"])
    assert request.prompt.dtype == request.output.dtype == np.int32
    assert not request.prompt.flags.writeable
    assert not request.output.flags.writeable


def _check_sharing(looked_at: list[tuple[WorkRequest, dict[str, Any]]]) -> None:
    block_of: dict[int, int] = {}
    outputs: set[int] = set()
    for request, row in looked_at:
        for at, block in enumerate(row["hash_ids"]):
            tokens = request.prompt[at * BLOCK_TOKENS : (at + 1) * BLOCK_TOKENS]
            first = block_of.setdefault(block, int(tokens[0]))
            assert int(tokens[0]) == first
            assert np.array_equal(tokens, np.arange(first, first + len(tokens)))
        made = set(request.output.tolist())
        assert len(made) == row["output_length"]
        assert not made & outputs
        outputs |= made
    firsts = sorted(block_of.values())
    assert all(after - before >= BLOCK_TOKENS for before, after in pairwise(firsts))
    if firsts and outputs:
        assert 0 <= firsts[0] <= firsts[-1] + BLOCK_TOKENS - 1 < min(outputs)
